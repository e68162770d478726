"""PARADE-CNN: neighbouring chunk vectors are merged pairwise until one is left (Li et al. 2020)."""

import torch
from torch import Tensor, nn

from rank_core.encoders.backbone_types import Backbone
from rank_core.models.parade.parade import Parade
from rank_core.settings.config import Model


class ParadeCnn(Parade):
    """head of the last vector of a tree: x <- relu(W [x_2i; x_2i+1] + b), a filter of width and
    stride 2, level after level.

    The paper gives every document 16 chunks and each of its 4 levels a filter. Here documents have
    any number of chunks, so all levels share one filter: a level that only the longest documents
    reach would hardly be trained. Where a level has an odd number, its last vector goes up as it
    is; a document of one chunk is scored by that chunk's own vector.
    """

    label = "PARADE-CNN"
    options = ("pool",)
    QUIRKS = ()

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        hidden = self.head.in_features
        # The filter as a linear layer over both vectors: the same products, whatever the device.
        self.pair = nn.Linear(2 * hidden, hidden)

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Merges pairs until one vector per document is left, then scores."""
        while cls_BPH.shape[1] > 1:
            if cls_BPH.shape[1] % 2:
                cls_BPH = nn.functional.pad(cls_BPH, (0, 0, 0, 1))
                mask_BP = nn.functional.pad(mask_BP, (0, 1))
            both_BQK = torch.cat([cls_BPH[:, 0::2], cls_BPH[:, 1::2]], dim=-1)
            paired_BQ1 = mask_BP[:, 1::2, None]
            cls_BPH = torch.where(paired_BQ1, self.pair(both_BQK).relu(), cls_BPH[:, 0::2])
            mask_BP = mask_BP[:, 0::2]
        return self.score(cls_BPH[:, 0])
