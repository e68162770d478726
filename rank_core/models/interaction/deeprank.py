"""DeepRank: a document is read only around exact matches of query terms (Pang et al. 2017)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from rank_core.encoders.backbone_types import Backbone
from rank_core.models.interaction.similarities import Terms, cosines
from rank_core.models.interaction.word_vectors import WordVectorRanker
from rank_core.settings.config import Model

SIDE = 15  # tokens read on either side of a match
MAX_MATCHES = 20  # per query token, the first ones
NUM_MAPS = 4
NUM_STATES = 3


class Places(NamedTuple):
    """The N contexts read in a batch."""

    document_N: Tensor
    token_N: Tensor  # of the query
    match_N: Tensor  # 0 for the token's first match
    center_N: Tensor  # in the document


class DeepRank(WordVectorRanker):
    """score = sum over query tokens of gate * (v . state + b).

    A context is an image of query tokens x 31 positions with three channels: a learned number per
    query and per document vector, and their cosine. A 3 x 3 convolution and the maximum of each map
    give its relevance, which together with 1 / (1 + position) is a step of a GRU over the token's
    matches, in document order. Gates are a softmax over a learned number per query vector. Terms
    are word pieces here; a token without matches has state 0.
    """

    label = "DeepRank"
    paper = "Pang et al. 2017"

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.reduce_query = nn.Linear(self.size, 1, bias=False)
        self.reduce_text = nn.Linear(self.size, 1, bias=False)
        self.maps = nn.Conv2d(3, NUM_MAPS, 3, padding=1)
        self.reader_of_matches = nn.GRU(NUM_MAPS + 1, NUM_STATES, batch_first=True)
        self.gate = nn.Linear(self.size, 1, bias=False)
        self.head = nn.Linear(NUM_STATES, 1)

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """score_B: reads the contexts and sums over the query tokens."""
        query_BQH, text_BDH = self.encoder(query_ids_BQ), self.encoder(text_ids_BD)
        same_BQD = query_ids_BQ[:, :, None] == text_ids_BD[:, None, :]
        same_BQD &= terms.query_mask_BQ[:, :, None] & terms.text_mask_BD[:, None]
        with torch.autocast(query_BQH.device.type, enabled=False):
            places = first_matches(same_BQD)
            relevance_NR = self.relevance(query_BQH, text_BDH, terms, places)
            state_BQS = self.states(relevance_NR, places, same_BQD)
            gate_BQ = self.gates(query_BQH, terms)
            return (gate_BQ * self.score(state_BQS)).sum(1)

    def relevance(
        self, query_BQH: Tensor, text_BDH: Tensor, terms: Terms, places: Places
    ) -> Tensor:
        """relevance_NR: the maximum of each map over a context, and the context's position."""
        length = text_BDH.shape[1]
        offset_W = torch.arange(-SIDE, SIDE + 1, device=places.center_N.device)
        place_NW = places.center_N[:, None] + offset_W
        inside_NW = (place_NW >= 0) & (place_NW < length)
        place_NW = place_NW.clamp(0, length - 1)
        document_N1 = places.document_N[:, None]
        inside_NW &= terms.text_mask_BD[document_N1, place_NW]
        real_NQW = terms.query_mask_BQ[places.document_N][:, :, None] & inside_NW[:, None]

        # Computed per document and then gathered, because contexts overlap and vectors are long.
        cos_BDQ = cosines(query_BQH, text_BDH).transpose(1, 2)
        cos_NQW = cos_BDQ[document_N1, place_NW].transpose(1, 2)
        text_NQW = self.reduce_text(text_BDH)[document_N1, place_NW].transpose(1, 2)
        query_NQW = self.reduce_query(query_BQH)[places.document_N]
        channels = (query_NQW.expand_as(cos_NQW), text_NQW.expand_as(cos_NQW), cos_NQW)
        x_N3QW = torch.stack(channels, dim=1).masked_fill(~real_NQW[:, None], 0.0)
        map_NMQW = torch.relu(self.maps(x_N3QW)).masked_fill(~real_NQW[:, None], 0.0)
        where_N1 = 1 / (1 + places.center_N[:, None].to(map_NMQW.dtype))
        return torch.cat([map_NMQW.amax((2, 3)), where_N1], dim=1)

    def states(self, relevance_NR: Tensor, places: Places, same_BQD: Tensor) -> Tensor:
        """state_BQS of the GRU after each query token's last match; 0 without matches."""
        num_docs, num_query, _ = same_BQD.shape
        steps_BQMR = relevance_NR.new_zeros(
            num_docs, num_query, MAX_MATCHES, relevance_NR.shape[1]
        ).index_put((places.document_N, places.token_N, places.match_N), relevance_NR)
        after_TMS, _ = self.reader_of_matches(steps_BQMR.flatten(0, 1))
        # Steps after a token's last match do not affect the state before them.
        count_T = same_BQD.sum(2).clamp_max(MAX_MATCHES).flatten()
        row_T = torch.arange(len(count_T), device=count_T.device)
        state_TS = after_TMS[row_T, (count_T - 1).clamp_min(0)]
        return state_TS.masked_fill(count_T[:, None] == 0, 0.0).view(num_docs, num_query, -1)

    def gates(self, query_BQH: Tensor, terms: Terms) -> Tensor:
        """gate_BQ; they sum to 1 over a query's tokens."""
        logit_BQ = self.gate(query_BQH).squeeze(2)
        # Finite, so that a query without tokens gets no NaN; its gates are unused.
        gate_BQ = torch.softmax(logit_BQ.masked_fill(~terms.query_mask_BQ, -1e9), dim=1)
        return gate_BQ.masked_fill(~terms.query_mask_BQ, 0.0)


def first_matches(same_BQD: Tensor) -> Places:
    """The first MAX_MATCHES positions with the same word piece, for each query token."""
    order_BQD = same_BQD.cumsum(2) - 1
    document_N, token_N, center_N = (same_BQD & (order_BQD < MAX_MATCHES)).nonzero(as_tuple=True)
    return Places(document_N, token_N, order_BQD[document_N, token_N, center_N], center_N)
