"""Linear interpolation with the first stage: alpha x model + (1 - alpha) x first stage.

Both scores are normalised per query over the documents that the model reranked. Alpha is chosen on
dev (`choose_alpha`). At alpha 1 the run is the model's own, bit for bit; at alpha 0 the documents
are in the order of the first stage.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rank_core.arguments import flag, instance, number, one_text, takes, text
from rank_core.arrays import Floats
from rank_core.data import given
from rank_core.data.trec import in_rank_order
from rank_core.errors import BadInput
from rank_core.evaluate import mean_value, untied
from rank_core.records import Qrels, Run

Point = TypeVar("Point")

ALPHAS = tuple(tenth / 10 for tenth in range(11))
RANK_OFFSET = 60
"""k in 1 / (k + rank), Cormack et al. 2009."""


def chosen_on_dev(
    points: Iterable[Point], run_of: Callable[[Point], Run], qrels: Qrels, measure: str
) -> Point:
    """The point whose run has the best mean `measure` over the queries of `qrels`; among equals the
    first. Raises `BadInput` if no document is relevant."""
    if not any(grade > 0 for grades in qrels.values() for grade in grades.values()):
        raise BadInput(
            f"interpolation weights need judgments to be tuned on, but none of the {len(qrels)} "
            "queries has a relevant document"
        )
    # `max` keeps the first of equals: the smallest alpha, which trusts the first stage most.
    return max(points, key=lambda point: mean_value(qrels, run_of(point), measure))


def min_max(score_K: Floats) -> Floats:
    """(score - min) / (max - min); 0 where all scores are equal."""
    spread = score_K.max() - score_K.min()
    return (score_K - score_K.min()) / spread if spread else np.zeros_like(score_K)


def z_score(score_K: Floats) -> Floats:
    """(score - mean) / standard deviation; 0 where all scores are equal."""
    if score_K.max() == score_K.min():
        return np.zeros_like(score_K)
    scaled_K = (score_K - score_K.mean()) / score_K.std()
    return np.asarray(scaled_K, np.float64)


def reciprocal_rank(score_K: Floats) -> Floats:
    """1 / (60 + rank); the scores are in rank order and otherwise ignored."""
    return 1 / (RANK_OFFSET + np.arange(1.0, len(score_K) + 1))


DEFAULT = "min-max"
NORMALISATIONS: dict[str, Callable[[Floats], Floats]] = {
    DEFAULT: min_max,
    "z-score": z_score,
    "reciprocal-rank": reciprocal_rank,
}
"""{name: function of a query's scores, best first}."""


@dataclass(frozen=True)
class Mixture:
    """A model's run and its first stage, both normalised; K documents per query."""

    run: Run
    first_stage: Run  # the same documents in the first stage's order
    sides: dict[str, tuple[list[str], Floats, Floats]]  # {query_id: doc_ids, model_K, first_K}

    @takes(alpha=number("0 <= {} <= 1", lambda alpha: 0 <= alpha <= 1))
    def at(self, alpha: float) -> Run:
        """The interpolated run, with strictly decreasing float32 scores; ties are broken by doc_id.
        Raises `BadInput` unless 0 <= alpha <= 1.

        Examples:
            >>> import ranksweep
            >>> model, bm25 = {"q1": {"d1": 9.0, "d2": 1.0}}, {"q1": {"d2": 7.5, "d1": 2.5}}
            >>> mixed = ranksweep.mixture(model, bm25)
            >>> list(mixed.at(0.8)["q1"]), list(mixed.at(0.2)["q1"])
            (['d1', 'd2'], ['d2', 'd1'])
        """
        # The scores as given and not the normalised ones: the model's own run, bit for bit.
        if alpha == 1:
            return self.run
        if alpha == 0:
            return {query_id: untied(scores) for query_id, scores in self.first_stage.items()}
        mixed: Run = {}
        for query_id, (doc_ids, model_K, first_K) in self.sides.items():
            score_K = alpha * model_K + (1 - alpha) * first_K
            by_score = sorted(zip((-score_K).tolist(), doc_ids, strict=True))
            mixed[query_id] = untied({doc_id: -score for score, doc_id in by_score})
        return mixed


@dataclass(frozen=True)
class FirstStageMix:
    """The weight that a trial chose for its model beside the first stage."""

    alpha: float
    normalise: str = DEFAULT
    first_stage: str = ""  # its name, such as BM25

    def __call__(self, run: Run, first_stage: Run) -> Run:
        """The interpolated run; raises as `mixture` does."""
        return mixture(run, first_stage, self.normalise).at(self.alpha)


@takes(
    run=given.run,
    first_stage=given.run,
    normalise=one_text("the name of a normalisation", NORMALISATIONS, noun="normalisation"),
    union=flag,
)
def mixture(
    run: Run, first_stage: Run, normalise: str = DEFAULT, *, union: bool = False
) -> Mixture:
    """The normalised scores of every query of `run`, for alpha x model + (1 - alpha) x first stage
    (Wang, Zhuang & Zuccon 2021). `normalise` is min-max, z-score or reciprocal-rank. Ranks are by
    score, and among equal scores as given. With `union` the documents of both are mixed, as of two
    retrievers: one that a run lacks has 0 there, the least of min-max and of reciprocal-rank
    (Cormack et al. 2009, at alpha .5). Raises `BadInput` for a document that the first stage lacks
    without `union`, for z-score with it, and if all scores of the first stage are equal but needed.

    Examples:
        >>> import ranksweep
        >>> model, bm25 = {"q1": {"d1": 9.0, "d2": 1.0}}, {"q1": {"d2": 7.5, "d1": 2.5}}
        >>> ranksweep.mixture(model, bm25).at(0.75)
        {'q1': {'d1': 0.75, 'd2': 0.25}}
    """
    if union and normalise == "z-score":
        raise BadInput("normalisation z-score has no least value for a document that a run lacks")
    of_run = {
        query_id: in_rank_order(first_stage.get(query_id, {}))
        if union
        else _of_run(query_id, scores, first_stage.get(query_id, {}))
        for query_id, scores in run.items()
    }
    several = [set(scores.values()) for scores in of_run.values() if len(scores) > 1]
    equal = bool(several) and all(len(scores) == 1 for scores in several)
    if equal and normalise != "reciprocal-rank":
        raise BadInput(
            f"normalisation {normalise} needs first-stage scores, but in all {len(several)} "
            "queries all documents have the same score; use reciprocal-rank, which needs ranks only"
        )
    norm, sides = NORMALISATIONS[normalise], {}
    for query_id, scores in run.items():
        first = of_run[query_id]
        doc_ids = [*{**scores, **first}] if union else list(scores)
        if doc_ids:
            normalised = [
                dict(zip(side, norm(np.array([*side.values()])), strict=True)) if side else {}
                for side in (scores, first)
            ]
            model_K, first_K = (
                np.array([side.get(doc_id, 0.0) for doc_id in doc_ids]) for side in normalised
            )
            sides[query_id] = doc_ids, model_K, first_K
        else:
            sides[query_id] = doc_ids, np.zeros(0), np.zeros(0)
    return Mixture(run, of_run, sides)


@takes(dev=instance(Mixture, "a Mixture, which mixture() gives"), qrels=given.qrels, measure=text)
def choose_alpha(dev: Mixture, qrels: Qrels, measure: str) -> float:
    """The alpha of 0, .1, ..., 1 with the best mean `measure` on dev; among equals the smallest.
    Raises `BadInput` if no document is relevant.

    Examples:
        >>> import ranksweep
        >>> model, bm25 = {"q1": {"d1": 9.0, "d2": 1.0}}, {"q1": {"d2": 7.5, "d1": 2.5}}
        >>> ranksweep.choose_alpha(ranksweep.mixture(model, bm25), {"q1": {"d1": 1}}, "RR")
        0.5
    """
    judged = {query_id: qrels[query_id] for query_id in dev.run if query_id in qrels}
    return chosen_on_dev(ALPHAS, dev.at, judged, measure)


def _of_run(
    query_id: str, ranked: dict[str, float], first_stage: dict[str, float]
) -> dict[str, float]:
    """The first stage's scores of the reranked documents, best first."""
    for doc_id in ranked:
        if doc_id not in first_stage:
            raise BadInput(
                f"the first stage has no document {doc_id} for query {query_id}; it must list all "
                "reranked documents"
            )
    return in_rank_order({d: score for d, score in first_stage.items() if d in ranked})
