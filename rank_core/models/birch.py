"""Birch: a document scored by its best sentences (Yilmaz et al. 2019). Its interpolation with the
first stage is in rank_core/ranking/final_runs.py."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from numpy import int32
from numpy.typing import NDArray
from torch import Tensor

from rank_core.chunking.batches import PairEncoder
from rank_core.chunking.chunks import WORD_STARTS, Span, chunk_spans
from rank_core.chunking.token_store import TokenStore
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import load_tokenizer
from rank_core.models import poolings
from rank_core.models.passage_scores import ChunkScores
from rank_core.models.readers import OwnCuts
from rank_core.settings.config import TrialConfig

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
            if ended and not ends:
                yield Span(start, place)
                start = place
            ended = ends
        yield Span(start, len(document))


class Birch(ChunkScores):
    """The weighted mean of the scores of the three best sentences, with weights 1, 1/2, 1/4. These
    weights are used in training; the final runs use weights tuned on dev."""

    label = "Birch"
    paper = "Yilmaz et al. 2019"
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
        weight_K = torch.tensor(self.WEIGHTS[: score_BK.shape[1]], dtype=score_BK.dtype)
        weight_K = weight_K.to(score_BK.device, non_blocking=True)
        return (score_BK * weight_K).sum(1) / (real_BK * weight_K).sum(1)

    def best(self, cls_BPH: Tensor, mask_BP: Tensor) -> Tensor:
        """relevance_BK: sigmoid(score) of the best sentences, in descending order, padded with 0.

        It is the probability of relevance under a two-class head; the published code uses the
        second logit itself.
        """
        score_BK, real_BK = poolings.masked_top(self.score(cls_BPH), mask_BP, len(self.WEIGHTS))
        return torch.sigmoid(score_BK).masked_fill(~real_BK, 0.0)
