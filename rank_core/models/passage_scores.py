"""FirstP, MaxP, SumP, AvgP, KMaxAvgP: a score per chunk, pooled (Dai & Callan 2019; trained end to
end as Boytsov et al. 2022 do, so MaxP's gradient reaches the best chunk only)."""

from typing import ClassVar

from torch import Tensor, nn

from rank_core.backbones import Backbone
from rank_core.config import Model, TrialConfig
from rank_core.errors import BadInput
from rank_core.models import poolings
from rank_core.models.ranker import Ranker
from rank_core.models.row_vectors import pooling_of
from rank_core.models.unmasked_chunks import UNMASKED, check_quirks


class ChunkScores(Ranker):
    """score_B = pool_p head(cls_p)."""

    paper = "Dai & Callan 2019"
    family = "passage scores"
    options: ClassVar[tuple[str, ...]] = ("pool",)
    pool_scores: "ClassVar[staticmethod[[Tensor, Tensor], Tensor]]"

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Pools the chunk scores."""
        return self.pool_scores(self.score(cls_BPH), mask_BP)


class FirstP(ChunkScores):
    """The score of the first chunk; the rest of the document is never read."""

    label = "FirstP"
    first_chunk_only = True
    pool_scores = staticmethod(poolings.first)


class ComparedChunks(ChunkScores):
    """Scores of chunks that padding may be made to compete with."""

    options = ("pool", "quirks")

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """The one quirk is that padding competes."""
        super().check(config, backbone)
        check_quirks(config, (UNMASKED,), pooling_of(config.model, backbone))


class MaxP(ComparedChunks):
    """The best chunk's score."""

    label = "MaxP"
    chunks_that_learn = 1
    pool_scores = staticmethod(poolings.masked_max)


class SumP(ComparedChunks):
    """The sum of the chunks' scores."""

    label = "SumP"
    pool_scores = staticmethod(poolings.masked_sum)


class AvgP(ChunkScores):
    """The mean of the document's own chunk scores."""

    label = "AvgP"
    pool_scores = staticmethod(poolings.masked_mean)


class KMaxAvgP(ChunkScores):
    """The mean of the k best chunks' scores: MaxP at k = 1, AvgP where k is large."""

    label = "KMaxAvgP"
    options = ("pool", "k")
    DEFAULT_K = 3

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.k = settings.k or self.DEFAULT_K
        self.chunks_that_learn = self.k

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """A mean needs at least one chunk."""
        super().check(config, backbone)
        if config.model.k < 0:
            raise BadInput(f"model.k >= 0 must hold, got model.k={config.model.k}")

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Scores, then means over the best."""
        return poolings.masked_top_mean(self.score(cls_BPH), mask_BP, self.k)
