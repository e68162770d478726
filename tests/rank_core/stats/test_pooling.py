"""Query sets as one: the query-weighted mean, and nothing pooled that does not belong together."""

import numpy as np
import pandas as pd
import pytest

from rank_core.errors import BadInput
from rank_core.stats.matrix import score_matrix
from rank_core.stats.pooling import pool_query_sets, queries_per_set

SIZES = {"dl19": 43, "dl20": 45, "dl21": 57}


def table(means, *, num, seeds=(1, 2), split="test", measure="nDCG@10"):
    """Values around `means[cell]` whose mean over the queries is exactly that."""
    rng = np.random.default_rng(num)
    parts = []
    for cell, mean in means.items():
        for seed in seeds:
            value_Q = rng.normal(0, 0.1, num)
            parts.append(
                pd.DataFrame(
                    {
                        "cell": cell,
                        "seed": seed,
                        "split": split,
                        "query_id": [str(1000 + q) for q in range(num)],
                        "measure": measure,
                        "value": value_Q - value_Q.mean() + mean,
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def years(**means):
    """`cell=(2019, 2020, 2021)` as one table per year."""
    return {
        name: table({cell: one[at] for cell, one in means.items()}, num=num)
        for at, (name, num) in enumerate(SIZES.items())
    }


def test_the_pooled_mean_weighs_every_year_by_its_queries():
    pooled = pool_query_sets(years(bm25=(0.548, 0.538, 0.549), new=(0.60, 0.70, 0.50)))
    matrix = score_matrix(pooled, measure="nDCG@10", cells=["bm25", "new"])
    assert len(matrix.query_ids) == 145 and queries_per_set(matrix.query_ids) == SIZES
    # (43 x .548 + 45 x .538 + 57 x .549) / 145, printed as .545.
    assert matrix.scores["bm25"].mean() == pytest.approx(0.5453, abs=5e-5)
    assert matrix.scores["new"].mean() == pytest.approx((25.8 + 31.5 + 28.5) / 145)
    assert abs(matrix.scores["new"].mean() - 0.6) > 0.005  # the mean of the yearly means


def test_equal_numbers_of_two_sets_stay_two_queries():
    pooled = pool_query_sets(years(bm25=(0.5, 0.5, 0.5)))
    assert pooled["query_id"].iloc[0] == "dl19/1000"
    assert pooled["query_id"].nunique() == 145
    assert set(pooled["query_set"]) == set(SIZES)
    assert queries_per_set(["dl19/1", "2"]) == {} == queries_per_set([])


def test_the_order_of_the_sets_changes_no_score():
    sets = years(bm25=(0.5, 0.6, 0.4))
    there = score_matrix(pool_query_sets(sets), measure="nDCG@10", cells=["bm25"])
    turned = dict(reversed(sets.items()))
    back = score_matrix(pool_query_sets(turned), measure="nDCG@10", cells=["bm25"])
    assert there.query_ids == back.query_ids
    assert (there.scores["bm25"] == back.scores["bm25"]).all()


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        ({"seeds": (1,)}, r"same \(cell, seed\) pairs: dl20 lacks 1 of dl19: bm25 2$"),
        ({"seeds": (1, 2, 3)}, r"dl19 lacks 1 of dl20: bm25 3$"),
        ({"means": {"qld": 0.5}}, "dl20 lacks 2 of dl19: bm25 1; bm25 2$"),
        ({"measure": "RR@10"}, "the same measures: dl20 lacks 1 of dl19: nDCG@10"),
        ({"split": "dev"}, "the same split: dl20 lacks 1 of dl19: test"),
    ],
)
def test_sets_of_other_trials_measures_or_splits_are_refused(changes, law):
    first = table({"bm25": 0.5}, num=5)
    second = table(**({"means": {"bm25": 0.5}, "num": 7} | changes))
    with pytest.raises(BadInput, match=law):
        pool_query_sets({"dl19": first, "dl20": second})


def test_what_is_no_query_set_is_refused():
    good = table({"bm25": 0.5}, num=5)
    with pytest.raises(BadInput, match="at least one query set"):
        pool_query_sets({})
    with pytest.raises(BadInput, match="name without '/', got 'dl/19'"):
        pool_query_sets({"dl/19": good})
    with pytest.raises(BadInput, match="value missing"):
        pool_query_sets({"dl19": good.drop(columns="value")})
    with pytest.raises(BadInput, match="dl19 has none"):
        pool_query_sets({"dl19": good.iloc[:0]})
