"""Measures: values by hand, and tried on a toy run before anything is launched."""

import math
import random
import re
from math import log2

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.evaluate import (
    WORKING,
    bounds_of,
    check_measures,
    condensed,
    per_query,
    query_values,
    without_ties,
)
from rank_core.ranking.rerank import ordered

QRELS = {
    "q1": {"a": 2, "b": 1, "c": 0},
    "q2": {"a": 1},
    "missed": {"z": 1},
    "empty": {"z": 1},
    "nothing-relevant": {"a": 0},
}
RUN = {
    "q1": {"c": 3.0, "a": 2.0, "unjudged": 1.0, "b": 0.5},
    "q2": {f"x{i:02}": 20.0 - i for i in range(10)} | {"a": 1.0},  # relevant at rank 11
    "empty": {},
    "nothing-relevant": {"a": 1.0},
}
NDCG_Q1 = (2 / log2(3) + 1 / log2(5)) / (2 / log2(2) + 1 / log2(3))


def values(measures, run=RUN, qrels=QRELS):
    table = per_query(qrels, run, measures)
    assert list(table.columns) == ["query_id", "measure", "value"]
    return {(row.query_id, row.measure): row.value for row in table.itertuples()}


def test_values_are_those_computed_by_hand():
    found = values(["nDCG@10", "RR@10", "RR", "P@2", "AP(rel=2)"])
    assert found["q1", "nDCG@10"] == pytest.approx(NDCG_Q1)
    assert found["q1", "RR@10"] == pytest.approx(1 / 2)
    assert found["q1", "P@2"] == pytest.approx(1 / 2)
    assert found["q1", "AP(rel=2)"] == pytest.approx(1 / 2)
    assert found["q2", "nDCG@10"] == found["q2", "RR@10"] == 0
    assert found["q2", "RR"] == pytest.approx(1 / 11)
    assert {query_id for query_id, _ in found} == QRELS.keys()
    assert not any(found[q, "nDCG@10"] for q in ("missed", "empty", "nothing-relevant"))


def test_a_condensed_list_has_judged_documents_alone_by_hand():
    found = query_values(QRELS, condensed(QRELS, RUN), "nDCG@10")
    assert found["q1"] == pytest.approx((2 / log2(3) + 1 / log2(4)) / (2 + 1 / log2(3)))
    assert found["q2"] == 1 and found["missed"] == found["nothing-relevant"] == 0


def test_the_order_of_ties_is_that_of_the_run_in_every_measure():
    tied = ordered({"c": 1.0, "b": 1.0, "a": 1.0, "d": 1.0})
    for place, doc_id in enumerate("abcd", start=1):
        found = values(["RR@10", "nDCG@10", "AP"], {"q": tied}, {"q": {doc_id: 1}})
        assert found["q", "RR@10"] == found["q", "AP"] == pytest.approx(1 / place)
        assert found["q", "nDCG@10"] == pytest.approx(1 / log2(place + 1))


@pytest.mark.parametrize(
    "scores",
    [(2.0, 2.0, 2.0), (2.0, 2.0 - 1e-9, 2.0 - 2e-9), (0.0, -0.0, 0.0), (1e300, 1e299, 1.0)],
)
@pytest.mark.parametrize("relevant", ["a", "b", "c"])
def test_tied_scores_are_one_ranking_for_all_measures(relevant, scores):
    run = {"q": dict(zip("bca", scores, strict=True))}
    rank = 1 + "bca".index(relevant)
    qrels = {"q": {relevant: 1}}
    expected = {
        "RR": 1 / rank,
        "nDCG@10": 1 / log2(1 + rank),
        "AP": 1 / rank,
        "P@1": float(rank == 1),
    }
    for name, value in expected.items():
        assert query_values(qrels, run, name) == {"q": pytest.approx(value)}, name


def test_scores_without_ties_fall_strictly_and_by_no_more_than_is_needed():
    scores = without_ties([2.0, 2.0, 2.0, 1.5, 1.0])
    step = 2.0**-23  # of a float32 between 1 and 2
    assert scores == [2.0, 2.0 - step, 2.0 - 2 * step, 1.5, 1.0]
    assert without_ties([]) == []


IDS = {
    "numbers": "{}",
    "after a dash": "test-{}",
    "before a dash": "PLAIN{}-0",
    "letters": "te{:04}",
    "words": "query {} ü",
    "large": "{}0000000000000000001",
}


@pytest.mark.parametrize("form", IDS.values(), ids=IDS)
def test_every_measure_gives_every_judged_query_one_value_whatever_the_ids_look_like(form):
    rng = random.Random(form)
    judged, ranked = {}, {}
    for number in range(12):
        documents = [f"d{i}" for i in range(8)]
        judged[number] = {doc_id: rng.randrange(4) for doc_id in rng.sample(documents, 5)}
        rng.shuffle(documents)
        if number % 4:  # some queries have no candidate
            ranked[number] = {doc_id: float(-i) for i, doc_id in enumerate(documents)}
    expected = values(
        WORKING, *({str(q): docs for q, docs in table.items()} for table in (ranked, judged))
    )
    found = values(
        WORKING,
        *({form.format(q): docs for q, docs in table.items()} for table in (ranked, judged)),
    )
    assert found == {(form.format(int(q)), name): value for (q, name), value in expected.items()}
    assert len(found) == 12 * len(WORKING) and max(found.values()) <= 1
    err = (
        (2 ** judged[1][next(iter(ranked[1]))] - 1) / 16
        if next(iter(ranked[1])) in judged[1]
        else 0
    )
    assert values(["ERR@1"], ranked, judged)[1, "ERR@1"] == pytest.approx(err, abs=1e-5)


def test_an_undefined_measure_is_not_zero():
    with pytest.raises(BadInput, match=r"'Accuracy'.* not defined for query missed"):
        values(["Accuracy"], {"q": {"a": 1.0, "x": 0.0}}, {"q": {"a": 1}, "missed": {"z": 1}})


# (name, what the refusal must say)
BAD = {
    "nDCG@0": "cutoff", "nDCG@-5": "problem parsing", "P@1.5": "cutoff", "nDCG@True": "cutoff",
    "AP(rel=0)": "rel", "RBP(p=2)@10": "p must be", "IPrec@5.0": "recall",
    "P": "needs a cutoff", "nDCG(dcg='ln')@10": "log2", "hits@10": "not found", "": "problem",
    "RBP(p=0.8)": "no installed tool computes it", "ERR": "no installed tool computes it",
    "Accuracy": "undefined for some queries",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_measure_that_cannot_be_computed_is_refused_with_the_reason_and_names_that_work(name):
    with pytest.raises(BadInput) as error:
        check_measures(["nDCG@10", name])
    assert BAD[name] in str(error.value) and repr(name) in str(error.value)


@pytest.mark.parametrize(
    "names", ["nDCG@10,AP", "map,P_5,AP", "AP(rel=2,judged_only=True), P@5,RR"]
)
def test_several_measures_in_one_name_are_named(names):
    number = len(re.findall(r",(?!judged)", names)) + 1
    with pytest.raises(BadInput, match=f"is {number} measures; name each by itself"):
        check_measures([names])


def test_a_measure_is_named_once_whatever_its_spelling():
    for twice in (["nDCG@10", "nDCG@10"], ["MRR@10", "RR@10"], ["AP", "P@10", "AP(rel=1)"]):
        with pytest.raises(BadInput, match=f"'{re.escape(twice[0])}' and .* same measure"):
            check_measures(twice)


def test_the_grades_of_the_judgments_are_tried_too():
    check_measures(["ERR@20", "nDCG@10"], [{"q": {"a": 4, "b": -2}}])
    with pytest.raises(BadInput, match=r"'ERR@20'.*perl.* for grades from 0 to 7"):
        check_measures(["nDCG@10", "ERR@20"], [{"q": {"a": 1}}, {"q": {"a": 7, "b": 0}}])
    check_measures(["nDCG@10"], [{"q": {"a": 7}}])


EVERY_SHARE = """AP AP(rel=2)@10 P@3 R@5 RR RR@2 nDCG@5 nDCG Rprec Bpref Success@2 SetP SetR SetF
SetAP
IPrec@0.3 Judged@5 Compat(p=0.9) infAP""".split()


@pytest.mark.parametrize("name", EVERY_SHARE)
def test_a_measure_with_bounds_never_leaves_them(name):
    rng, (low, high) = np.random.default_rng(2), bounds_of(name)
    assert (low, high) == (0, 1)
    for _ in range(5):
        grades, scores = rng.integers(-1, 4, 12).tolist(), rng.normal(size=(2, 20))
        qrels = {"q1": {f"d{i}": grade for i, grade in enumerate(grades)}, "q2": {"d3": 1}}
        run = {
            query: dict(zip(map("d{}".format, range(20)), own.tolist(), strict=True))
            for query, own in zip(qrels, scores, strict=True)
        }
        values = query_values(qrels, run, name).values()
        assert all(low <= value <= high + 1e-9 for value in values)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("ndcg@10", (0, 1)), ("mrr@10", (0, 1)), ("hit_rate@5", (0, 1)), ("map", (0, 1)),
        ("NumRet", (0, math.inf)), ("mine", (-math.inf, math.inf)),
        ("my_module:f", (-math.inf, math.inf)), ("r", (-math.inf, math.inf)),
        ("nDCG(gains={0:-1,1:1})@10", (-math.inf, math.inf)), ("", (-math.inf, math.inf)),
    ],
)  # fmt: skip
def test_bounds_are_known_by_a_measures_definition_alone(name, bounds):
    assert bounds_of(name) == bounds
