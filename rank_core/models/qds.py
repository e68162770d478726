"""QDS-Transformer: sparse attention that follows query and sentences (Jiang et al. 2020).

Every token attends to 64 tokens on either side; global tokens attend to all tokens and are attended
to by all. A token [CLS] is inserted before every sentence.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.chunking.chunks import NO_MARK, mark_costs
from rank_core.chunking.encoder_input import NUM_SPECIAL, EncoderInput
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_tokenizer
from rank_core.encoders.cls_only import SAME_LAYERS
from rank_core.errors import BadInput, unknown
from rank_core.models.poolings import first
from rank_core.models.ranker import Ranker
from rank_core.settings.config import Model, TrialConfig

REACH = 64  # tokens on either side that a token attends to
CLAUSE_COST = 2  # cost of a cut after a comma, which does not end a sentence


@dataclass(frozen=True)
class Pattern:
    """The global tokens."""

    query: bool = False  # [CLS], query and first [SEP]; else [CLS] alone
    sentences: bool = False  # the [CLS] before every sentence; else before the first one
    none: bool = False  # no global tokens at all


PATTERNS = {
    "sparse": Pattern(none=True),
    "longformer-qa": Pattern(),
    "qds": Pattern(query=True, sentences=True),
    "query-only": Pattern(query=True),
    "sentence-only": Pattern(sentences=True),
}
"""The attention patterns compared in the paper, by `model.selector`."""


@dataclass(frozen=True)
class SentenceReader(PairEncoder):
    """A document as one chunk, with [CLS] inserted before every sentence."""

    cost_V: NDArray[np.int8]  # cost of a cut after each token, see `mark_costs`

    def chunks(self, query: NDArray[np.int32], doc_id: str) -> list[Chunk]:
        """One chunk, truncated to the encoder's positions."""
        document = self.document(doc_id)
        cost_T = self.cost_V[document]
        ends_T = (cost_T != NO_MARK) & (cost_T < CLAUSE_COST)
        # The first token, and tokens after a run of end marks.
        starts = [0, *(np.flatnonzero(ends_T[:-1] & ~ends_T[1:]) + 1)]
        text = np.insert(document, starts, self.backbone.cls_id)
        limit = self.backbone.max_input_tokens - len(query) - NUM_SPECIAL
        return [Chunk(query, text[:limit])]


class QdsTransformer(Ranker):
    """score = linear(tanh(W2 tanh(W1 [CLS]))) of an encoder with sparse attention.

    Both inner layers start at random; in the published code the first is the encoder's pooler. For
    BERT-like encoders the pattern is a mask, and positions limit the length; a Longformer uses its
    own sparse attention.
    """

    label = "QDS-Transformer"
    paper = "Jiang et al. 2020"
    citation = (
        "Long Document Ranking with Query-Directed Sparse Transformer. Findings of EMNLP 2020, "
        "arXiv:2010.12683"
    )
    family = "long context"
    first_chunk_only = True
    one_chunk_is_firstp = False
    takes_flat_rows = False
    options = ("selector",)

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.pattern = pattern_of(settings)
        self.cls_id = backbone.cls_id
        config: Any = encoder.config
        self.is_longformer = config.model_type == "longformer"
        if self.is_longformer:
            # Of every layer; weights do not depend on it.
            # Longformer's window counts both sides.
            config.attention_window = [2 * REACH] * config.num_hidden_layers
            layers: Any = encoder.encoder.layer  # type: ignore[union-attr]
            for layer in layers:
                layer.attention.self.one_sided_attn_window_size = REACH
        elif config.model_type not in SAME_LAYERS:
            raise BadInput(
                f"model {settings.name} needs a backbone that accepts a mask per pair of tokens "
                f"({', '.join(SAME_LAYERS)}) or a longformer, got {config.model_type}"
            )
        hidden = self.head.in_features
        self.pooler, self.mlp = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        for layer in (self.pooler, self.mlp):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """Reads documents as one chunk with marked sentences."""
        costs = mark_costs(load_tokenizer(backbone.folder))
        return SentenceReader(tokens, config.chunking, cls.first_chunk_only, backbone, costs)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects unknown patterns."""
        pattern_of(config.model)

    def hidden(self, inputs: EncoderInput) -> Tensor:
        """hidden_CLH of the encoder under the pattern."""
        extra: dict[str, Tensor] = {}
        if inputs.token_type_ids_CL is not None:
            extra["token_type_ids"] = inputs.token_type_ids_CL
        if self.is_longformer:
            extra["attention_mask"] = inputs.attention_mask_CL
            extra["global_attention_mask"] = self.global_tokens(inputs).long()
        else:
            extra["attention_mask"] = self.visible(inputs)[:, None]
        return self.encoder(inputs.input_ids_CL, **extra).last_hidden_state

    def global_tokens(self, inputs: EncoderInput) -> Tensor:
        """mask_CL of the global tokens."""
        ids_CL = inputs.input_ids_CL
        place_L = torch.arange(ids_CL.shape[1], device=ids_CL.device)
        if self.pattern.none:
            return torch.zeros_like(ids_CL, dtype=torch.bool)
        text_C1 = inputs.query_length_C[:, None] + 2
        before = place_L < (text_C1 if self.pattern.query else 1)
        anchors = (ids_CL == self.cls_id) & (place_L >= text_C1)
        if not self.pattern.sentences:
            anchors = anchors & (place_L == text_C1)
        return (before | anchors) & (inputs.attention_mask_CL == 1)

    def visible(self, inputs: EncoderInput) -> Tensor:
        """mask_CLL: whether the token of a matrix row attends to that of a column. Padding attends
        only to itself, because a softmax over nothing is NaN, and no other token attends to it."""
        place_L = torch.arange(inputs.width, device=inputs.device)
        distance_LL = (place_L[:, None] - place_L).abs()
        global_CL = self.global_tokens(inputs)
        # A global token sees all and is seen by all: its row and its column.
        seen_CLL = (distance_LL <= REACH) | global_CL[:, :, None] | global_CL[:, None]
        return (seen_CLL & (inputs.attention_mask_CL == 1)[:, None]) | (distance_LL == 0)

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B of the only chunk."""
        x_BH = torch.tanh(self.pooler(first(x_BPH, mask_BP)))
        return self.score(torch.tanh(self.mlp(self.dropout(x_BH))))


def pattern_of(settings: Model) -> Pattern:
    """The pattern of the settings, by default the paper's; raises `BadInput` for unknown ones."""
    name = settings.selector or "qds"
    if name not in PATTERNS:
        raise unknown("model.selector", name, PATTERNS)
    return PATTERNS[name]
