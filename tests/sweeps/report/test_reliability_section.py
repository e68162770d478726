"""The section on reliability: numbers, sentences, and what one seed leaves out."""

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rank_core.seeding import generator
from rank_core.stats.compare import false_positive_interval
from rank_core.stats.scopes import confidence_interval
from sweeps.report.analysis import Analysis, analyse
from sweeps.report.build import write_report
from sweeps.report.conclusions import (
    answer,
    below_first_stage,
    conclusions,
    correction_note,
    paired_t_test,
)
from sweeps.report.factors import factor_text, grid_factors
from sweeps.report.load import load_sweep
from sweeps.report.reliability import Reliability, assess
from sweeps.report.sections.reliability import TITLE, reliability_lines
from tests.sweeps.report.test_load import EIGHTEEN, FIVE, write_sweep

pytestmark = pytest.mark.usefixtures("no_figures")


def _analysis(folder: Path, **changes: Any) -> Analysis:
    return analyse(load_sweep(write_sweep(folder, **changes)))


def _words(analysis: Analysis, trust: Reliability | None = None) -> dict[str, str]:
    return dict(reliability_lines(analysis, trust or assess(analysis)))


def test_the_section_is_one_fold_of_at_most_six_lines_each_with_an_interval(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, effect=0.06, fates={(2, 2): "collapsed"})
    page = (write_report(folder).folder / "index.html").read_text()
    fold = page.split(f"<summary>{TITLE}</summary>")[1].split("</details>")[0]
    lines = re.findall("<dd>(.*?)</dd>", fold)
    assert len(lines) == 6
    for line in lines:
        assert re.search(r"\d%? to [+−]?\d", line) and len(line.split()) <= 60, line
    assert "<table" not in fold


def test_the_best_gain_has_the_interval_of_the_best_of_many(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, effect=0.06)
    trust = assess(analysis)
    best = max(analysis.primary, key=lambda one: one.delta)
    (limits,) = [one for one in trust.limits if one.system == best.system]
    assert len(trust.limits) == len(analysis.primary) == 4
    test = analysis.tests[best.measure, best.system]
    family = confidence_interval(test, 1 - 0.05 / 4)
    assert (limits.family_low, limits.family_high) == family
    assert limits.family_low < best.ci_low and best.ci_high < limits.family_high
    words = _words(analysis, trust)["Selection bias"]
    assert words.startswith(f"MaxP 128/64, the best of 4, gains +{best.delta:.3f}; ")
    assert (
        f"is +{family[0]:.3f} to" in words
        and "Equivalence" not in _words(analysis, trust)
        and limits.equivalence_p > 0.99
    )


def test_equal_cells_may_be_called_practically_equal(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, effect=0.0, num_queries=400, seeds=(1, 2, 3, 4, 5), rope=0.05)
    assert (
        "practically equivalent to the baseline (within ±0.05: p" in _words(analysis)["Equivalence"]
    )


def test_the_false_positive_rate_of_the_paired_t_test_has_its_interval(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, seed_deviation=0.03)
    worst = max(analysis.primary, key=lambda one: one.predicted_false_positive_rate)
    rate, test = worst.predicted_false_positive_rate, analysis.tests["nDCG@10", worst.system]
    low, high = false_positive_interval(test)
    assert 0.2 < rate and low < rate < high
    assert (
        f"of up to {100 * rate:.0f}% ({100 * low:.0f}% to {100 * high:.0f}%), not 5%"
    ) in _words(analysis)["Paired t-test"]
    rates = [
        dataclasses.replace(one, predicted_false_positive_rate=0.0502)
        for one in analysis.comparisons
    ]
    assert paired_t_test(dataclasses.replace(analysis, comparisons=rates)) == ""


def test_an_interval_that_no_measure_fills_has_no_numbers(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, num_queries=2, seeds=(1, 2), seed_deviation=0.2)
    wide = [one for one in analysis.primary if one.ci_high - one.ci_low > 2]
    assert wide and "too wide" in answer(analysis)
    page = (write_report(analysis.sweep.folder).folder / "index.html").read_text()
    assert not re.search(
        r"[+−]\d*[2-9]\.\d{3}", re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    )


def test_a_wider_sweep_sees_smaller_differences(tmp_path: Path) -> None:
    few_seeds, many_seeds = (
        _analysis(tmp_path / str(count), seeds=tuple(range(1, count + 1))) for count in (3, 8)
    )
    few, many = assess(few_seeds), assess(many_seeds)
    assert min(one.detectable for one in few.limits) > min(one.detectable for one in many.limits)
    assert "At the SDs observed" in _words(few_seeds, few)["Detectable difference"]
    assert few.floor is not None and few.floor < min(one.detectable for one in few.limits)
    assert all(one.detectable_low < one.detectable < one.detectable_high for one in few.limits)


def test_more_seeds_are_never_said_to_find_larger_differences_only(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path)
    trust = assess(analysis)
    middle = sorted(limit.detectable for limit in trust.limits)[1]
    assert trust.floor is not None and trust.floor < middle
    below, above = (
        _words(analysis, dataclasses.replace(trust, floor=floor))["Detectable difference"]
        for floor in (trust.floor, 1.01 * middle)
    )
    assert "with any number of seeds" in below and "95% interval" in below
    assert "more seeds would not lower it" in above and "any number" not in above


def test_the_choice_on_dev_is_reported_with_its_test_difference(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, effect=0.06)
    _rewrite_dev(folder, "maxp-w64-s48", 0.9)
    analysis = analyse(load_sweep(folder))
    trust = assess(analysis)
    choice = trust.chosen_on_dev
    assert choice is not None and choice.comparison is not None
    assert choice.comparison.delta < max(one.delta for one in analysis.primary)
    words = _words(analysis, trust)["Selection bias"]
    delta = choice.comparison.delta
    assert words.startswith("MaxP 128/64, the best of 4, gains")
    assert f"The best on dev, MaxP 64/48, gains {delta:+.3f} (" in words
    mean = next(s.mean("nDCG@10") for s in analysis.cells if s.cell.cell == choice.cell)
    assert f"MaxP 64/48, nDCG@10 0.900 on dev and {mean:.3f} on test" in conclusions(analysis)[1]


def test_a_baseline_that_wins_on_dev_is_kept(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, effect=0.06)
    _rewrite_dev(folder, "firstp", 0.95)
    words = _words(analyse(load_sweep(folder)))["Selection bias"]
    assert "The best on dev is the baseline (200 queries)" in words


def _rewrite_dev(folder: Path, prefix: str, value: float) -> None:
    table = pd.read_parquet(folder / "per_query.parquet")
    table.loc[(table["split"] == "dev") & table["cell"].str.startswith(prefix), "value"] = value
    table.to_parquet(folder / "per_query.parquet")


def test_the_gain_of_the_best_of_equals_is_corrected_for_the_choice(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, kinds=EIGHTEEN, effect=0.0, num_queries=60)
    trust = assess(analysis)
    assert trust.corrected is not None and trust.corrected.corrected < trust.corrected.naive
    assert "Corrected for its selection (bootstrap) it is" in _words(analysis)["Selection bias"]


def test_a_collapsed_seed_of_another_cell_does_not_widen_the_gain_of_the_best(
    tmp_path: Path,
) -> None:
    def width(folder: Path, **changes: Any) -> float:
        found = assess(_analysis(folder, effect=0.06, **changes)).limits[-1]
        return found.family_high - found.family_low

    calm = width(tmp_path / "calm")
    assert width(tmp_path / "one", fates={(1, 2): "collapsed"}) < 1.5 * calm


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
    assert (trust.components, trust.corrected, trust.limits) == (None, None, [])
    assert trust.factors == [] and analysis.gains == {}
    assert _words(analysis, trust) == {}
    page = (write_report(analysis.sweep.folder).folder / "index.html").read_text()
    assert page.count("three seeds for one planned comparison") == 1
    assert page.count("†: one training run") == 1 and TITLE not in page
    assert not re.search(r"\bnan\b", re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL))


def test_a_cell_that_scatters_more_than_the_others_is_named(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, seeds=(1, 2, 3, 4, 5), fates={(2, 2): "collapsed"})
    words = _words(analysis)["Seed variance"]
    assert words.startswith("Beyond the noise of 200 queries, seeds differ in mean nDCG@10")
    assert "unequal: MaxP 64/48 0." in words and "skewed or collapses" in words


def test_a_test_that_noise_on_single_queries_makes_cautious_is_named(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, seed_deviation=0.0)
    calm = analyse(load_sweep(folder))
    table = pd.read_parquet(folder / "per_query.parquet")
    noise = generator(1, "noise").uniform(0, 1, len(table))
    table["value"] = 0.5 * table["value"] + 0.5 * noise
    table.to_parquet(folder / "per_query.parquet")
    assert "conservative" in _words(analyse(load_sweep(folder)))["Seed variance"]
    assert "conservative" not in _words(calm)["Seed variance"]


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
    words = _words(analysis)["Collapsed seeds"]
    assert words.startswith("4, which count in all means.") and "of MaxP 64/64 is +" in words


def test_without_a_collapse_nothing_is_said_about_one(tmp_path: Path) -> None:
    assert assess(_analysis(tmp_path, num_queries=40)).collapsed == []


def test_the_factors_of_a_grid_are_tested_before_its_cells(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, kinds=EIGHTEEN, effect=0.06)
    (grid,) = assess(analysis).factors
    assert [test.factor for test in grid.tests] == [
        "window", "stride", "interaction", "any difference",
    ]  # fmt: skip
    assert grid.num_cells == 17
    assert factor_text([grid]).startswith("Factors: window p <.001, stride p ")


def test_a_grid_in_which_window_and_stride_move_together_has_no_factors(tmp_path: Path) -> None:
    kinds = [("FirstP", 64, 64), *(("MaxP", window, window // 2) for window in (32, 64, 128))]
    assert grid_factors(_analysis(tmp_path, kinds=kinds, num_queries=60)) == []


def test_factors_are_tested_again_without_collapsed_seeds(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, kinds=EIGHTEEN, effect=0.06, fates={(5, 1): "collapsed"})
    with_all, without = grid_factors(analysis)
    assert not with_all.without_collapsed and without.without_collapsed
    assert without.tests[-1].p < with_all.tests[-1].p
    assert ". Without collapsed seeds: window p" in factor_text([with_all, without])


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
    assert "Every system lies below the first stage (nDCG@10 0.990)" in below_first_stage(analysis)
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
    assert {"Seed variance", "Detectable difference", "Selection bias"} <= words.keys()
