"""FirstP, MaxP, SumP, AvgP: a score per chunk, pooled (Dai & Callan 2019; trained end to end as
Boytsov et al. 2022 do, so MaxP's gradient reaches the best chunk only)."""

from typing import ClassVar

from torch import Tensor

from rank_core.models import poolings
from rank_core.models.ranker import Ranker


class ChunkScores(Ranker):
    """score_B = pool_p head(cls_p)."""

    paper = "Dai & Callan 2019"
    family = "passage scores"
    pool: "ClassVar[staticmethod[[Tensor, Tensor], Tensor]]"

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Pools the chunk scores."""
        return self.pool(self.score(cls_BPH), mask_BP)


class FirstP(ChunkScores):
    """The score of the first chunk; the rest of the document is never read."""

    label = "FirstP"
    first_chunk_only = True
    pool = staticmethod(poolings.first)


class MaxP(ChunkScores):
    """The best chunk's score."""

    label = "MaxP"
    chunks_that_learn = 1
    pool = staticmethod(poolings.masked_max)


class SumP(ChunkScores):
    """The sum of the chunks' scores."""

    label = "SumP"
    pool = staticmethod(poolings.masked_sum)


class AvgP(ChunkScores):
    """The mean of the document's own chunk scores."""

    label = "AvgP"
    pool = staticmethod(poolings.masked_mean)
