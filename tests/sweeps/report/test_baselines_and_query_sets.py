"""Own baselines and pooled query sets, from the folder to the page."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.findings.analysis import analyse
from sweeps.report.build import write_report
from sweeps.systems.load import load_sweep
from sweeps.systems.summary import query_set_means, query_sets
from tests.sweeps.systems.test_load import NAMES, read_values, write_sweep, write_values

pytestmark = pytest.mark.usefixtures("no_figures")


def test_each_system_is_compared_with_its_own_baseline_too(tmp_path: Path) -> None:
    declared = dict.fromkeys((NAMES[1], *NAMES[3:]), NAMES[1])
    report = write_report(write_sweep(tmp_path, effect=0.08, baselines=declared)).folder
    results = json.loads((report / "results.json").read_text())
    own = results["further_comparisons"]
    assert [(c["measure"], c["system"], c["baseline"]) for c in own] == [
        (measure, system, NAMES[1]) for measure in ("nDCG@10", "RR@10") for system in NAMES[3:]
    ]
    assert {c["family_size"] for c in own} == {2}
    assert 'class="letter">AB</span>' in (report / "index.html").read_text()
    assert "<sup>AB</sup>" in (report / "table.md").read_text()
    first = {(c["measure"], c["system"]): c for c in results["comparisons"]}
    for one in own:
        place = one["measure"], one["system"]
        expected = first[place]["mean_system"] - one["mean_baseline"]
        assert one["delta"] == pytest.approx(expected, abs=1e-12)


def test_all_families_of_a_table_share_alpha_where_that_is_asked_for(tmp_path: Path) -> None:
    """Two measures and two letters are four families: every p is four times as large."""
    declared = dict.fromkeys((NAMES[1], *NAMES[3:]), NAMES[1])
    folder = write_sweep(tmp_path, effect=0.02, baselines=declared, correction="holm")

    def told(**over: str) -> tuple[dict[tuple[str, ...], float], list[float]]:
        results = json.loads((write_report(folder, **over).folder / "results.json").read_text())
        listed = [*results["comparisons"], *results["further_comparisons"]]
        p = {(c["measure"], c["system"], c["baseline"]): c["p_both_adjusted"] for c in listed}
        rows = [row for row in results["findings"] if row["name"] == "families that share alpha"]
        return p, [row["value"] for row in rows]

    own, said = told()
    assert said == []
    over, shared = told(correct_over="table")
    assert over == pytest.approx({key: min(1, 4 * p) for key, p in own.items()})
    assert any(0 < p < 0.2 for p in own.values())
    assert shared == [4]
    about = load_sweep(folder).about
    about = replace(about, tests=replace(about.tests, correct_over="table"))
    analysis = analyse(replace(load_sweep(folder), about=about))
    assert {c.family_size for c in analysis.comparisons} == {16}


def test_an_own_baseline_that_never_finished_is_left_out(tmp_path: Path) -> None:
    fates = {(1, seed): "failed" for seed in (1, 2, 3)}
    declared = {NAMES[3]: NAMES[1], NAMES[4]: NAMES[2]}
    folder = write_sweep(tmp_path, fates=fates, num_queries=60, baselines=declared)
    report = write_report(folder)
    results = json.loads((report.folder / "results.json").read_text())
    assert {one["system"] for one in results["further_comparisons"]} == {NAMES[4]}
    assert "baseline" in report.text


def test_query_sets_are_counted_and_shown_beside_the_mean_over_all_queries(tmp_path: Path) -> None:
    table = read_values(write_sweep(tmp_path, num_queries=60))
    number = {name: at for at, name in enumerate(sorted(table["query_id"].unique()))}
    table["query_id"] = [
        f"{'dl19' if number[name] < 20 else 'dl20'}/{name}" for name in table["query_id"]
    ]
    write_values(tmp_path, table)
    report = write_report(tmp_path).folder
    analysis = analyse(load_sweep(tmp_path))
    assert query_sets(analysis.sweep) == {"dl19": 20, "dl20": 40}
    for one in analysis.cells:
        own = query_set_means(analysis.sweep)[one.cell.cell]
        pooled = (20 * own["dl19"] + 40 * own["dl20"]) / 60
        assert one.mean("nDCG@10") == pytest.approx(pooled, rel=1e-12)
    page = (report / "index.html").read_text()
    assert "60 queries (dl19 20, dl20 40) of split test" in page
    assert "nDCG@10 by query set" in page and '<th scope="col">dl20 (40)</th>' in page
    results = json.loads((report / "results.json").read_text())
    assert results["query_sets"]["sizes"] == {"dl19": 20, "dl20": 40}
