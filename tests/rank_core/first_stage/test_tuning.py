"""Tuning of the first stage: grid, best point, record."""

import json

import pytest

from rank_core.errors import BadInput
from rank_core.first_stage import Bm25Index, Bm25Settings
from rank_core.first_stage.tuning import BM25_GRID, rm3_grid, tune_bm25

PLAIN = Bm25Settings(k1=0.9, b=0.0)
NORMALISED = Bm25Settings(k1=0.9, b=1.0)

# One query word, once in a short and once in a long document: only b = 1 prefers the short one,
# with b = 0 they tie and the doc_id decides.
DOCUMENTS = {"a_long": "apple " + "filler " * 30, "b_short": "apple", "c": "pear"}
QUERIES = {"q": "apple", "not judged": "pear"}
QRELS = {"q": {"b_short": 1}}


def test_the_best_point_of_the_grid_is_chosen_and_all_are_recorded():
    tuning = tune_bm25(Bm25Index(DOCUMENTS), QUERIES, QRELS, "RR", (PLAIN, NORMALISED))
    assert tuning.best == NORMALISED
    assert [(point.settings, point.value) for point in tuning.table] == [
        (PLAIN, 0.5),
        (NORMALISED, 1.0),
    ]
    record = json.loads(json.dumps(tuning.record()))
    assert record["best"] == {"k1": 0.9, "b": 1.0, "rm3": None}
    assert record["measure"] == "RR" and record["num_queries"] == 1 and record["depth"] == 100
    assert [point["value"] for point in record["table"]] == [0.5, 1.0]


def test_of_equally_good_points_the_earliest_wins():
    index = Bm25Index(DOCUMENTS)
    for grid in ((PLAIN, NORMALISED), (NORMALISED, PLAIN)):
        assert tune_bm25(index, QUERIES, QRELS, "R@100", grid).best == grid[0]


def test_a_query_that_retrieves_nothing_counts_as_zero():
    qrels = QRELS | {"unknown": {"c": 1}}
    queries = QUERIES | {"unknown": "zebra"}
    tuning = tune_bm25(Bm25Index(DOCUMENTS), queries, qrels, "RR", (NORMALISED,))
    assert tuning.table[0].value == 0.5 and tuning.num_queries == 2


def test_the_depth_limits_what_is_measured():
    index = Bm25Index(DOCUMENTS)
    values = [
        tune_bm25(index, QUERIES, QRELS, "R@100", (PLAIN,), depth=depth).table[0].value
        for depth in (1, 2)
    ]
    assert values == [0.0, 1.0]


def test_the_grids_start_with_their_baseline_and_have_no_duplicates():
    assert BM25_GRID[0] == Bm25Settings() and len(set(BM25_GRID)) == 16
    around = rm3_grid(Bm25Settings(1.2, 0.75))
    assert around[0] == Bm25Settings(1.2, 0.75) and len(set(around)) == 13
    assert {(point.k1, point.b) for point in around} == {(1.2, 0.75)}


def test_what_cannot_be_tuned_is_refused():
    index = Bm25Index(DOCUMENTS)
    with pytest.raises(BadInput, match="no points"):
        tune_bm25(index, QUERIES, QRELS, "RR", ())
    with pytest.raises(BadInput, match="duplicate point"):
        tune_bm25(index, QUERIES, QRELS, "RR", (PLAIN, PLAIN))
    with pytest.raises(BadInput, match="needs judged queries"):
        tune_bm25(index, {"other": "apple"}, QRELS)
    with pytest.raises(BadInput, match="nDCG@ten"):
        tune_bm25(index, QUERIES, QRELS, "nDCG@ten")
