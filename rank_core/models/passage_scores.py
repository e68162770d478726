"""FirstP, LongP, MaxP, SumP, AvgP, KMaxAvgP, RandP, Birch pool a score per chunk (Dai & Callan
2019, section 3). Training is end to end as in Boytsov et al. 2022: MaxP's gradient reaches the best
chunk only. Birch scores a document by its best sentences (Yilmaz et al. 2019); its interpolation
with the first stage is in rank_core/ranking/final_runs.py."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from numpy import int32
from numpy.typing import NDArray
from torch import Tensor, nn

from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.chunking.chunks import WORD_STARTS, Span, chunk_spans
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_tokenizer
from rank_core.encoders.flat_rows import on
from rank_core.errors import BadInput, unknown
from rank_core.models import poolings
from rank_core.models.ranker import Ranker
from rank_core.models.ranking_system import BEST_CHUNKS_FIRST
from rank_core.models.readers import (
    PADDED_ROWS,
    UNMASKED,
    OwnCuts,
    WholeDocuments,
)
from rank_core.seeding import generator
from rank_core.settings.config import Model, TrialConfig


class ChunkScores(Ranker):
    """score_B = pool_p head(cls_p)."""

    paper = "Dai & Callan 2019"
    citation = (
        "Deeper Text Understanding for IR with Contextual Neural Language Modeling. SIGIR 2019, "
        "arXiv:1905.09217"
    )
    family = "passage scores"
    scores_chunks = True
    rates: ClassVar[tuple[str, ...]] = ("backbone", "head")
    options: ClassVar[tuple[str, ...]] = ("pool",)
    pool_scores: "ClassVar[staticmethod[[Tensor, Tensor], Tensor]]"

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B, pooled from chunk scores."""
        return self.pool_scores(self.score(cls_BPH), mask_BP)


class FirstP(ChunkScores):
    """score = head(cls_1): the score of the first chunk, the only one read (Dai & Callan 2019)."""

    label = "FirstP"
    chunk_pooling = "first"
    first_chunk_only = True
    options: ClassVar[tuple[str, ...]] = ("pool", "quirks")
    QUIRKS: ClassVar[tuple[str, ...]] = (PADDED_ROWS,)
    pool_scores = staticmethod(poolings.first)


class LongP(FirstP):
    """score = head(vector of the whole document), for long-context encoders (Longformer, BigBird,
    ModernBERT, ALiBi encoders, decoders)."""

    label = "LongP"
    chunk_pooling = "first"
    paper = "Boytsov et al. 2022"
    citation = (
        "Understanding Performance of Long-Document Ranking Models through Comprehensive "
        "Evaluation and Leaderboarding. arXiv:2207.01262v1"
    )
    family = "long context"
    pair_encoder = WholeDocuments
    options = ("pool",)
    QUIRKS = ()

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects windows other than the whole document, and passage training."""
        super().check(config, backbone)
        if config.training.unit == "passage":
            raise BadInput(
                f"training.unit=passage has no effect with model {config.model.name}, which reads "
                "the document as a single passage"
            )


class MaxP(ChunkScores):
    """score = max_p head(cls_p): the score of the best chunk (Dai & Callan 2019)."""

    label = "MaxP"
    waits = (BEST_CHUNKS_FIRST,)
    chunk_pooling = "max"
    options = ("pool", "quirks")
    QUIRKS = (UNMASKED,)
    chunks_that_learn = 1
    pool_scores = staticmethod(poolings.masked_max)


class AddedScores(ChunkScores):
    """Pooled chunk scores whose magnitude matters.

    With model.chunk_scores=probability, P(relevant) of each chunk is pooled, not its logit (Dai &
    Callan 2019, and the text of Zhang et al. 2021, whose code adds logits). The score of a
    two-class head is the difference of its logits, so P(relevant) is its sigmoid.
    """

    options: ClassVar[tuple[str, ...]] = ("pool", "chunk_scores")

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.probabilities = bool(settings.chunk_scores)

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects probabilities where documents are trained, because losses need logits."""
        super().check(config, backbone)
        if config.model.chunk_scores not in ("", "probability"):
            raise unknown("model.chunk_scores", config.model.chunk_scores, ("probability",))
        trained = config.training.num_epochs and config.training.unit != "passage"
        if config.model.chunk_scores and trained:
            raise BadInput(
                "model.chunk_scores=probability needs passages that are trained alone: set "
                f"training.unit=passage, got {config.training.unit}"
            )

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B, pooled from scores or, in evaluation, from probabilities if set."""
        score_BP = self.score(cls_BPH)
        if self.probabilities and not self.training:
            # In training the passages are scored alone, and their losses are of logits.
            score_BP = torch.sigmoid(score_BP)
        return self.pool_scores(score_BP, mask_BP)


class SumP(AddedScores):
    """score = sum_p head(cls_p): the sum of the chunk scores (Dai & Callan 2019)."""

    label = "SumP"
    chunk_pooling = "sum"
    options = ("pool", "quirks", "chunk_scores")
    QUIRKS = (UNMASKED,)
    pool_scores = staticmethod(poolings.masked_sum)


class AvgP(AddedScores):
    """score = mean_p head(cls_p): the mean of the chunk scores."""

    label = "AvgP"
    chunk_pooling = "mean"
    pool_scores = staticmethod(poolings.masked_mean)


class KMaxAvgP(ChunkScores):
    """The mean of the k best chunk scores: MaxP for k = 1, AvgP for large k."""

    label = "KMaxAvgP"
    waits = (BEST_CHUNKS_FIRST,)
    chunk_pooling = "mean of the best k"
    options = ("pool", "k")
    DEFAULT_K = 3

    def __init__(self, encoder: nn.Module, backbone: Backbone, settings: Model) -> None:
        super().__init__(encoder, backbone, settings)
        self.k = settings.k or self.DEFAULT_K
        self.chunks_that_learn = self.k

    @classmethod
    def check(cls, config: TrialConfig, backbone: Backbone) -> None:
        """Rejects a negative k."""
        super().check(config, backbone)
        if config.model.k < 0:
            raise BadInput(f"model.k >= 0 must hold, got model.k={config.model.k}")

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """score_B, the mean of the k best chunk scores."""
        return poolings.masked_top_mean(self.score(cls_BPH), mask_BP, self.k)


@dataclass(frozen=True)
class OneRandomChunk(PairEncoder):
    """Reads one random chunk of each document, the same throughout a trial."""

    seed: int

    def chunks(self, query: NDArray[int32], doc_id: str) -> list[Chunk]:
        """The chunk drawn by seed and document from all chunks of the document."""
        chunks = super().chunks(query, doc_id)
        return [chunks[generator(self.seed, "randp", doc_id).integers(len(chunks))]]

    def num_tokens(self, query: NDArray[int32], doc_id: str) -> int:
        """Those of a window, at most."""
        return min(super().num_tokens(query, doc_id), len(query) + self.chunking.window)


class RandP(ChunkScores):
    """The score of one random chunk per document and seed, in training and ranking: the random
    baseline of Li et al. 2023 with one block."""

    label = "RandP"
    paper = "Li et al. 2023"
    reads_by_seed = True
    unread = ("training.unit", "training.passage_keep", "training.chunk_dropout")
    pool_scores = staticmethod(poolings.first)

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """Reads one chunk of each document, drawn from the trial's seed."""
        return OneRandomChunk(
            tokens, config.chunking, cls.first_chunk_only, backbone, seed=config.seed
        )


END_MARKS = (".", "?", "!")


@dataclass(frozen=True)
class Sentences(OwnCuts):
    """A chunk per sentence. A sentence ends after a run of end marks; one longer than the window is
    split into windows, so that nothing is dropped."""

    end_ids: frozenset[int]

    def spans(self, document: NDArray[int32]) -> Sequence[Span]:
        """The sentences of a document, in order."""
        return [
            Span(start + begin, start + end)
            for start, stop in self.sentences(document)
            for begin, end in chunk_spans(stop - start, self.chunking.window, self.chunking.window)
        ]

    def sentences(self, document: NDArray[int32]) -> Iterator[Span]:
        """Whole sentences; an empty document has one empty sentence."""
        start, ended = 0, False
        for place, token in enumerate(document.tolist()):
            ends = token in self.end_ids
            # A run of marks, as in `?!` or `...`, ends one sentence and not several.
            if ended and not ends:
                yield Span(start, place)
                start = place
            ended = ends
        yield Span(start, len(document))


class Birch(ChunkScores):
    """The weighted mean of the scores of the three best sentences, with weights 1, 1/2, 1/4. These
    weights are used in training; the final runs use weights tuned on dev."""

    label = "Birch"
    by_score_alone = False
    not_interpolated = "is interpolated with the first stage by its own last step"
    paper = "Yilmaz et al. 2019"
    citation = (
        "Cross-Domain Modeling of Sentence-Level Evidence for Document Retrieval. EMNLP-IJCNLP 2019"
    )
    overlapping_chunks = False
    chunks_that_learn = 3
    WEIGHTS = (1.0, 0.5, 0.25)

    @classmethod
    def reader(cls, config: TrialConfig, backbone: Backbone, tokens: TokenStore) -> PairEncoder:
        """Reads sentences instead of windows."""
        vocabulary: dict[str, int] = load_tokenizer(backbone.folder).get_vocab()
        marks = {start + mark for start in WORD_STARTS for mark in END_MARKS}
        return Sentences(
            tokens,
            config.chunking,
            cls.first_chunk_only,
            backbone,
            end_ids=frozenset(vocabulary[mark] for mark in marks & vocabulary.keys()),
        )

    def aggregate(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """The weighted mean over the best sentences' scores."""
        score_BK, real_BK = poolings.masked_top(self.score(cls_BPH), mask_BP, len(self.WEIGHTS))
        weights = torch.tensor(self.WEIGHTS[: score_BK.shape[1]], dtype=score_BK.dtype)
        weight_K = on(score_BK.device, weights)
        # A document of fewer sentences is weighed by those that it has, not lowered by those that
        # it lacks.
        return (score_BK * weight_K).sum(1) / (real_BK * weight_K).sum(1)

    def best(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """relevance_BK: sigmoid(score) of the best sentences, in descending order, padded with 0.

        It is the probability of relevance under a two-class head; the published code uses the
        second logit itself.
        """
        score_BK, real_BK = poolings.masked_top(self.score(cls_BPH), mask_BP, len(self.WEIGHTS))
        return torch.sigmoid(score_BK).masked_fill(~real_BK, 0.0)
