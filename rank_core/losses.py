"""Training losses over groups: score_NG has a row per group, the relevant document's score first.

Every loss is a sum over groups, not a mean: the gradients of micro-batches and of workers then add
up to the gradient of the batch.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rank_core.config import Training
from rank_core.errors import unknown

Loss = Callable[[Tensor, Training], Tensor]


def pairwise_margin(score_NG: Tensor, training: Training) -> Tensor:
    """sum over groups and negatives of max(0, margin - positive + negative)."""
    return torch.clamp(training.margin - score_NG[:, :1] + score_NG[:, 1:], min=0).sum()


LOSSES: dict[str, Loss] = {"pairwise-margin": pairwise_margin}


def loss_of(training: Training) -> Loss:
    """The entry of `LOSSES` that the settings name."""
    if training.loss not in LOSSES:
        raise unknown("training.loss", training.loss, LOSSES)
    return LOSSES[training.loss]
