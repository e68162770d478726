"""A model that somebody adds: one file like this and one line in `MODELS`, which a plugin of pytest
stands for here."""

import torch
from torch import Tensor

from rank_core.models import MODELS
from rank_core.models.ranker import Ranker


class SmoothMaxP(Ranker):
    """log sum exp of the chunk scores."""

    label = "SmoothMaxP"
    paper = "nobody"
    family = "passage scores"

    def aggregate(self, x_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """A maximum whose gradient reaches every chunk."""
        score_BP = self.score(x_BPH).masked_fill(~mask_BP, float("-inf"))
        return torch.logsumexp(score_BP, dim=1)


MODELS["toy-smooth-maxp"] = f"{__name__}:SmoothMaxP"
