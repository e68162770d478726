"""PARADE: aggregate the chunks' [CLS] vectors, then score once (Li et al. 2020)."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from rank_core.encoders.backbone_types import Backbone
from rank_core.models import poolings
from rank_core.models.ranker import Ranker
from rank_core.models.unmasked_chunks import UNMASKED, check_quirks
from rank_core.settings.config import Model, TrialConfig

ELEMENTWISE = "elementwise-attention"
"""Weights over chunks for every dimension apart, softmax_p(W cls_p + b): the PARADE-Attn of the
code that the numbers of Boytsov et al. 2022 come from."""


class Parade(Ranker):
    """What PARADE's variants share."""

    paper = "Li et al. 2020"
    family = "PARADE"
    options: ClassVar[tuple[str, ...]] = ("pool", "quirks")
    QUIRKS: ClassVar[tuple[str, ...]] = (UNMASKED,)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Only quirks that the variant has."""
        super().check(config, backbone)
        check_quirks(config, cls.QUIRKS, backbone.row_pooling(config.model.pool))


class ParadeAvg(Parade):
    """head(mean of the chunk vectors)."""

    label = "PARADE-Avg"

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Means, then scores."""
        return self.score(poolings.masked_mean(cls_BPH, mask_BP))


class ParadeMax(Parade):
    """head(element-wise maximum of the chunk vectors)."""

    label = "PARADE-Max"

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Maxima per dimension, then scores."""
        return self.score(poolings.masked_max(cls_BPH, mask_BP))


class ParadeAttn(Parade):
    """head(sum_p w_p cls_p), w = softmax(C . cls_p) with one learned vector C (the paper's form;
    the element-wise one of later code is a quirk)."""

    label = "PARADE-Attn"
    QUIRKS = (UNMASKED, ELEMENTWISE)

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        hidden = self.head.in_features
        self.attention: nn.Parameter | nn.Linear
        if ELEMENTWISE in settings.quirks:
            self.attention = nn.Linear(hidden, hidden)
            return
        self.attention = nn.Parameter(torch.empty(hidden))
        nn.init.trunc_normal_(self.attention, std=0.02)

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Attends over chunks, then scores."""
        if isinstance(self.attention, nn.Linear):
            weight = poolings.masked_softmax(self.attention(cls_BPH), mask_BP)
        else:
            weight = poolings.masked_softmax(cls_BPH @ self.attention, mask_BP)[:, :, None]
        return self.score((weight * cls_BPH).sum(1))
