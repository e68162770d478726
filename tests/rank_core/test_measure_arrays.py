"""Measures in numpy against ir_measures, to the last bit."""

import random

import pytest

from rank_core import evaluate
from rank_core.evaluate import parse_measure, query_values
from rank_core.measure_arrays import DEEPEST, FORMS, form_of, grades_of

NAMES = (
    *("nDCG@1", "nDCG@10", "nDCG", "nDCG@1000", "RR@10", "RR", "RR(rel=2)@5", "AP", "AP@7"),
    *("AP(rel=2)@100", "AP(rel=3)", "P@1", "P@10", "P(rel=2)@100", "R@10", "R(rel=2)@50"),
    *("Success@5", "Success(rel=3)@1", "Rprec", "Rprec(rel=2)"),
)
OTHERS = ("nDCG(judged_only=True)@10", "P(rel=1,judged_only=True)@5", "Bpref", "IPrec@0.2", "infAP")


def made(seed, num_queries=40, largest_grade=3):
    """Judgments and a run without ties: graded and unjudged documents, judged ones that were not
    found, queries with nothing relevant, nothing judged or nothing found."""
    rng = random.Random(seed)
    qrels, run = {}, {}
    for number in range(num_queries):
        documents = [f"d{i}" for i in range(rng.choice((1, 5, 30, 150)))]
        judged = rng.sample(documents, rng.randrange(len(documents) + 1))
        grades = {doc_id: rng.randrange(largest_grade + 1) for doc_id in judged}
        if number % 5 == 0:
            grades = dict.fromkeys(judged, 0)
        qrels[f"q{number}"] = grades | {"missed": number % 2}
        if number % 7:
            found = rng.sample(documents, rng.randrange(len(documents) + 1))
            score = 1e3
            run[f"q{number}"] = {}
            for doc_id in found:
                score -= rng.choice((1e-3, 0.5))
                run[f"q{number}"][doc_id] = score
    return qrels, run | {"not judged": {"d1": 1.0}}


def reference(qrels, run, name):
    return evaluate._by_ir_measures(qrels, run, name)


@pytest.mark.parametrize("name", NAMES)
def test_every_bit_is_that_of_ir_measures(name, monkeypatch):
    def refused(*_):
        raise AssertionError("not by arrays")

    assert {parse_measure(known).NAME for known in NAMES} == FORMS.keys()
    highest = 0.0
    for seed in range(3):
        qrels, run = made(seed)
        expected = reference(qrels, run, name)
        with monkeypatch.context() as patched:
            patched.setattr(evaluate, "_by_ir_measures", refused)
            found = query_values(qrels, run, name)
        assert found == expected and list(found) == list(expected)
        highest = max(highest, *found.values())
    assert 0 < highest <= 1


@pytest.mark.parametrize("name", OTHERS)
def test_other_measures_are_those_of_ir_measures(name):
    assert form_of(parse_measure(name)) is None
    qrels, run = made(4)
    assert query_values(qrels, run, name) == reference(qrels, run, name)


TIED = {"q": {"b": 1.0, "a": 1.0, "c": 0.5}}
CLOSE = {"q": {"b": 1.0 + 1e-12, "a": 1.0, "c": 0.5}}  # one float32
UNSORTED = {"q": {"c": 0.5, "b": 2.0, "a": 1.0}}
NO_NUMBER = {"q": {"a": float("nan")}}
DEEP = {"q": {f"x{i}": float(-i) for i in range(DEEPEST + 1)}}


@pytest.mark.parametrize("name", ["nDCG@10", "RR@10", "AP"])
@pytest.mark.parametrize("run", [TIED, CLOSE, UNSORTED, DEEP])
def test_runs_with_ties_are_left_to_ir_measures(run, name):
    qrels = {"p": {"z": 1}, "q": {"a": 1, "b": 0}, "x": {"a": 1}}
    run = {"p": {"y": 0.0}, **run, "x": {"a": 9.0}}
    assert grades_of(qrels, run) is None
    assert query_values(qrels, run, name) == reference(qrels, run, name)
