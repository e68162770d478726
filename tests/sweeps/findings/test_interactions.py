"""Does a gain depend on the collection? Against a t-test by hand, and over two first stages."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rank_core.errors import BadInput
from sweeps.commands.compare.command import systems_of
from sweeps.findings.interactions import (
    interaction_results,
    interactions,
    rows,
)
from sweeps.report.comparison import compare_runs
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

QUERIES = [f"q{number}" for number in range(40)]


def values(mean, rng, queries=QUERIES):
    rows = {"query_id": queries, "measure": "nDCG@10"}
    return pd.DataFrame(rows | {"value": np.clip(rng.normal(mean, 0.1, len(queries)), 0, 1)})


def compared(own, **options):
    systems = {name: [dict(zip("xyz", one, strict=False))] for name, one in own.items()}
    return compare_runs(systems, deterministic=[*own], **options).analysis


def test_of_two_systems_without_seeds_it_is_the_t_test_of_the_difference_of_differences():
    rng = np.random.default_rng(1)
    own = {"A": [values(0.4, rng), values(0.5, rng)], "B": [values(0.5, rng), values(0.52, rng)]}
    [found] = interactions(compared(own))
    (a1, a2), (b1, b2) = ([one["value"].to_numpy() for one in both] for both in own.values())
    expected = stats.ttest_1samp((b1 - a1) - (b2 - a2), 0)
    assert found.collections == ("x", "y")
    assert found.gains == pytest.approx(((b1 - a1).mean(), (b2 - a2).mean()))
    assert found.test.delta == pytest.approx(found.gains[0] - found.gains[1])
    assert found.test.p_both == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found.test.ci_low, found.test.ci_high) == pytest.approx((interval.low, interval.high))


def test_queries_of_one_collection_alone_are_independent():
    rng = np.random.default_rng(2)
    other = [f"p{number}" for number in range(30)]
    own = {
        "A": [values(0.4, rng), values(0.5, rng, other)],
        "B": [values(0.5, rng), values(0.52, rng, other)],
    }
    [found] = interactions(compared(own))
    here, there = (b["value"] - a["value"] for a, b in zip(*own.values(), strict=True))
    expected = stats.ttest_ind(here, there, equal_var=False)
    assert found.test.p_both == pytest.approx(expected.pvalue, rel=1e-6)


def test_each_further_collection_is_compared_with_the_first_in_one_family():
    rng = np.random.default_rng(3)
    means = {"A": (0.4, 0.4, 0.4), "B": (0.5, 0.5, 0.7), "C": (0.4, 0.4, 0.4)}
    own = {name: [values(mean, rng) for mean in of] for name, of in means.items()}
    analysis = compared(own)
    found = {(one.test.system, one.collections[1]): one.test for one in interactions(analysis)}
    assert {*found} == {("B", "y"), ("B", "z"), ("C", "y"), ("C", "z")}
    assert found["B", "z"].p_both_adjusted < 0.001 < found["B", "y"].p_both_adjusted
    assert all(one.family_size == 4 for one in found.values())
    [first, *_] = shown = rows(analysis)
    assert len(shown) == 4 and first.p == min(row.p for row in shown)
    assert (first.name, first.about) == ("gain over A, x less z", "B")
    assert len(interaction_results(analysis)) == 4


def test_one_collection_has_none():
    rng = np.random.default_rng(4)
    own = {"A": values(0.4, rng), "B": values(0.5, rng)}
    analysis = compare_runs({name: [one] for name, one in own.items()}).analysis
    assert interactions(analysis) == rows(analysis) == []


def test_two_first_stages_stand_in_one_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, first_stage in {"woods": "BM25", "woods|first-stage(by=rm3)": "RM3"}.items():
        collection = {"name": name, "first_stage": first_stage}
        write_ranked_sweep(tmp_path / first_stage, collection=collection)
    words = ["first stage=BM25:BM25,RM3:RM3", "FirstP=BM25:FirstP 40,RM3:FirstP 40"]
    analysis = compare_runs(systems_of(words)).analysis
    assert analysis.sweep.deterministic == ("first stage",)
    [found] = interactions(analysis)
    assert found.collections == ("woods", "woods|first-stage(by=rm3)")
    assert found.test.delta == pytest.approx(0)  # both folders have the same runs
    with pytest.raises(BadInput, match=r"unknown system of RM3 'BM25'.*FirstP 40.*RM3"):
        compare_runs(systems_of(["A=RM3:BM25", "B=RM3:FirstP 40"]))
