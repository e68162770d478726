"""The law of a run's order: it is that of the scores. Whatever the order in which the documents of
a run stand in a dictionary or its rows in a frame, each door that takes one gives the same."""

from dataclasses import dataclass, replace
from itertools import permutations
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import ranksweep
from rank_core import choose_alpha, mixture, per_query
from rank_core.data.load import load_own
from rank_core.data.transforms.expression import apply_transforms
from rank_core.data.transforms.transform import derived
from rank_core.export.folder import ExportedModel
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model
from rank_core.ranking.interpolation import NORMALISATIONS, FirstStageMix
from rank_core.records import Collection, Split
from ranksweep.frames import row_scores

TEXTS = {"a": "amber birch", "b": "cedar heron meadow", "c": "slate thorn", "d": "amber heron"}
QUERIES = {"1": "amber", "2": "heron slate"}
RUN = {"1": {"c": 9.0, "b": 5.0, "d": 2.5, "a": 1.0}, "2": {"d": 7.0, "a": 6.5, "b": -1.0}}
MODEL = {"1": {"a": 0.9, "d": 0.5, "c": 0.1}, "2": {"b": 2.0, "a": 1.0, "d": 0.5}}
QRELS = {"1": {"b": 1}, "2": {"a": 2}}
ORDERS = [*permutations(range(4))][::5]


def permuted(run, order):
    """The run with its queries, and the documents of each, in another order."""
    run = {q: dict(sorted(scores.items())) for q, scores in run.items()}
    shuffled = {}
    for query_id in [*run][:: -1 if order[0] % 2 else 1]:
        scores = [*run[query_id].items()]
        shuffled[query_id] = dict(scores[i] for i in order if i < len(scores))
    return shuffled


def frame_of(run):
    rows = [(q, QUERIES[q], d, TEXTS[d], score) for q, of in run.items() for d, score in of.items()]
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score"])


def first(grades, ranked):
    """A measure of one's own: the grade of the first document."""
    return grades.get(ranked[0], 0)


def collection(run=RUN):
    splits = {
        name: Split(
            {f"{name}{q}": text for q, text in QUERIES.items()},
            {f"{name}{q}": grades for q, grades in QRELS.items()},
            {f"{name}{q}": scores for q, scores in run.items()},
        )
        for name in ("train", "dev", "test")
    }
    return Collection("own", "", TEXTS, splits)


@dataclass(frozen=True)
class OtherCandidates:
    """A transform that gives other candidates."""

    name: ClassVar[str] = "other-candidates"
    version: ClassVar[int] = 1
    run: ClassVar[dict[str, dict[str, float]]] = {}

    def __call__(self, source: Collection) -> Collection:
        splits = {n: replace(s, candidates=self.run) for n, s in source.splits.items()}
        return derived(source, self, splits=splits)


@pytest.fixture(scope="module")
def rerankers(small_trial, backbone):
    model = build_model(small_trial, backbone, init_seed=1).eval()
    mixes = {"model": None} | {name: FirstStageMix(0.4, name, "BM25") for name in NORMALISATIONS}
    return {
        name: Reranker(ExportedModel(model, small_trial, backbone, first_stage=mix), "cpu", "")
        for name, mix in mixes.items()
    }


def mixed(run, rerankers, monkeypatch):
    sides = [mixture(MODEL, run, name) for name in NORMALISATIONS]
    return [side.at(alpha) for side in sides for alpha in (0, 0.3, 1)]


def mixed_with(run, rerankers, monkeypatch):
    sides = [mixture(run, RUN, name) for name in NORMALISATIONS]
    return [side.at(alpha) for side in sides for alpha in (0, 0.3, 1)]


def alphas(run, rerankers, monkeypatch):
    sides = [mixture(MODEL, run, name) for name in NORMALISATIONS]
    return [{"": {"alpha": choose_alpha(side, QRELS, "RR@10")}} for side in sides]


def reranked(run, rerankers, monkeypatch):
    ways = [{}, {"depth": 2}, {"depth": 2, "depth_only": True}, {"depth": 1}]
    return [one.rerank(run, QUERIES, TEXTS, **how) for one in rerankers.values() for how in ways]


def ranked(run, rerankers, monkeypatch):
    scores = run["1"]
    return [
        {"1": dict(one.rank("amber", {d: TEXTS[d] for d in scores}, first_stage=scores))}
        for one in rerankers.values()
    ]


def rows(run, rerankers, monkeypatch):
    frame = frame_of(run)
    pairs = [*zip(frame["qid"], frame["docno"], strict=True)]
    found = [dict(zip(pairs, row_scores(one, frame), strict=True)) for one in rerankers.values()]
    return [{"": dict(sorted(one.items()))} for one in found]


def values(run, rerankers, monkeypatch):
    return per_query(QRELS, run, ["nDCG@10", "RR@10", f"{__name__}:first"]).to_dict()


def compared(run, rerankers, monkeypatch):
    frame = frame_of(run).drop(columns=["query", "text"])
    found = [ranksweep.compare({"A": one, "B": MODEL}, QRELS) for one in (run, frame)]
    return [{str(one): {}} for one in found]


def own_collection(run, rerankers, monkeypatch):
    monkeypatch.setattr(f"{__name__}.collection", lambda: collection_of(run))
    load_own.cache_clear()
    loaded = load_own(f"{__name__}:collection")
    return [loaded.content_hash and split.candidates for split in loaded.splits.values()]


def own_transform(run, rerankers, monkeypatch):
    monkeypatch.setattr(OtherCandidates, "run", run)
    found = apply_transforms(collection(), [(f"{__name__}:OtherCandidates", {})])
    return [split.candidates for split in found.splits.values()]


collection_of = collection
DOORS = (
    *(mixed, mixed_with, alphas, reranked, ranked, rows, values),
    *(compared, own_collection, own_transform),
)


def parts(found):
    """The texts and the numbers of what a door gives, both in order; queries may come in any."""
    texts, numbers = [], []
    for one in found if isinstance(found, list) else [found]:
        for query_id, inner in sorted(one.items()):
            texts += [query_id, *inner] if isinstance(inner, dict) else [query_id]
            numbers += [*inner.values()] if isinstance(inner, dict) else []
    return texts, numbers


@pytest.mark.parametrize("door", DOORS, ids=[door.__name__ for door in DOORS])
def test_a_run_is_in_the_order_of_its_scores_wherever_it_enters(door, rerankers, monkeypatch):
    texts, numbers = parts(door(RUN, rerankers, monkeypatch))
    assert len({str(permuted(RUN, order)) for order in ORDERS}) == len(ORDERS)
    for order in ORDERS:
        found = parts(door(permuted(RUN, order), rerankers, monkeypatch))
        # A model reads queries in their order, and rounds accordingly.
        assert found == (texts, pytest.approx(numbers, abs=1e-6))


def test_equal_scores_keep_the_order_in_which_they_are_given(rerankers):
    tied = {"1": {"b": 1.0, "a": 1.0, "c": 2.0, "d": 1.0}}
    read = rerankers["model"].rerank(tied, QUERIES, TEXTS, depth=2, depth_only=True)["1"]
    assert set(read) == {"c", "b"}
    whole = rerankers["model"].rerank(tied, QUERIES, TEXTS, depth=2)["1"]
    assert [*whole][2:] == ["a", "d"] and np.all(np.diff([*whole.values()]) < 0)
    assert [*mixture(tied, tied).at(0)["1"]] == ["c", "b", "a", "d"]
