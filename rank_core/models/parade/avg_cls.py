"""AvgP over [CLS] vectors: one score of the mean vector of disjoint chunks (MacAvaney et al. 2019's
plain BERT; the AvgP of Boytsov et al. 2022, whose divisor counted padding-only chunks apart)."""

from rank_core.models.equal_chunks import EqualChunksRanker
from rank_core.models.parade.parade import ParadeAvg


class AvgCls(EqualChunksRanker, ParadeAvg):
    """head(mean of the chunk vectors) over disjoint chunks of equal length, at most a window."""

    label = "AvgP [CLS]"
    paper = "Boytsov et al. 2022"
    family = "passage scores"
    options = ("pool",)
    QUIRKS = ()
