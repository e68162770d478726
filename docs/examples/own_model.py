"""A model of one's own: the smooth maximum of the scores of a document's chunks."""

import torch
from torch import Tensor

from ranksweep import Ranker


class SmoothMaxP(Ranker):
    """log sum exp of the chunk scores: a maximum whose gradient reaches every chunk."""

    label = "SmoothMaxP"  # in tables
    paper = "none"
    family = "passage scores"
    rates = ("backbone", "head")  # it adds no parameters of its own

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B of B documents from the vectors of their P chunks; the mask tells real ones."""
        score_BP = self.score(x_BPH).masked_fill(~mask_BP, float("-inf"))
        return torch.logsumexp(score_BP, dim=1)
