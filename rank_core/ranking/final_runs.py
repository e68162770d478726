"""The runs that a trained model is measured by: dev and test as it ranks them.

Birch alone interpolates its score with that of the first stage (Yilmaz et al. 2019):
alpha S_doc + (1 - alpha) (S_1 + beta S_2 + gamma S_3), from the first stage's score of a document
and the relevance of its three best sentences. `interpolated_runs` is the whole recipe after
training: `best_sentences` on dev, `tune_interpolation` against dev's judgments, then `interpolate`
the `best_sentences` of each split.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rank_core.chunking.batches import PairEncoder
from rank_core.models.birch import Birch
from rank_core.models.list_rankers import ListRanker
from rank_core.models.ranker import Ranker, pad_chunks
from rank_core.ranking.encode import Work, encode_chunks
from rank_core.ranking.interpolation import chosen_on_dev, steps
from rank_core.ranking.rerank import ordered
from rank_core.ranking.scorer import Scorer, require_finite
from rank_core.records import Qrels, Run


@dataclass(frozen=True)
class FinalRuns:
    """The runs of dev and test that a model is measured by, and what led to them."""

    runs: dict[str, Run]
    notes: Mapping[str, Any] = field(default_factory=dict)  # {file name: its content as JSON}


BestSentences = dict[str, dict[str, tuple[float, ...]]]
"""{query_id: {doc_id: relevance of its best sentences, best first, missing ones 0}}."""


@dataclass(frozen=True)
class Interpolation:
    """The weights of the first stage, and of the second and third sentence."""

    alpha: float
    beta: float
    gamma: float


def interpolated_runs(scorer: Scorer) -> FinalRuns:
    """The interpolated runs of dev and test; the weights that dev chose are noted in
    `interpolation.json`."""
    model, evaluation = scorer.model, scorer.config.evaluation
    assert isinstance(model, Birch)
    splits = {name: scorer.inputs.collection.splits[name] for name in ("dev", "test")}
    best = {}
    for name, split in splits.items():
        own = best_sentences(
            model,
            scorer.pairs,
            queries=scorer.own_queries(name),
            candidates=split.candidates,
            depth=evaluation.depth,
            batch_tokens=scorer.batch_tokens,
            autocast=scorer.autocast,
            work=scorer.work,
        )
        best[name], own_test = scorer.gathered(name, own), own
    dev, test = splits["dev"], splits["test"]
    weights = tune_interpolation(best["dev"], dev.candidates, dev.qrels, evaluation.measures[0])
    for query_id, documents in own_test.items():
        scores = _scores(documents, test.candidates[query_id], weights).values()
        scorer.work.ties += len(scores) - len(set(np.asarray([*scores], np.float32).tolist()))
    runs = {
        name: require_finite(interpolate(best[name], split.candidates, weights))
        for name, split in splits.items()
    }
    return FinalRuns(runs, {"interpolation.json": asdict(weights)})


def best_sentences(
    model: Birch,
    pairs: PairEncoder,
    *,
    queries: Mapping[str, NDArray[np.int32]],
    candidates: Run,
    depth: int,
    batch_tokens: int,
    autocast: torch.dtype | None = None,
    work: Work | None = None,
) -> BestSentences:
    """The best sentences' relevance for the first `depth` candidates of each query."""
    work = Work() if work is None else work
    best: BestSentences = {}
    model.eval()
    with torch.inference_mode():
        for query_id, query in queries.items():
            doc_ids = list(candidates.get(query_id, ()))[:depth]
            documents = [pairs.chunks(query, doc_id) for doc_id in doc_ids]
            best[query_id] = {}
            if documents:
                chunks = [chunk for document in documents for chunk in document]
                x_CH = encode_chunks(model, pairs, chunks, batch_tokens, autocast, work)
                best_BK = model.best(*pad_chunks(x_CH, [len(document) for document in documents]))
                best[query_id] = dict(zip(doc_ids, map(tuple, best_BK.tolist()), strict=True))
    return best


def interpolate(best: BestSentences, candidates: Run, weights: Interpolation) -> Run:
    """The documents of `best` by their interpolated score; ties are broken by doc_id."""
    return {
        query_id: ordered(_scores(documents, candidates[query_id], weights))
        for query_id, documents in best.items()
    }


def _scores(
    documents: Mapping[str, tuple[float, ...]],
    first_stage: Mapping[str, float],
    weights: Interpolation,
) -> dict[str, float]:
    of_sentence = (1.0, weights.beta, weights.gamma)
    return {
        doc_id: weights.alpha * first_stage[doc_id]
        + (1 - weights.alpha) * sum(map(float.__mul__, of_sentence, relevance))
        for doc_id, relevance in documents.items()
    }


def tune_interpolation(
    best: BestSentences, candidates: Run, qrels: Qrels, measure: str, *, step: float = 0.1
) -> Interpolation:
    """The weights of the grid {0, step, .., 1}^3 with the best mean `measure`; of equal ones the
    first, with the smallest weight of the first stage.

    The grid has 1211 different points at .1: about as many evaluations of the run.
    """
    judged = {query_id: qrels[query_id] for query_id in best if query_id in qrels}
    return chosen_on_dev(
        _grid(step), lambda weights: interpolate(best, candidates, weights), judged, measure
    )


def _grid(step: float) -> Iterator[Interpolation]:
    """Every point once, without duplicates: at alpha 1 no sentence counts."""
    values = steps(step)
    for alpha, beta, gamma in product(values, repeat=3):
        if alpha < 1 or (beta, gamma) == (values[0], values[0]):
            yield Interpolation(alpha, beta, gamma)


FinalStep = Callable[[Scorer], FinalRuns]
"""The step from a scorer with the best checkpoint to the runs that count. It may choose by dev, and
never sees the judgments of test."""

FINAL_STEPS: dict[type[Ranker], FinalStep] = {Birch: interpolated_runs}


def final_runs(scorer: Scorer, dev_run: Run) -> FinalRuns:
    """The final runs of the scorer's model; `dev_run` is what it gave on dev when it was chosen."""
    step = FINAL_STEPS.get(type(scorer.model))
    return step(scorer) if step else FinalRuns({"dev": dev_run, "test": scorer.run("test")})


def ranks_by_score_alone(kind: type[Ranker] | type[ListRanker]) -> bool:
    """True where a model's order is that of its scores, without anything that dev chooses."""
    return kind not in FINAL_STEPS
