"""The section "How far to trust this": numbers, sentences, and what one seed leaves out."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps.report.analysis import Analysis, analyse
from sweeps.report.build import write_report
from sweeps.report.conclusions import below_first_stage, correction_note
from sweeps.report.factors import factor_sentences, grid_factors
from sweeps.report.load import load_sweep
from sweeps.report.reliability import Reliability, assess
from sweeps.report.sections.reliability import reliability_sentences
from tests.sweeps.report.test_load import EIGHTEEN, FIVE, write_sweep


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here looks at a figure, and drawing takes most of a report's time."""
    monkeypatch.setattr("sweeps.report.build.figures", lambda analysis, trust: [])


def _analysis(folder: Path, **changes: Any) -> Analysis:
    return analyse(load_sweep(write_sweep(folder, **changes)))


def _words(analysis: Analysis, trust: Reliability | None = None) -> dict[str, str]:
    return dict(reliability_sentences(analysis, trust or assess(analysis)))


def test_every_comparison_has_its_limits_and_the_best_its_upper_limit(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, effect=0.06)
    trust = assess(analysis)
    words = _words(analysis, trust)
    best = max(analysis.primary, key=lambda one: one.delta)
    (limits,) = [one for one in trust.limits if one.system == best.system]
    assert len(trust.limits) == len(analysis.primary) == 4
    assert best.delta < limits.upper < best.ci_high  # one-sided lies inside two-sided
    assert limits.rope.above > 0.99 and limits.equivalence_p > 0.99
    assert f"gain of MaxP 128/64 is at most +{limits.upper:.3f}" in words["Size of the best gain"]
    assert "practically equal" not in words["Size of the best gain"]


def test_equal_cells_may_be_called_practically_equal(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, effect=0.0, num_queries=400, seeds=(1, 2, 3, 4, 5), rope=0.05)
    assert "practically equal to the baseline (two" in _words(analysis)["Size of the best gain"]


def test_a_wider_sweep_sees_smaller_differences(tmp_path: Path) -> None:
    few, many = (
        assess(_analysis(tmp_path / str(count), seeds=tuple(range(1, count + 1))))
        for count in (3, 8)
    )
    assert min(one.detectable for one in few.limits) > min(one.detectable for one in many.limits)
    assert few.floor is not None and few.floor < min(one.detectable for one in few.limits)


def test_the_choice_on_dev_is_reported_with_its_test_difference(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, effect=0.06)
    _rewrite_dev(folder, "maxp-w64-s48", 0.9)
    analysis = analyse(load_sweep(folder))
    trust = assess(analysis)
    choice = trust.chosen_on_dev
    assert choice is not None and choice.comparison is not None
    assert choice.comparison.delta < max(one.delta for one in analysis.primary)
    words = _words(analysis, trust)["Chosen on dev"]
    assert words.startswith("MaxP 64/48 has the best mean on the 200 development queries (0.900)")
    assert "The best on test, MaxP 128/64" in words and "found by looking there" in words


def test_a_baseline_that_wins_on_dev_is_kept(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, effect=0.06)
    _rewrite_dev(folder, "firstp", 0.95)
    words = _words(analyse(load_sweep(folder)))["Chosen on dev"]
    assert "a choice that never saw split test keeps the baseline" in words


def _rewrite_dev(folder: Path, prefix: str, value: float) -> None:
    table = pd.read_parquet(folder / "per_query.parquet")
    table.loc[(table["split"] == "dev") & table["cell"].str.startswith(prefix), "value"] = value
    table.to_parquet(folder / "per_query.parquet")


def test_the_winner_of_equals_is_told_its_luck(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, kinds=EIGHTEEN, effect=0.0, num_queries=60)
    trust = assess(analysis)
    best = max(one.delta for one in analysis.primary)
    assert trust.luck is not None and 0.3 * best < trust.luck < 3 * best
    assert trust.corrected is not None and trust.corrected.corrected < trust.corrected.naive
    words = _words(analysis, trust)["Luck of the winner"]
    assert "best of 17 equally good configurations" in words and "redrawn queries" in words


def test_a_collapsed_seed_of_another_cell_is_no_luck_of_the_winner(tmp_path: Path) -> None:
    calm = assess(_analysis(tmp_path / "calm", effect=0.06)).luck
    found = assess(_analysis(tmp_path / "one", effect=0.06, fates={(1, 2): "collapsed"})).luck
    assert calm is not None and found is not None and found < 1.5 * calm


def test_the_best_gain_says_that_it_is_the_best_of_many(tmp_path: Path) -> None:
    words = _words(_analysis(tmp_path, effect=0.06))
    assert "it is the best of 4" in words["Size of the best gain"]
    assert "honest" not in " ".join(words.values()) and "--confirm" in words["Chosen on dev"]


def test_without_collapsed_seeds_a_deterministic_baseline_still_has_a_p(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, effect=0.06, fates={(2, 2): "collapsed"})
    described = json.loads((folder / "sweep.json").read_text())
    described["deterministic"] = [described["baseline"]]
    (folder / "sweep.json").write_text(json.dumps(described))
    for name in ("trials", "per_query"):
        table = pd.read_parquet(folder / f"{name}.parquet")
        repeated = (table["cell"] == described["baseline"]) & (table["seed"] > 1)
        table[~repeated].to_parquet(folder / f"{name}.parquet")
    (found,) = assess(analyse(load_sweep(folder))).collapsed
    assert found.without is not None and found.without.p_both < 1


def test_with_one_seed_only_what_one_seed_can_tell_is_said(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, seeds=(1,), num_queries=40)
    trust = assess(analysis)
    assert (trust.components, trust.luck, trust.corrected) == (None, None, None)
    assert trust.limits == [] and grid_factors(analysis) == [] and analysis.gains == {}
    assert list(_words(analysis, trust)) == ["Retraining", "Chosen on dev"]
    page = (write_report(analysis.sweep.folder).folder / "index.html").read_text()
    assert page.count("Three seeds per cell are the least") == 1
    assert not re.search(r"\bnan\b", re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL))


def test_a_cell_that_scatters_more_than_the_others_is_named(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, seeds=(1, 2, 3, 4, 5), fates={(2, 2): "collapsed"})
    words = _words(analysis)["Retraining"]
    assert "the cells are not alike" in words and "MaxP 64/48 scatters by" in words


def test_results_stand_with_and_without_collapsed_seeds(tmp_path: Path) -> None:
    fates = {(1, 1): "collapsed", (3, 1): "collapsed", (3, 2): "collapsed", (3, 3): "collapsed"}
    folder = write_sweep(tmp_path, fates=fates, effect=0.06)
    analysis = analyse(load_sweep(folder))
    touched = {one.reported.system: one for one in assess(analysis).collapsed}
    first, second = sorted(touched)
    assert first.startswith("maxp-w128-s128") and touched[first].without is None
    found = touched[second]
    assert found.without is not None
    assert found.reported.delta < 0 < found.without.delta
    assert found.without.num_seeds_system == 2
    page = (write_report(folder).folder / "index.html").read_text()
    assert "With and without collapsed seeds" in page and "no seed left" in page


def test_without_a_collapse_nothing_is_said_about_one(tmp_path: Path) -> None:
    assert assess(_analysis(tmp_path, num_queries=40)).collapsed == []


def test_the_factors_of_a_grid_are_tested_before_its_cells(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, kinds=EIGHTEEN, effect=0.06)
    (grid,) = grid_factors(analysis)
    assert [test.factor for test in grid.tests] == [
        "window", "stride", "interaction", "any difference",
    ]  # fmt: skip
    assert grid.num_cells == 17
    (text,) = factor_sentences(analysis, [grid])
    assert text.startswith("Taken together, the 17 cells of the grid differ (F(")
    assert "Window: matters (F(" in text and "Stride: " in text and "Interaction: " in text


def test_a_grid_in_which_window_and_stride_move_together_says_so(tmp_path: Path) -> None:
    kinds = [("FirstP", 64, 64), *(("MaxP", window, window // 2) for window in (32, 64, 128))]
    analysis = _analysis(tmp_path, kinds=kinds, num_queries=60)
    (text,) = factor_sentences(analysis, grid_factors(analysis))
    assert "their effects cannot be told apart" in text and "Interaction" not in text


def test_factors_are_tested_again_without_collapsed_seeds(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, kinds=EIGHTEEN, effect=0.06, fates={(5, 1): "collapsed"})
    with_all, without = grid_factors(analysis)
    assert not with_all.without_collapsed and without.without_collapsed
    assert without.tests[-1].p < with_all.tests[-1].p
    assert factor_sentences(analysis, [with_all, without])[1].startswith("Without collapsed seeds")


def test_a_screening_sweep_is_corrected_for_its_share_and_called_exploratory(
    tmp_path: Path,
) -> None:
    kinds = [FIVE[0], *(("MaxP", 50 + 10 * step, 50) for step in range(20))]
    folder = write_sweep(tmp_path, kinds=kinds, num_queries=30, correction=None)
    analysis = analyse(load_sweep(folder))
    assert {one.correction for one in analysis.comparisons} == {"bh"}
    assert "Exploratory" in correction_note(analysis)
    small = _analysis(tmp_path / "small", num_queries=30, correction=None)
    assert {one.correction for one in small.comparisons} == {"holm"}
    assert correction_note(small) == ""


def test_relative_gains_are_in_the_results(tmp_path: Path) -> None:
    report = write_report(write_sweep(tmp_path, effect=0.06))
    results = json.loads((report.folder / "results.json").read_text())
    gains = {(one["measure"], one["system"]): one for one in results["relative_gains"]}
    for one in report.comparisons:
        found = gains[one.measure, one.system]
        assert found["gain"] == pytest.approx(one.relative_gain)
        assert found["low"] < found["gain"] < found["high"]
        if min(abs(one.ci_low), abs(one.ci_high)) > 0.003:
            assert (found["low"] > 0) == (one.ci_low > 0)


def test_cells_below_the_first_stage_are_named(tmp_path: Path) -> None:
    first = {"nDCG@10": 0.99, "RR@10": 0.99}
    analysis = _analysis(tmp_path, num_queries=40, first_stage=first)
    assert "Every cell lies below the first stage (nDCG@10 0.990)" in below_first_stage(analysis)
    assert below_first_stage(_analysis(tmp_path / "b", num_queries=40, first_stage={})) == ""


def test_the_first_stage_is_not_below_itself(tmp_path: Path) -> None:
    lowest = min(one.mean("nDCG@10") for one in _analysis(tmp_path, num_queries=40).cells)
    summed_otherwise = {"nDCG@10": math.nextafter(lowest, 1.0), "RR@10": 0.0}
    again = _analysis(tmp_path / "b", num_queries=40, first_stage=summed_otherwise)
    assert below_first_stage(again) == ""


def test_a_baseline_that_no_seed_changes_does_not_silence_the_rest(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, effect=0.06)
    described = json.loads((folder / "sweep.json").read_text())
    described["deterministic"] = [described["baseline"]]
    (folder / "sweep.json").write_text(json.dumps(described))
    for name in ("trials.parquet", "per_query.parquet"):
        table = pd.read_parquet(folder / name)
        keep = (table["cell"] != described["baseline"]) | (table["seed"] == 1)
        table[keep].to_parquet(folder / name)
    words = _words(analyse(load_sweep(folder)))
    assert "FirstP, is one run that every seed would repeat" in words["Retraining"]
    assert {"Smallest visible difference", "Size of the best gain"} <= words.keys()
