"""FirstP, MaxP, SumP, AvgP, KMaxAvgP, RandP: a score per chunk, pooled (Dai & Callan 2019; trained
end to end as Boytsov et al. 2022 do, so that the gradient of MaxP reaches the best chunk only)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from numpy import int32
from numpy.typing import NDArray
from torch import Tensor, nn

from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput, unknown
from rank_core.models import poolings
from rank_core.models.ranker import Ranker
from rank_core.models.readers import PADDED_ROWS, UNMASKED, check_quirks
from rank_core.seeding import generator
from rank_core.settings.config import Model, TrialConfig


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
    options: ClassVar[tuple[str, ...]] = ("pool", "quirks")
    pool_scores = staticmethod(poolings.first)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """The one quirk is that rows are padded in place."""
        super().check(config, backbone)
        check_quirks(config, (PADDED_ROWS,))


class ComparedChunks(ChunkScores):
    """Scores of chunks that padding may be made to compete with."""

    options: ClassVar[tuple[str, ...]] = ("pool", "quirks")

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """The one quirk is that padding competes."""
        super().check(config, backbone)
        check_quirks(config, (UNMASKED,))


class MaxP(ComparedChunks):
    """The best chunk's score."""

    label = "MaxP"
    chunks_that_learn = 1
    pool_scores = staticmethod(poolings.masked_max)


class AddedScores(ChunkScores):
    """Chunk scores whose size counts, not their order alone: with model.chunk_scores=probability
    P(relevant) of each chunk is added up in place of its logit (Dai & Callan 2019, and the text of
    Zhang et al. 2021; the code of the latter adds logits).

    The score of a two-class head is the difference of its logits, so P(relevant) is its sigmoid.
    """

    options: ClassVar[tuple[str, ...]] = ("pool", "chunk_scores")

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.probabilities = bool(settings.chunk_scores)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Losses take logits, so a probability can be of a passage that was trained alone only."""
        super().check(config, backbone)
        if config.model.chunk_scores not in ("", "probability"):
            raise unknown("model.chunk_scores", config.model.chunk_scores, ("probability",))
        if config.model.chunk_scores and config.training.unit != "passage":
            raise BadInput(
                "model.chunk_scores=probability is for passages that are trained alone: set "
                f"training.unit=passage, got {config.training.unit}"
            )

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """Pools scores; in evaluation, if asked to, probabilities."""
        score_BP = self.score(cls_BPH)
        if self.probabilities and not self.training:
            score_BP = torch.sigmoid(score_BP)
        return self.pool_scores(score_BP, mask_BP)


class SumP(AddedScores, ComparedChunks):
    """The sum of the chunks' scores."""

    label = "SumP"
    options = ("pool", "quirks", "chunk_scores")
    pool_scores = staticmethod(poolings.masked_sum)


class AvgP(AddedScores):
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


@dataclass(frozen=True)
class OneRandomChunk(PairEncoder):
    """One of a document's chunks, the same one whenever the document is read in a trial."""

    seed: int

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """The chunk that (seed, document) draw among those that all chunks' models would read."""
        chunks = super().chunks(query, doc_id)
        return [chunks[generator(self.seed, "randp", doc_id).integers(len(chunks))]]


class RandP(ChunkScores):
    """The score of one chunk, drawn once per document and seed, for training and ranking alike."""

    label = "RandP"
    paper = "Li et al. 2023"  # their random baseline, with one block
    pool_scores = staticmethod(poolings.first)

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """One chunk of each document; another one in a trial of another seed."""
        return OneRandomChunk(
            tokens, config.chunking, cls.first_chunk_only, backbone, seed=config.seed
        )
