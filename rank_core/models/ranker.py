"""The frame of every ranker: one encoder over chunks, then an aggregation over a document's chunks.

Shapes: B documents, P chunks of the longest document, C all real chunks, L tokens, H hidden size.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rank_core.chunking.batches import ChunkBatch, EncoderInput, PairEncoder
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.packed import flat_states, packs, products
from rank_core.models.poolings import row_vectors
from rank_core.models.readers import padded_in_place, pads_in_place
from rank_core.settings.config import Model, TrialConfig


class Ranker(nn.Module):
    """Scores documents from the [CLS] vectors of their chunks, as a subclass aggregates them.

    A model whose score is no function of one vector per chunk overrides `forward` and sets
    `by_chunks = False`; it is then given whole documents.
    """

    # Every registered subclass has these three; `model_class` refuses one without.
    label: ClassVar[str]  # its name in tables
    paper: ClassVar[str]  # where it comes from
    family: ClassVar[str]  # what it is listed with
    pair_encoder: ClassVar[type[PairEncoder]] = PairEncoder  # cuts its documents, lays them out
    overlapping_chunks: ClassVar[bool] = True  # False: it cuts disjoint ones, whatever the stride
    by_chunks: ClassVar[bool] = True  # the score is aggregate(encode(chunks))
    reads_tokens: ClassVar[bool] = False  # it needs the last layer's vectors beside [CLS]
    first_chunk_only: ClassVar[bool] = False
    limited_window: ClassVar[bool] = True  # a chunk must fit the positions of the backbone
    one_chunk_is_firstp: ClassVar[bool] = True  # on one-chunk documents it is FirstP's function
    takes_flat_rows: ClassVar[bool] = True  # it has an encoder that needs no mask of the model
    max_chunks: ClassVar[int | None] = None  # of one document; None: no limit
    # Only so many chunks of a document have a gradient, those of the highest scores; 0: all.
    # An instance may have its own number.
    chunks_that_learn: int = 0
    extra_loss: Tensor | None = None  # set by a forward pass in training, spent by the loop
    options: ClassVar[tuple[str, ...]] = ()  # the optional settings of `Model` that it uses

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = backbone.row_pooling(settings.pool)
        self.dropout = nn.Dropout(settings.dropout)
        self.head = nn.Linear(encoder.config.hidden_size, 1)  # type: ignore[union-attr,arg-type]
        nn.init.xavier_uniform_(self.head.weight)

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """The reader that cuts the model's documents and lays them out."""
        kind = cls.pair_encoder
        if pads_in_place(config.model):
            kind = padded_in_place(kind)
        return kind(tokens, config.chunking, cls.first_chunk_only, backbone)

    @classmethod
    def reads_windows(cls) -> bool:
        """True where its rows are the query beside the sliding windows of `chunking`."""
        own_reader = cls.reader.__func__ is not Ranker.reader.__func__  # type: ignore[attr-defined]
        return cls.pair_encoder is PairEncoder and not own_reader

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Refuses settings that this model cannot follow, beyond what holds for all models."""

    def encode(self, inputs: EncoderInput) -> Tensor:
        """x_CH: a vector of each chunk, pooled from the last layer as suits the encoder."""
        return row_vectors(self.hidden(inputs), inputs.attention_mask_CL, self.pooling)

    def hidden(self, inputs: EncoderInput) -> Tensor:
        """hidden_CLH: the encoder's last layer; [CLS] alone (L = 1) unless `reads_tokens`."""
        cls_alone = not self.reads_tokens and self.pooling == "cls"
        return encoder_states(self.encoder, inputs, cls_alone=cls_alone)[-1]

    def packs(self, autocast: torch.dtype | None) -> bool:
        """True where its encoder reads flat rows of tokens under products of this type."""
        return self.takes_flat_rows and packs(self.encoder, autocast)

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B from the chunk vectors; rows of `x_BPH` where `mask_BP` is false are zeros."""
        raise TypeError(f"{type(self).__name__} does not say how it aggregates")

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B of a batch of documents: the definition that every faster path must equal."""
        x_BPH, mask_BP = pad_chunks(self.encode(batch.inputs), batch.counts)
        return self.aggregate(x_BPH, mask_BP)

    def score(self, cls_H: Tensor) -> Tensor:
        """The head: dropout, then a linear layer to one score. The last axis disappears."""
        score: Tensor = self.head(self.dropout(cls_H)).squeeze(-1)
        return score

    @property
    def device(self) -> torch.device:
        """The device of its parameters."""
        return next(self.parameters()).device

    def learning_rate_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every trainable parameter under `backbone`, `head`, `aggregator` or, where a second
        encoder reads query and chunk, `interaction`, exactly once."""
        roles = {"encoder": "backbone", "head": "head", "interaction": "interaction"}
        groups: dict[str, list[nn.Parameter]] = {
            role: [] for role in ("backbone", "head", "aggregator", "interaction")
        }
        for name, parameter in self.trainable():
            groups[roles.get(name.partition(".")[0], "aggregator")].append(parameter)
        return groups

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that training changes."""
        return ((name, p) for name, p in self.named_parameters() if p.requires_grad)


def pad_chunks(x_CH: Tensor, counts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(x_BPH, mask_BP): chunk vectors regrouped by document, of which each has its count."""
    # All at once: a GPU starts as many launches for a thousand documents as for one.
    real_BP = np.arange(max(counts)) < np.asarray(counts)[:, None]
    place_C = torch.from_numpy(np.flatnonzero(real_BP)).to(x_CH.device, non_blocking=True)
    x_NH = x_CH.new_zeros(real_BP.size, *x_CH.shape[1:]).index_copy(0, place_C, x_CH)
    mask_BP = torch.from_numpy(real_BP).to(x_CH.device, non_blocking=True)
    return x_NH.unflatten(0, real_BP.shape), mask_BP


def layer_states(encoder: nn.Module, inputs: EncoderInput) -> tuple[Tensor, ...]:
    """hidden_CLH of the embeddings and of every layer of an encoder."""
    return encoder_states(encoder, inputs, layers=True)


def encoder_states(
    encoder: nn.Module, inputs: EncoderInput, *, layers: bool = False, cls_alone: bool = False
) -> tuple[Tensor, ...]:
    """hidden_CLH of an encoder's last layer, or of embeddings and all `layers`, from flat rows of
    tokens where it reads such; `cls_alone` if no other token is read."""
    ids_CL, segments_CL = inputs.input_ids_CL, inputs.token_type_ids_CL
    if inputs.flat is not None and packs(encoder, products(ids_CL.device)):
        return flat_states(
            encoder,
            ids_CL,
            inputs.flat,
            segments_CL=segments_CL,
            layers=layers,
            cls_alone=cls_alone,
        )
    output = encoder(
        input_ids=ids_CL,
        attention_mask=inputs.encoder_mask,
        **({} if segments_CL is None else {"token_type_ids": segments_CL}),
        **({"output_hidden_states": True} if layers else {}),
    )
    if not layers:
        return (output.last_hidden_state,)
    # Some encoders normalise what leaves the last layer, and some pad rows to whole blocks.
    states = (*output.hidden_states[:-1], output.last_hidden_state)
    return tuple(hidden_CLH[:, : ids_CL.shape[1]] for hidden_CLH in states)
