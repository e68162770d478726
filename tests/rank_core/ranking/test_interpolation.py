"""Interpolation with the first stage: its ends, closed forms, and the alpha that dev chooses."""

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.ranking.interpolation import (
    ALPHAS,
    NORMALISATIONS,
    choose_alpha,
    chosen_on_dev,
    mixture,
)

FIRST = {"q": {"b": 9.0, "a": 9.0, "d": 5.0, "c": 1.0, "e": 0.5}}  # e was not reranked
RUN = {"q": {"c": 0.30000001192092896, "a": 0.1, "d": 0.05, "b": -0.2}}


@pytest.mark.parametrize("normalise", NORMALISATIONS)
def test_alpha_one_is_the_model_to_the_last_bit_and_alpha_zero_the_first_stage(normalise):
    both = mixture(RUN, FIRST, normalise)
    assert both.at(1.0) == RUN and list(both.at(1.0)["q"]) == list(RUN["q"])
    assert list(both.at(0.0)["q"]) == ["b", "a", "d", "c"], "its ties keep its own order"


@pytest.mark.parametrize("normalise", NORMALISATIONS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_scores_fall_strictly_so_that_every_tool_reads_the_same_ranking(alpha, normalise):
    [scores] = mixture(RUN, FIRST, normalise).at(alpha).values()
    assert sorted(scores) == ["a", "b", "c", "d"]
    assert (np.diff(np.array([*scores.values()], np.float32)) < 0).all()


def test_closed_forms():
    run, first = {"q": {"a": 2.0, "b": 1.0, "c": 0.0}}, {"q": {"c": 30.0, "b": 20.0, "a": 0.0}}
    min_max = mixture(run, first).at(0.25)["q"]
    # b: .25 * .5 + .75 * 2/3
    assert min_max == pytest.approx({"c": 0.75, "b": 0.625, "a": 0.25})
    z = mixture(run, first, "z-score").at(0.5)["q"]
    of_first = (np.array([0, 20, 30]) - 50 / 3) / np.array([0, 20, 30]).std()
    expected = 0.5 * np.array([1.5**0.5, 0, -(1.5**0.5)]) + 0.5 * of_first
    assert z == pytest.approx(dict(zip("abc", expected, strict=True)))
    by_rank = mixture(run, first, "reciprocal-rank").at(0.1)["q"]
    assert by_rank["a"] == pytest.approx(0.1 / 61 + 0.9 / 63)


def test_equal_scores_have_no_weight_and_ties_go_by_doc_id():
    first = {"q": {"b": 1.0, "a": 1.0}, "other": {"a": 2.0, "b": 1.0}}
    run = {"q": {"b": 2.0, "a": 1.0}, "other": {"b": 0.7, "a": 0.6}}
    assert list(mixture(run, first).at(0.1)["q"]) == ["b", "a"]
    assert list(mixture(run | {"q": {"b": 0.0, "a": 0.0}}, first).at(0.5)["q"]) == ["a", "b"]


def test_dev_chooses_the_best_alpha_and_of_equal_ones_the_smallest():
    run, first = {"q": {"a": 1.0, "b": 0.4, "c": 0.0}}, {"q": {"b": 3.0, "c": 2.9, "a": 0.0}}
    # a is above b as soon as alpha > .6 alpha' ...: alpha 1 + 0 > .4 alpha + (1 - alpha)
    assert choose_alpha(mixture(run, first), {"q": {"a": 1}}, "RR@10") == 0.7
    assert choose_alpha(mixture(run, first), {"q": {"b": 1}, "no": {"a": 1}}, "RR@10") == 0.0
    everything_ties = {"q": {"a": 1, "b": 1, "c": 1}}
    assert choose_alpha(mixture(run, first), everything_ties, "RR@10") == 0.0
    with pytest.raises(BadInput, match="none of the 1 queries has a relevant document"):
        chosen_on_dev([1], lambda _: run, {"q": {"a": 0}}, "RR@10")


@pytest.mark.parametrize(
    ("first", "normalise", "message"),
    [
        ({"q": {"a": 1.0}}, "min-max", "has no document c for query q"),
        ({}, "min-max", "has no document c for query q"),
        ({"q": dict.fromkeys("abcd", 0.0)}, "min-max", "all 1 queries .* reciprocal-rank"),
        ({"q": dict.fromkeys("abcd", 0.0)}, "z-score", "z-score needs first-stage scores"),
        (FIRST, "softmax", "unknown normalisation 'softmax'; known: min-max"),
    ],
)
def test_bad_input_is_refused(first, normalise, message):
    with pytest.raises(BadInput, match=message):
        mixture(RUN, first, normalise)


def test_a_first_stage_of_ranks_alone_is_read_by_its_ranks():
    ranks_only = {"q": dict.fromkeys("bdac", 0.0)}
    both = mixture(RUN, ranks_only, "reciprocal-rank")
    assert list(both.at(0.0)["q"]) == list("bdac")
    assert list(both.at(0.01)["q"]) == list("bdac")
    with pytest.raises(BadInput, match=r"0 <= alpha <= 1 must hold, got 1\.5"):
        both.at(1.5)


def test_a_union_mixes_the_documents_of_both_runs():
    run, first = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"d": 9.0, "b": 7.0, "e": 5.0}}
    both = mixture(run, first, union=True)
    # Min-max: a 1, b .5, c 0 and d 1, b .5, e 0; what a run lacks has 0 there.
    assert both.at(0.25)["q"] == pytest.approx({"d": 0.75, "b": 0.5, "a": 0.25, "c": 0, "e": 0})
    assert both.at(1.0) == run and list(both.at(0.0)["q"]) == ["d", "b", "e"]
    by_rank = mixture(run, first, "reciprocal-rank", union=True).at(0.5)["q"]
    halves = {"b": 2 / 62, "a": 1 / 61, "d": 1 / 61, "c": 1 / 63, "e": 1 / 63}
    assert by_rank == pytest.approx({doc_id: value / 2 for doc_id, value in halves.items()})
    assert list(by_rank) == ["b", "a", "d", "c", "e"]


def test_a_union_takes_queries_without_documents_on_a_side():
    both = mixture({"q": {"a": 1.0, "b": 0.5}, "r": {}}, {"r": {"c": 2.0, "d": 1.0}}, union=True)
    assert list(both.at(0.5)["q"]) == ["a", "b"] and list(both.at(0.5)["r"]) == ["c", "d"]


def test_a_union_needs_a_normalisation_with_a_least_value():
    with pytest.raises(BadInput, match="z-score has no least value"):
        mixture(RUN, FIRST, "z-score", union=True)
