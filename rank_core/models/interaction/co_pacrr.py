"""Co-PACRR: n-gram matches of word vectors, their cascade over the document, and the context of
each match (Hui, Yates, Berberich & de Melo 2018)."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from rank_core.encoders.backbone_types import Backbone
from rank_core.models.interaction.similarities import (
    MAX_QUERY,
    NgramFilters,
    Terms,
    at_fixed_length,
    check_query_length,
    cosines,
    pair_mask,
    strongest,
)
from rank_core.models.interaction.word_vectors import WordVectorRanker
from rank_core.settings.config import Model, TrialConfig

NGRAMS = (2, 3)  # in addition to single tokens, whose similarity is used directly
NUM_FILTERS = 32
NUM_MATCHES = 2
CASCADE = (0.25, 0.5, 0.75, 1.0)  # prefixes of the document, each with its own matches
CONTEXT = 4  # tokens on either side of a match that are compared with the whole query


class CoPacrr(WordVectorRanker):
    """A network over each query token's strongest matches, the similarity of their contexts to the
    query, and the token's weight.

    Three deviations: the cascade uses fractions of each document's length, where the published code
    uses fixed positions; token weights are a softmax over a learned function of the word vector,
    there over idf values; query tokens are shuffled in training as there, but only with dropout, so
    that `model.dropout=0` makes steps repeatable.
    """

    label = "Co-PACRR"
    paper = "Hui et al. 2018"

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.filters = nn.ModuleList(NgramFilters(1, NUM_FILTERS, n) for n in NGRAMS)
        self.token_weight = nn.Linear(self.size, 1, bias=False)
        num_matches = (1 + len(NGRAMS)) * len(CASCADE) * NUM_MATCHES
        self.hidden_layers = nn.Sequential(
            nn.Linear(MAX_QUERY * (2 * num_matches + 1), 100),
            nn.ReLU(),
            nn.Linear(100, 10),
            nn.ReLU(),
        )
        self.head = nn.Linear(10, 1, bias=False)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects queries longer than the network's input."""
        super().check(config, backbone)
        check_query_length(config)

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """score_B of the network over the features of all query tokens."""
        query_BQH, text_BDH = self.encoder(query_ids_BQ), self.encoder(text_ids_BD)
        with torch.autocast(query_BQH.device.type, enabled=False):
            x_BQF = at_fixed_length(self.features(query_BQH, text_BDH, terms))
            if self.training and self.dropout.p > 0:
                x_BQF = x_BQF[:, torch.randperm(MAX_QUERY, device=x_BQF.device)]
            return self.score(self.hidden_layers(x_BQF.flatten(1)))

    def features(self, query_BQH: Tensor, text_BDH: Tensor, terms: Terms) -> Tensor:
        """x_BQF: per n-gram size and prefix, the strengths of the matches and the similarities of
        their contexts; then the token's weight."""
        mask_BQD = pair_mask(terms)
        cos_BQD = cosines(query_BQH, text_BDH).masked_fill(~mask_BQD, 0.0)
        around_BD = surroundings(query_BQH, text_BDH, terms)
        around_BQD = around_BD[:, None].expand_as(cos_BQD)
        length_B1 = terms.text_mask_BD.sum(1, keepdim=True)
        place_D = torch.arange(cos_BQD.shape[2], device=cos_BQD.device)
        parts = []
        for strength_BQD in (cos_BQD, *(filters(cos_BQD[:, None]) for filters in self.filters)):
            for share in CASCADE:
                seen_BD = place_D < (length_B1 * share).ceil()
                matches = strongest(strength_BQD, mask_BQD & seen_BD[:, None], NUM_MATCHES)
                near_BQk = around_BQD.gather(2, matches.place_BQk).masked_fill(
                    ~matches.real_BQk, 0.0
                )
                parts += [matches.strength_BQk, near_BQk]
        return torch.cat([*parts, self.weights(query_BQH, terms)], dim=2)

    def weights(self, query_BQH: Tensor, terms: Terms) -> Tensor:
        """weight_BQ1 of the query tokens; they sum to 1."""
        logit_BQ1 = self.token_weight(query_BQH)
        # Finite, so that a query without tokens gets no NaN; its weights are unused.
        absent_BQ1 = ~terms.query_mask_BQ[:, :, None]
        weight_BQ1 = torch.softmax(logit_BQ1.masked_fill(absent_BQ1, -1e9), dim=1)
        return weight_BQ1.masked_fill(absent_BQ1, 0.0)


def surroundings(query_BQH: Tensor, text_BDH: Tensor, terms: Terms) -> Tensor:
    """cos_BD of the mean query vector and the mean vector of the tokens around each position."""
    text_mask_BD1, query_mask_BQ1 = terms.text_mask_BD[:, :, None], terms.query_mask_BQ[:, :, None]
    sum_BDH = around(text_BDH.masked_fill(~text_mask_BD1, 0.0))
    count_BD1 = around(text_mask_BD1.to(text_BDH.dtype)).clamp_min(1)
    # The sum instead of the mean: cosines do not depend on the length of a vector.
    query_B1H = query_BQH.masked_fill(~query_mask_BQ1, 0.0).sum(1, keepdim=True)
    return cosines(query_B1H, sum_BDH / count_BD1).squeeze(1)


def around(x_BDH: Tensor) -> Tensor:
    """At each position, the sum over the positions at most CONTEXT away."""
    total_BDH = pad(x_BDH, (0, 0, CONTEXT, CONTEXT)).unfold(1, 2 * CONTEXT + 1, 1)
    return total_BDH.sum(3)
