"""The base class of rankers: an encoder over chunks, then an aggregation over a document's chunks.

Shapes: B documents, P chunks of the longest document, C chunks of all documents, L tokens, H hidden
size.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rank_core.chunking.batches import ChunkBatch, PairEncoder
from rank_core.chunking.encoder_input import EncoderInput
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.any_kind import head_names, vector_size
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import saved_with
from rank_core.encoders.flat_rows import FlatRows, on
from rank_core.encoders.lora import ADAPTER, has_adapters
from rank_core.encoders.openvino_runtime import CompiledEncoder
from rank_core.encoders.packed import COMPILE_TOKENS, flat_states, packs, products
from rank_core.encoders.published_heads import (
    check_head,
    head_problem,
    load_head,
    new_classifier,
    new_head_pooling,
    unread_head,
)
from rank_core.encoders.shipped import RANKING_HEAD
from rank_core.errors import BadInput
from rank_core.models.poolings import row_vectors
from rank_core.models.ranking_system import BlocksRead, RankingSystem
from rank_core.models.readers import WholeDocuments, padded_in_place, pads_in_place
from rank_core.settings.config import Model, TrialConfig


class Ranker(RankingSystem, nn.Module):
    """Scores documents from one vector per chunk, which a subclass aggregates.

    A subclass defines `label`, `paper`, `family` and `aggregate`, and the facts of
    `ranking_system.py` in which it differs. A model that needs more than one vector per chunk
    overrides `forward`; it then gets whole documents.

    Examples:
        >>> import ranksweep
        >>> class MeanP(ranksweep.Ranker):
        ...     label, paper, family = "MeanP", "none", "passage scores"
        ...     def aggregate(self, x_BPH, mask_BP):
        ...         score_BP = self.score(x_BPH) * mask_BP
        ...         return score_BP.sum(1) / mask_BP.sum(1)
        >>> MeanP.reads_windows()
        True
    """

    trains: ClassVar[bool] = True
    pair_encoder: ClassVar[type[PairEncoder]] = PairEncoder
    one_chunk_is_firstp: ClassVar[bool] = True
    by_chunks: ClassVar[bool] = True  # score = aggregate(encode(chunks)); False: own `forward`
    compiled: CompiledEncoder | None = None  # computes the encoder's last layer in place of torch
    most_tokens: int = 0  # of a scoring batch that the GPU's memory holds; 0: not exceeded yet
    extra_loss: Tensor | None = None  # set by a training forward pass, added by the loop

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        facts = vars(cls)
        cls.by_chunks = facts.get("by_chunks", cls.forward is Ranker.forward)
        windows = bool(cls.chunk_pooling) and cls.reads_windows()
        cls.keeps_chunk_scores = facts.get("keeps_chunk_scores", windows)

    @classmethod
    def optional_settings(cls) -> tuple[str, ...]:
        """The optional settings of `Model` that it reads; every trained model has a head."""
        return (*cls.options, "head")

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = self.pooling_of(settings, backbone)
        self.dropout = nn.Dropout(settings.dropout)
        self.head: Any = nn.Linear(vector_size(encoder.config), 1)
        nn.init.xavier_uniform_(self.head.weight)
        if draws_classifier(backbone, settings.head):
            self.head = new_classifier(backbone, settings.dropout)
        elif uses_checkpoint_head(type(self), backbone, settings.head):
            self.head = load_head(backbone, settings.dropout)
        if not isinstance(self.head, nn.Linear):
            self.dropout = nn.Dropout(0.0)  # the head has its own

    @classmethod
    def rows_over(cls, backbone: Backbone) -> Backbone:
        """The backbone without a reranker's layout of pairs, for a model that reads none."""
        return backbone if cls.reads_pairs else replace(backbone, own_layout=None)

    @classmethod
    def backbone_of(cls, settings: Model, backbone: Backbone) -> Backbone:
        """The backbone as this model reads texts: with the layout that decides their tokens."""
        return backbone

    def blocks_read(
        self, pairs: Any, query: NDArray[np.int32], doc_ids: Sequence[str]
    ) -> list[BlocksRead]:
        """The blocks that are read of each document, of a model that `selects_blocks`; `pairs` is
        its own reader."""
        raise NotImplementedError

    @classmethod
    def notes(cls, settings: Model, backbone: Backbone) -> tuple[str, ...]:
        """What a plan says about the reading of the backbone, in sentences."""
        return saved_with(backbone.folder).notes

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """The reader that chunks and arranges the model's documents."""
        kind = cls.pair_encoder
        if pads_in_place(config.model):
            kind = padded_in_place(kind)
        return kind(tokens, config.chunking, cls.first_chunk_only, cls.rows_over(backbone))

    @classmethod
    def reads_windows(cls) -> bool:
        """True if its rows are the query and a sliding window of the document."""
        own_reader = cls.reader.__func__ is not Ranker.reader.__func__  # type: ignore[attr-defined]
        return cls.pair_encoder is PairEncoder and not own_reader

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Raises `BadInput` for settings that this model does not support."""
        chunking = config.chunking
        whole = chunking.window == chunking.max_document_tokens
        if issubclass(cls.pair_encoder, WholeDocuments) and not whole:
            raise BadInput(
                f"model {config.model.name} reads whole documents: chunking.window = "
                f"chunking.max_document_tokens must hold, got {chunking.window} and "
                f"{chunking.max_document_tokens}"
            )
        if chunking.max_query_tokens > (cls.max_query or chunking.max_query_tokens):
            raise BadInput(
                f"chunking.max_query_tokens <= {cls.max_query} must hold for model "
                f"{config.model.name}, which has separate weights for each query token, got "
                f"chunking.max_query_tokens={chunking.max_query_tokens}"
            )

    @classmethod
    def rates_read(cls, settings: Model) -> tuple[str, ...]:
        """The parts of `learning_rate_groups` that have parameters with these settings."""
        return (*cls.rates, *(part for part in ("interaction",) if part in cls.options))

    @classmethod
    def pooling_of(cls, settings: Model, backbone: Backbone) -> str:
        """The row pooling of a model: where `model.pool` is empty, that of the head that it starts
        from, or the backbone's own."""
        if draws_classifier(backbone, settings.head):
            return new_head_pooling(backbone)
        starts = uses_checkpoint_head(cls, backbone, settings.head)
        starts |= settings.head != "new" and (backbone.folder / RANKING_HEAD).exists()
        if starts and not settings.pool and backbone.head_pooling:
            return backbone.head_pooling
        return backbone.row_pooling(settings.pool)

    def encode(self, inputs: EncoderInput) -> Tensor:
        """x_CH: a vector per chunk, pooled from the encoder's last layer."""
        # The first token is no padding: with flat rows there need be no mask.
        mask_CL = None if self.pooling == "cls" else inputs.attention_mask_CL
        return row_vectors(self.hidden(inputs), mask_CL, self.pooling)

    def hidden(self, inputs: EncoderInput) -> Tensor:
        """hidden_CLH: the encoder's last layer; only [CLS] (L = 1) unless `reads_tokens`."""
        if self.compiled is not None:
            return self.compiled(
                inputs.input_ids_CL, inputs.attention_mask_CL, inputs.token_type_ids_CL
            )
        cls_alone = not self.reads_tokens and self.pooling == "cls"
        return encoder_states(self.encoder, inputs, cls_alone=cls_alone)[-1]

    def packs(self, autocast: torch.dtype | None) -> bool:
        """True if its encoder reads flat rows of tokens under products of type `autocast`."""
        return self.takes_flat_rows and packs(self.encoder, autocast)

    def one_ranking(self) -> contextlib.AbstractContextManager[None]:
        """A context in which documents are ranked for several queries by weights that stay as they
        are: what queries share may be kept."""
        return contextlib.nullcontext()

    def compile_layers(self, tokens: int) -> None:
        """Compiles the layers of flat rows on a GPU if so many tokens are worth the wait."""
        for part in self.children():
            part.compiles = tokens >= COMPILE_TOKENS  # type: ignore[assignment]

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B from the chunk vectors; `x_BPH` is 0 where `mask_BP` is false."""
        raise TypeError(f"{type(self).__name__} must define `aggregate` or `forward`")

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of a batch of documents: the definition, which faster paths must equal."""
        x_BPH, mask_BP = pad_chunks(self.encode(batch.inputs), batch.counts)
        return self.aggregate(x_BPH, mask_BP)

    def score(self, cls_H: Tensor) -> Tensor:
        """score_X of vectors x_XH: dropout, then a linear layer."""
        return self.head(self.dropout(cls_H)).squeeze(-1)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device

    def learning_rate_groups(self) -> dict[str, list[nn.Parameter]]:
        """{`backbone`, `head`, `aggregator`, `interaction`: parameters}; every trainable parameter
        is in exactly one group."""
        roles = {"encoder": "backbone", "interaction": "interaction"}
        roles |= dict.fromkeys(("head", "projection"), "head")
        groups: dict[str, list[nn.Parameter]] = {
            role: [] for role in ("backbone", "head", "aggregator", "interaction")
        }
        heads = {f"encoder.{name}" for name in head_names(self.encoder)}
        for name, parameter in self.trainable():
            role = "head" if name in heads else roles.get(name.partition(".")[0], "aggregator")
            groups[role].append(parameter)
        return groups

    def learned_state(self) -> dict[str, Tensor]:
        """{name: weight} of all that training may change: all weights, but with adapters none of
        the encoder's own."""
        state: dict[str, Tensor] = self.state_dict()
        if has_adapters(self.encoder):
            return {n: w for n, w in state.items() if ADAPTER in n or not n.startswith("encoder.")}
        return state

    def load_learned(self, state: Mapping[str, Tensor]) -> None:
        """Copies a `learned_state` into the model."""
        if state.keys() != self.learned_state().keys():
            raise ValueError("the weights are of another model")
        self.load_state_dict(dict(state), strict=False)

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """(name, parameter) of all parameters that training changes."""
        return ((name, p) for name, p in self.named_parameters() if p.requires_grad)


def draws_classifier(backbone: Backbone, asked: str) -> bool:
    """True if a model gets the classification head of its backbone's architecture, drawn."""
    return asked == "classifier" and not backbone.trained_head


def uses_checkpoint_head(kind: type[Ranker], backbone: Backbone, asked: str) -> bool:
    """True if a model starts with the trained head of a checkpoint: by default wherever it scores
    chunks. Raises `BadInput` where that head is asked for, or fits the model, and cannot be
    used."""
    fits = bool(backbone.trained_head) and kind.scores_chunks
    if asked == "new" or not (fits or asked == "checkpoint"):
        return False
    if not kind.scores_chunks:
        problem = f"model {kind.label} combines vectors of chunks, it does not score them"
    elif not backbone.trained_head:
        if (backbone.folder / RANKING_HEAD).exists():
            return False  # `build_model` loads it
        problem = f"it has none{unread_head(backbone)}"
    elif not (problem := head_problem(backbone)):
        check_head(backbone)
        return True
    has = f" ({backbone.trained_head})" if backbone.trained_head else ""
    raise BadInput(
        f"the trained head of backbone {backbone.name}{has} cannot be used: {problem}. With "
        "model.head=new a new head is drawn, which ranks at random until it is trained"
    )


def pad_chunks(x_CH: Tensor, counts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(x_BPH, mask_BP): chunk vectors grouped by document and padded; `counts` are the documents'
    chunks."""
    # One operation for all documents: the number of GPU kernels does not depend on theirs.
    real_BP = np.arange(max(counts)) < np.asarray(counts)[:, None]
    place_C = on(x_CH.device, torch.from_numpy(np.flatnonzero(real_BP)))
    x_NH = x_CH.new_zeros(real_BP.size, *x_CH.shape[1:]).index_copy(0, place_C, x_CH)
    mask_BP = on(x_CH.device, torch.from_numpy(real_BP))
    return x_NH.unflatten(0, real_BP.shape), mask_BP


def layer_states(encoder: nn.Module, inputs: EncoderInput) -> tuple[Tensor, ...]:
    """hidden_CLH of the embeddings and of every layer."""
    return encoder_states(encoder, inputs, layers=True)


def own_lengths(encoder: nn.Module, flat: FlatRows | None) -> dict[str, tuple[int, ...]]:
    """The rows' lengths for an encoder that would otherwise ask the device for them."""
    reads = flat is not None and getattr(encoder, "reads_lengths", False)
    return {"lengths": flat.lengths} if flat is not None and reads else {}


def encoder_states(
    encoder: nn.Module, inputs: EncoderInput, *, layers: bool = False, cls_alone: bool = False
) -> tuple[Tensor, ...]:
    """hidden_CLH of an encoder's last layer, or of the embeddings and all `layers`, from flat rows
    if the encoder reads them; with `cls_alone`, only [CLS] is needed."""
    if inputs.flat is not None and packs(encoder, products(inputs.device)):
        words, segments = inputs.words
        return flat_states(
            encoder, words, inputs.flat, segments=segments, layers=layers, cls_alone=cls_alone
        )
    ids_CL, segments_CL = inputs.input_ids_CL, inputs.token_type_ids_CL
    output = encoder(
        input_ids=ids_CL,
        attention_mask=inputs.encoder_mask,
        **({} if segments_CL is None else {"token_type_ids": segments_CL}),
        **own_lengths(encoder, inputs.flat),
        **({"output_hidden_states": True} if layers else {}),
    )
    if not layers:
        return (output.last_hidden_state,)
    # Some encoders normalise the last layer's output, and some pad rows to whole blocks.
    states = (*output.hidden_states[:-1], output.last_hidden_state)
    return tuple(hidden_CLH[:, : ids_CL.shape[1]] for hidden_CLH in states)
