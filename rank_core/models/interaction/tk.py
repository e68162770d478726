"""TK: word vectors in context, compared by kernels (Hofstätter, Zlabinger & Hanbury 2020)."""

from math import sqrt

import torch
from torch import Tensor, nn

from rank_core.encoders.backbone_types import Backbone
from rank_core.models.interaction.contextualise import TEXT_START, Contextualiser
from rank_core.models.interaction.kernels import GaussianKernels
from rank_core.models.interaction.similarity import Terms, at_least_fp32, cosines
from rank_core.models.interaction.word_vectors import WordVectorRanker
from rank_core.settings.config import Model

MU = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
SIGMA = 0.1


class KernelScorer(WordVectorRanker):
    """Contextualiser, fixed kernels and a linear layer over them.

    The root of the mean square of positions is 0.7, that of what leaves the transformer is 1.
    BERT's word vectors have 0.05, where GloVe's have 0.4: they would drown in either, so they are
    multiplied by what made the table as large as positions when it was loaded.
    """

    scale: Tensor

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        table: Tensor = self.encoder.weight  # type: ignore[assignment]
        size = table.detach().square().mean().sqrt()
        self.register_buffer("scale", sqrt(0.5) / size)
        self.context = Contextualiser(self.size, settings.dropout)
        self.kernels = GaussianKernels(MU, [SIGMA] * len(MU), trainable=False)
        self.head = nn.Linear(len(MU), 1, bias=False)
        nn.init.uniform_(self.head.weight, -0.014, 0.014)

    def in_size(self, ids_BT: Tensor) -> Tensor:
        """x_BTH: word vectors, as large as positions."""
        x_BTH: Tensor = self.encoder(ids_BT) * self.scale
        return x_BTH


class TK(KernelScorer):
    """score = w . sum over query tokens of log max(1e-10, soft count of each kernel).

    The paper's second sum, of counts divided by the document's length, is left out as in the
    authors' later code. Dropout, which they do without, acts inside the transformer.
    """

    label = "TK"
    paper = "Hofstätter et al. 2020a"

    def match(self, query_ids_BQ: Tensor, text_ids_BD: Tensor, terms: Terms) -> Tensor:
        """Kernel-pools the similarities of contextual vectors."""
        query_BQH = self.context(self.in_size(query_ids_BQ), terms.query_mask_BQ, 0)
        text_BDH = self.context(self.in_size(text_ids_BD), terms.text_mask_BD, TEXT_START)
        with torch.autocast(query_BQH.device.type, enabled=False):
            count_BQK = self.kernels(cosines(query_BQH, text_BDH), terms.text_mask_BD)
            log_BQK = torch.log(at_least_fp32(count_BQK).clamp_min(1e-10))
            sum_BK = log_BQK.masked_fill(~terms.query_mask_BQ[:, :, None], 0.0).sum(1)
            score_B: Tensor = self.head(sum_BK).squeeze(1)
            return score_B
