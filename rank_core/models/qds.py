"""QDS-Transformer: sparse attention along the structure of ranking (Jiang et al. 2020).

Every token sees 64 tokens to each side; some tokens see all and are seen by all. A token is put
before every sentence to stand for it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rank_core.chunking.batches import NUM_SPECIAL, Chunk, EncoderInput, PairEncoder
from rank_core.chunking.cogltx import NO_MARK, mark_costs
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_tokenizer
from rank_core.encoders.cls_only import SAME_LAYERS
from rank_core.errors import BadInput, unknown
from rank_core.models.poolings import first
from rank_core.models.ranker import Ranker
from rank_core.settings.config import Model, TrialConfig

REACH = 64  # tokens that a token sees to each side
CLAUSE_COST = 2  # of a cut after a comma, which ends no sentence


@dataclass(frozen=True)
class Pattern:
    """The global tokens, which attend to all and are attended to by all."""

    query: bool = False  # [CLS], the query's tokens and the [SEP] after them; else [CLS] alone
    sentences: bool = False  # the token before every sentence; else that before the first one
    none: bool = False  # not even those


PATTERNS = {
    "sparse": Pattern(none=True),
    "longformer-qa": Pattern(),
    "qds": Pattern(query=True, sentences=True),
    "query-only": Pattern(query=True),
    "sentence-only": Pattern(sentences=True),
}
"""The attention patterns that the paper compares, by `model.selector`."""


@dataclass(frozen=True)
class SentenceReader(PairEncoder):
    """A document in one piece with the token [CLS] before every sentence."""

    cost_V: NDArray[np.int8]  # what ends a sentence

    def chunks(self, query: NDArray[np.int32], doc_id: str) -> list[Chunk]:
        """One chunk, cut where the encoder's positions end."""
        document = self.document(doc_id)
        starts = sentence_starts(document, self.cost_V)
        text = np.insert(document, starts, self.backbone.cls_id)
        limit = self.backbone.max_input_tokens - len(query) - NUM_SPECIAL
        return [Chunk(query, text[:limit])]


def sentence_starts(tokens: NDArray[np.int32], cost_V: NDArray[np.int8]) -> NDArray[np.int64]:
    """Starts of sentences: the first token, and those after a run of end marks."""
    cost_T = cost_V[tokens]
    ends_T = (cost_T != NO_MARK) & (cost_T < CLAUSE_COST)
    later = np.flatnonzero(ends_T[:-1] & ~ends_T[1:]) + 1
    return np.concatenate([np.zeros(1, dtype=np.int64), later])


class QdsTransformer(Ranker):
    """A score from [CLS] of an encoder whose attention is sparse: pooled by a tanh layer, then a
    second one, then linear. Both start at random; in the published code the first is the encoder's
    own pooler.

    Over BERT and its kin the pattern is a mask, so positions limit what is read; a Longformer has
    the sparse arithmetic of its own.
    """

    label = "QDS-Transformer"
    paper = "Jiang et al. 2020"
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
            _narrow(encoder)
        elif config.model_type not in SAME_LAYERS:
            raise BadInput(
                f"model {settings.name} needs a backbone that takes an attention mask per pair of "
                f"tokens ({', '.join(SAME_LAYERS)}) or a longformer, got {config.model_type}"
            )
        hidden = self.head.in_features
        self.pooler, self.mlp = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        for layer in (self.pooler, self.mlp):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """Documents in one piece, their sentences marked."""
        costs = mark_costs(load_tokenizer(backbone.folder))
        return SentenceReader(tokens, config.chunking, cls.first_chunk_only, backbone, costs)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Refuses unknown patterns."""
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
        hidden_CLH: Tensor = self.encoder(inputs.input_ids_CL, **extra).last_hidden_state
        return hidden_CLH

    def global_tokens(self, inputs: EncoderInput) -> Tensor:
        """mask_CL of the tokens that see all and are seen by all."""
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
        """mask_CLL: whether the token of a row of the matrix sees that of a column. Padding sees
        itself, as a softmax over nothing is no number, and is seen by nothing else."""
        place_L = torch.arange(inputs.input_ids_CL.shape[1], device=inputs.input_ids_CL.device)
        distance_LL = (place_L[:, None] - place_L).abs()
        global_CL = self.global_tokens(inputs)
        seen_CLL = (distance_LL <= REACH) | global_CL[:, :, None] | global_CL[:, None]
        return (seen_CLL & (inputs.attention_mask_CL == 1)[:, None]) | (distance_LL == 0)

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """The score of the only chunk."""
        x_BH = torch.tanh(self.pooler(first(x_BPH, mask_BP)))
        return self.score(torch.tanh(self.mlp(self.dropout(x_BH))))


def pattern_of(settings: Model) -> Pattern:
    """The pattern that the settings name, or the paper's own."""
    name = settings.selector or "qds"
    if name not in PATTERNS:
        raise unknown("model.selector", name, PATTERNS)
    return PATTERNS[name]


def _narrow(longformer: Any) -> None:
    """Sets the reach of this model in every layer; weights do not depend on it."""
    config = longformer.config
    config.attention_window = [2 * REACH] * config.num_hidden_layers
    for layer in longformer.encoder.layer:
        layer.attention.self.one_sided_attn_window_size = REACH
