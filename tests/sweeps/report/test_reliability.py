"""How reliable the numbers are: components, limits, selection, factors, and their sentences."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from rank_core.stats.compare import false_positive_interval
from rank_core.stats.scopes import confidence_interval
from sweeps.report.analysis import Analysis, analyse
from sweeps.report.build import write_report
from sweeps.report.conclusions import (
    answer,
    below_first_stage,
    certainty,
    conclusions,
    paired_t_test,
)
from sweeps.report.load import load_sweep
from sweeps.report.page import Findings, sentences
from sweeps.report.reliability import (
    assess,
    reliability_sentences,
    stability,
)
from sweeps.report.results import shared_results
from tests.sweeps.report.test_load import (
    EIGHTEEN,
    FIVE,
    read_values,
    redescribe,
    write_sweep,
    write_values,
)

pytestmark = pytest.mark.usefixtures("no_figures")


def _analysis(folder: Path, **changes: Any) -> Analysis:
    return analyse(load_sweep(write_sweep(folder, **changes)))


def _findings(analysis: Analysis) -> Findings:
    return Findings(analysis, assess(analysis))


def _words(analysis: Analysis) -> str:
    return " ".join(reliability_sentences(analysis, assess(analysis)))


def _with_fixed_baseline(folder: Path) -> Analysis:
    """The sweep, whose baseline has one run and no seeds."""
    described = json.loads((folder / "sweep.json").read_text())
    described["deterministic"] = [described["baseline"]]
    redescribe(folder, described)
    table = read_values(folder)
    repeated = (table["cell"] == described["baseline"]) & (table["seed"] > 1)
    write_values(folder, table[~repeated])
    return analyse(load_sweep(folder))


def test_a_report_has_at_most_eight_sentences(tmp_path: Path) -> None:
    analysis = _analysis(
        tmp_path,
        effect=0.06,
        fates={(2, 2): "collapsed", (3, 1): "failed"},
        search={"name": "tpe", "seed": 3, "num_configs": 9, "proposed": 4, "space": 12},
        first_stage={"nDCG@10": 0.99, "RR@10": 0.99},
        stopped="the budget",
    )
    shown = sentences(_findings(analysis))
    assert len(shown) == len(set(shown)) == 8
    results = json.loads((write_report(tmp_path).folder / "results.json").read_text())
    assert results["conclusions"] == shown


def test_the_best_gain_has_the_interval_of_the_best_of_many(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, effect=0.06)
    judged, best = assess(analysis), analysis.best
    assert best is not None and best.delta == max(pair.delta for pair in analysis.primary)
    (limits,) = [one for one in judged.limits if one.system == best.system]
    assert len(judged.limits) == len(analysis.primary) == 4
    low, high = confidence_interval(analysis.tests[best.measure, best.system], 1 - 0.05 / 4)
    assert low <= best.family_low < best.ci_low and best.ci_high < best.family_high <= high
    words = _words(analysis)
    between = judged.between_best
    assert between is not None and between.systems[0] == best.system
    assert f"{between.detectable:.3f} between MaxP 128/64 and " in words
    assert f"MaxP 128/64, the best of 4, gains +{best.delta:.3f}; " in words
    assert f"is +{best.family_low:.3f} to" in words and limits.equivalence_p > 0.99
    assert "practically equivalent" not in words
    assert stability(analysis, judged).startswith("MaxP 128/64 has the best mean")


def test_the_report_begins_with_the_systems_not_distinguishable_from_the_best(
    tmp_path: Path,
) -> None:
    analysis = _analysis(tmp_path, effect=0.3, seed_deviation=0.001)
    found = analysis.best_set
    assert found is not None and len(found.members) + len(found.left) == len(analysis.cells)
    assert found.members and found.left, "large differences and small ones"
    first = conclusions(analysis)[0]
    assert first.startswith(f"Best on {analysis.sweep.primary} (")
    for system in found.members:
        assert analysis.sweep.label(system) in first
    for system in found.left:
        assert analysis.sweep.label(system) not in first
    (stored,) = [
        one
        for one in shared_results(analysis)["not_distinguishable_from_the_best"]
        if one["measure"] == analysis.sweep.primary
    ]
    assert tuple(stored["members"]) == found.members


def test_the_false_positive_rate_of_the_paired_t_test_has_its_interval(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, seed_deviation=0.03)
    worst = max(analysis.primary, key=lambda one: one.predicted_false_positive_rate)
    rate, test = worst.predicted_false_positive_rate, analysis.tests["nDCG@10", worst.system]
    low, high = false_positive_interval(test)
    assert 0.2 < rate and low < rate < high
    shown = f"of up to {100 * rate:.0f}% ({100 * low:.0f}% to {100 * high:.0f}%), not 5%"
    assert shown in paired_t_test(analysis)


def test_an_interval_that_no_measure_fills_has_no_numbers(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, num_queries=2, seeds=(1, 2), seed_deviation=0.2)
    assert any(one.ci_high - one.ci_low > 2 for one in analysis.primary)
    page = (write_report(tmp_path).folder / "index.html").read_text()
    assert "too wide" in answer(analysis)
    assert not re.search(r"[+−]\d*[2-9]\.\d{3}", page)


def test_a_wider_sweep_sees_smaller_differences(tmp_path: Path) -> None:
    few, many = (
        assess(_analysis(tmp_path / str(count), seeds=tuple(range(1, count + 1))))
        for count in (3, 8)
    )
    least = min(one.detectable for one in few.limits)
    assert least > min(one.detectable for one in many.limits)
    assert all(one.detectable_low < one.detectable < one.detectable_high for one in few.limits)


def test_the_choice_on_dev_is_reported_with_its_test_mean(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, effect=0.06)
    table = read_values(folder)
    chosen = (table["split"] == "dev") & table["cell"].str.startswith("maxp-w64-s48")
    table.loc[chosen, "value"] = 0.9
    write_values(folder, table)
    analysis = analyse(load_sweep(folder))
    mean = next(s.mean("nDCG@10") for s in analysis.cells if s.cell.label == "MaxP 64/48")
    assert f"MaxP 64/48, nDCG@10 0.900 on dev and {mean:.3f} on test" in " ".join(
        conclusions(analysis)
    )


def test_the_gain_of_the_best_of_equals_is_corrected_for_the_choice(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, kinds=EIGHTEEN, effect=0.0, num_queries=60)
    corrected = assess(analysis).corrected
    assert corrected is not None and corrected.corrected < corrected.naive
    assert f"the gain is {corrected.corrected:+.3f}".replace("-", "−") in _words(analysis)


def test_a_baseline_without_seeds_has_a_p_and_silences_nothing(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, effect=0.06, fates={(2, 2): "collapsed"})
    analysis = _with_fixed_baseline(folder)
    assert all(one.p_both < 1 for one in analysis.primary)
    assert "seeds differ in mean nDCG@10" in _words(analysis) and "best of 4" in _words(analysis)


def test_with_one_seed_only_what_one_seed_can_tell_is_said(tmp_path: Path) -> None:
    analysis = _analysis(tmp_path, seeds=(1,), num_queries=40)
    judged = assess(analysis)
    assert (judged.components, judged.corrected, judged.limits) == (None, None, [])
    assert judged.factors == [] and _words(analysis) == ""
    page = (write_report(tmp_path).folder / "index.html").read_text()
    assert page.count("One planned comparison needs three seeds") == 1
    assert page.count("†: one training run") == 1 and not re.search(r"\bnan\b", page)


def test_a_screening_sweep_is_corrected_for_its_share(tmp_path: Path) -> None:
    kinds = [FIVE[0], *(("MaxP", 50 + 10 * step, 50) for step in range(20))]
    many = _analysis(tmp_path / "many", kinds=kinds, num_queries=30, correction=None)
    few = _analysis(tmp_path / "few", num_queries=30, correction=None)
    for analysis, correction in ((many, "bh"), (few, "max-t")):
        assert {one.correction for one in analysis.comparisons} == {correction}
        assert ("may be false" in certainty(analysis)) == (correction == "bh")


def test_cells_below_the_first_stage_are_named_and_the_first_stage_is_not(tmp_path: Path) -> None:
    first = {"nDCG@10": 0.99, "RR@10": 0.99}
    analysis = _analysis(tmp_path / "a", num_queries=40, first_stage=first)
    assert "Every system lies below the first stage (nDCG@10 0.990)" in below_first_stage(analysis)
    lowest = min(one.mean("nDCG@10") for one in analysis.cells)
    summed_otherwise = {"nDCG@10": math.nextafter(lowest, 1.0), "RR@10": 0.0}
    for name, values in (("b", {}), ("c", summed_otherwise)):
        again = _analysis(tmp_path / name, num_queries=40, first_stage=values)
        assert below_first_stage(again) == ""
