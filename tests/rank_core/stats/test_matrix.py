"""The long per-query table becomes matrices, or is refused with a reason."""

import numpy as np
import pandas as pd
import pytest

from rank_core.errors import BadInput
from rank_core.stats.matrix import score_matrices, score_matrix
from tests.rank_core.stats.matrices import long_table

SCORES = {"firstp": {1: [0.1, 0.2, 0.3], 2: [0.2, 0.2, 0.4]}, "maxp": {5: [0.3, 0.1, 0.9]}}


def test_rows_are_seeds_and_columns_are_queries_whatever_the_order_of_the_table():
    shuffled = long_table(SCORES).sample(frac=1, random_state=3)
    matrix = score_matrix(shuffled, measure="nDCG@10", cells=["maxp", "firstp"])
    assert matrix.cells == ("maxp", "firstp")
    assert matrix.query_ids == ("q0", "q1", "q2")
    assert matrix.seeds == {"maxp": (5,), "firstp": (1, 2)}
    np.testing.assert_array_equal(matrix.scores["firstp"], [[0.1, 0.2, 0.3], [0.2, 0.2, 0.4]])
    assert matrix.scores["maxp"].dtype == np.float64


@pytest.mark.parametrize(
    ("break_it", "law"),
    [
        (lambda t: t.iloc[1:], "cell firstp, seed 1 lacks 1 of 3: q0"),
        (lambda t: t[(t.cell != "maxp") | (t.query_id != "q2")], "cell maxp, seed 5 lacks 1"),
        (lambda t: pd.concat([t, t.iloc[[4]]]), "must have one value, got 2 for cell firstp"),
        (lambda t: t.assign(value=t.value.where(t.index != 2)), "must be finite, got nan"),
        (lambda t: t.assign(query_id=t.query_id.where(t.index != 2)), "every value needs a query"),
        (lambda t: t.assign(value=t.value.where(t.index != 2, np.inf)), "must be finite, got inf"),
        (lambda t: t.assign(split=["dev", *t.split[1:]]), "must hold one split, got dev, test"),
        (lambda t: t.drop(columns="seed"), "seed missing"),
        (lambda t: t.assign(cell=t.cell.replace("maxp", "sump")), "unknown cell 'maxp'"),
        (
            lambda t: t.assign(measure=["AP" if c == "maxp" else "nDCG@10" for c in t.cell]),
            "cell maxp has none",
        ),
    ],
)
def test_a_table_that_breaks_a_rule_is_refused_with_the_rule(break_it, law):
    with pytest.raises(BadInput, match=law):
        score_matrix(break_it(long_table(SCORES)), measure="nDCG@10", cells=["firstp", "maxp"])


def test_copies_of_one_seed_are_an_error_and_not_a_smaller_p():
    one, other = [0.1, 0.5, 0.2] * 10, [0.1, 0.4, 0.2] * 10
    copies = {"maxp": {1: one, 2: other, 3: one}}
    with pytest.raises(
        BadInput, match=r"seeds 1 and 3 of maxp .*seed has no effect.* or a run was copied"
    ):
        score_matrix(long_table(copies), measure="nDCG@10", cells=["maxp"])


def test_a_collapsed_cell_that_is_zero_under_every_seed_is_let_through():
    collapsed = {"maxp": {1: [0.0, 0.0], 2: [0.0, 0.0]}}
    matrix = score_matrix(long_table(collapsed), measure="nDCG@10", cells=["maxp"])
    assert not matrix.scores["maxp"].any()


def test_all_measures_at_once_are_each_measure_alone_whatever_the_type_of_the_columns():
    both = pd.concat([long_table(SCORES), long_table(SCORES, measure="RR@10")])
    both = both.sample(frac=1, random_state=3)
    texts = ["cell", "split", "query_id", "measure"]
    for table in (both, both.astype(dict.fromkeys(texts, "category"))):
        found = score_matrices(table, measures=["RR@10", "nDCG@10"], cells=["maxp", "firstp"])
        for measure, matrix in found.items():
            alone = score_matrix(both, measure=measure, cells=["maxp", "firstp"])
            assert (matrix.cells, matrix.query_ids) == (alone.cells, alone.query_ids)
            assert (matrix.measure, matrix.seeds) == (measure, alone.seeds)
            for cell in alone.cells:
                np.testing.assert_array_equal(matrix.scores[cell], alone.scores[cell])
