"""Neural Model 1: the likelihood that the document's tokens translate into the query's (IBM Model 1
over contextual vectors, after Boytsov & Kolter 2021).

A reconstruction, because the published text does not define the parametrisation. The general form
is S = sum_q log(epsilon + mean_d T(q | d)). Ours are T, the sigmoid of a small network over [e_q;
e_d; e_q * e_d], its sizes and epsilon. There is no interpolation with a collection model, and [CLS]
is not used; chunks are disjoint as in CEDR.
"""

import torch
from torch import Tensor, nn

from rank_core.chunking.batches import ChunkBatch
from rank_core.encoders.backbone_types import Backbone
from rank_core.models.interaction.similarities import Terms, take, terms_of
from rank_core.models.poolings import at_least_fp32
from rank_core.models.ranker import Ranker
from rank_core.models.readers import EqualChunks
from rank_core.settings.config import Model

EPSILON = 1e-4  # likelihood of a query token without any translation
NUM_HIDDEN = 32


class NeuralModel1(Ranker):
    """score = sum over query tokens of log(epsilon + mean over document tokens of T)."""

    label = "Neural Model 1"
    paper = "Boytsov & Kolter 2021 (reconstruction)"
    family = "CEDR"
    pair_encoder = EqualChunks
    overlapping_chunks = False
    by_chunks = False
    reads_tokens = True
    one_chunk_is_firstp = False

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        size = self.head.in_features
        # One layer over the concatenated vectors, split into parts that are computed once per query
        # token, per document token and per pair.
        self.of_query = nn.Linear(size, NUM_HIDDEN)
        self.of_text = nn.Linear(size, NUM_HIDDEN, bias=False)
        self.of_both = nn.Linear(size, NUM_HIDDEN, bias=False)
        self.head = nn.Linear(NUM_HIDDEN, 1)

    def forward(self, batch: ChunkBatch) -> Tensor:
        """score_B from the last layer's vectors of query and document tokens."""
        terms = terms_of(batch)
        hidden_CLH = at_least_fp32(self.hidden(batch.inputs))
        with torch.autocast(hidden_CLH.device.type, enabled=False):
            query_BQH, text_BDH = take(hidden_CLH, terms.query_BQ), take(hidden_CLH, terms.text_BD)
            return log_likelihood(self.translation(query_BQH, text_BDH), terms)

    def translation(self, query_BQH: Tensor, text_BDH: Tensor) -> Tensor:
        """T_BQD in (0, 1)."""
        # sum_h w_kh q_h d_h, without a tensor over all pairs and dimensions.
        weighted_BQKH = query_BQH[:, :, None] * self.of_both.weight
        both_BQKD = weighted_BQKH @ text_BDH.transpose(1, 2)[:, None]
        each_BQK1 = self.of_query(query_BQH)[:, :, :, None]
        each_B1KD = self.of_text(text_BDH).transpose(1, 2)[:, None]
        hidden_BQDK = torch.relu(both_BQKD + each_BQK1 + each_B1KD).transpose(2, 3)
        return torch.sigmoid(self.score(hidden_BQDK))


def log_likelihood(translation_BQD: Tensor, terms: Terms) -> Tensor:
    """score_B from translation probabilities. Padding is excluded; an empty document translates
    into nothing."""
    length_B = terms.text_mask_BD.sum(1).clamp_min(1)
    sum_BQ = translation_BQD.masked_fill(~terms.text_mask_BD[:, None], 0.0).sum(2)
    log_BQ = torch.log(EPSILON + sum_BQ / length_B[:, None])
    return log_BQ.masked_fill(~terms.query_mask_BQ, 0.0).sum(1)
