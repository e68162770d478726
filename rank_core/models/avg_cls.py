"""AvgP over [CLS] vectors: one score of the mean vector of disjoint chunks (MacAvaney et al. 2019's
plain BERT; the AvgP of Boytsov et al. 2022, whose divisor counted padding-only chunks apart)."""

from rank_core.backbones import Backbone
from rank_core.batches import PairEncoder
from rank_core.config import TrialConfig
from rank_core.models.own_cuts import EqualChunks, refuse_stride
from rank_core.models.parade import ParadeAvg
from rank_core.token_store import TokenStore


class AvgCls(ParadeAvg):
    """head(mean of the chunk vectors) over disjoint chunks of equal length, at most a window."""

    label = "AvgP [CLS]"
    paper = "Boytsov et al. 2022"
    family = "passage scores"
    options = ("pool",)
    QUIRKS = ()

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """Chunks of equal length instead of windows."""
        return EqualChunks(tokens, config.chunking, cls.first_chunk_only, backbone)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Its chunks are disjoint."""
        super().check(config, backbone)
        refuse_stride(config)
