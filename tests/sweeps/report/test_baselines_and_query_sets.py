"""Own baselines and pooled query sets, from the folder to the page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeps.report.analysis import analyse
from sweeps.report.build import Report, write_report
from sweeps.report.load import load_sweep
from sweeps.report.summary import query_set_means, query_sets
from sweeps.report.terminal import terminal_text
from tests.sweeps.report.test_load import read_values, redescribe, write_sweep, write_values

pytestmark = pytest.mark.usefixtures("no_figures")


def described(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The sweep with its description changed."""
    content = json.loads((folder / "sweep.json").read_text())
    change(content)
    redescribe(folder, content)
    return folder


def with_own_baselines(folder: Path) -> Path:
    """The last two of five cells are compared with the second as well, which is its own."""

    def declare(content: dict[str, Any]) -> None:
        names = [one["cell"] for one in content["cells"]]
        content["baselines"] = {name: names[1] for name in (names[1], names[3], names[4])}

    return described(write_sweep(folder, effect=0.08), declare)


def results_of(report: Report) -> Any:
    return json.loads((report.folder / "results.json").read_text())


def page_of(report: Report) -> str:
    return (report.folder / "index.html").read_text(encoding="utf-8")


def test_each_system_is_compared_with_its_own_baseline_too(tmp_path: Path) -> None:
    report = write_report(with_own_baselines(tmp_path))
    results = results_of(report)
    names = [one["cell"] for one in results["cells"]]
    own = results["further_comparisons"]
    assert [(c["measure"], c["system"], c["baseline"]) for c in own] == [
        (measure, system, names[1]) for measure in ("nDCG@10", "RR@10") for system in names[3:]
    ]
    assert {c["family_size"] for c in own} == {2}
    assert 'class="letter">AB</span>' in page_of(report)
    assert "<sup>AB</sup>" in (report.folder / "table.md").read_text()
    first = {(c["measure"], c["system"]): c for c in results["comparisons"]}
    for one in own:
        place = one["measure"], one["system"]
        expected = first[place]["mean_system"] - one["mean_baseline"]
        assert one["delta"] == pytest.approx(expected, abs=1e-12)


def test_an_own_baseline_that_never_finished_is_left_out(tmp_path: Path) -> None:
    fates = {(1, seed): "failed" for seed in (1, 2, 3)}

    def declare(content: dict[str, Any]) -> None:
        names = [one["cell"] for one in content["cells"]]
        content["baselines"] = {names[3]: names[1], names[4]: names[2]}

    analysis = analyse(
        load_sweep(described(write_sweep(tmp_path, fates=fates, num_queries=60), declare))
    )
    names = [one.cell for one in analysis.sweep.cells]
    assert {one.system for one in analysis.further} == {names[4]}
    assert "baseline" in terminal_text(analysis, tmp_path)


def pooled_sweep(folder: Path) -> Path:
    write_sweep(folder, num_queries=60)
    table = read_values(folder)
    number = {name: at for at, name in enumerate(sorted(table["query_id"].unique()))}
    table["query_id"] = [
        f"{'dl19' if number[name] < 20 else 'dl20'}/{name}" for name in table["query_id"]
    ]
    write_values(folder, table)
    return folder


def test_query_sets_are_counted_and_shown_beside_the_mean_over_all_queries(tmp_path: Path) -> None:
    report = write_report(pooled_sweep(tmp_path))
    analysis = analyse(load_sweep(tmp_path))
    assert query_sets(analysis.sweep) == {"dl19": 20, "dl20": 40}
    for one in analysis.cells:
        own = query_set_means(analysis.sweep)[one.cell.cell]
        pooled = (20 * own["dl19"] + 40 * own["dl20"]) / 60
        assert one.mean("nDCG@10") == pytest.approx(pooled, rel=1e-12)
    page = page_of(report)
    assert "60 queries (dl19 20, dl20 40) of split test" in page
    assert "nDCG@10 by query set" in page and "<th>dl20 (40)</th>" in page
    assert results_of(report)["query_sets"]["sizes"] == {"dl19": 20, "dl20": 40}
