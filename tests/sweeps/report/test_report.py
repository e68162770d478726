"""The report of a sweep: what it says, what it never hides, and the files it writes."""

import csv
import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rank_core.errors import BadInput
from rank_core.stats.compare import compare_cells
from rank_core.stats.matrix import score_matrix
from sweeps.commands.report import main
from sweeps.findings.analysis import analyse
from sweeps.report import build
from sweeps.report.build import Report, write_report
from sweeps.report.figures import heat_map
from sweeps.report.next_step import next_step
from sweeps.report.results import COMPARISON_COLUMNS, paper_table
from sweeps.report.table import latex, markdown
from sweeps.report.terminal import table_text
from sweeps.store.sweep_file import read_sweep_file
from sweeps.systems.load import load_sweep
from tests.sweeps.systems.test_load import EIGHTEEN, FIVE, read_values, redescribe, write_sweep

FILES = ["comparisons.csv", "index.html", "results.json", "table.csv", "table.md", "table.tex"]

PLOTS = {"forest", "heat", "learning", "pareto", "queries", "strip"}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Five cells, three seeds each, a clear effect."""
    return write_report(
        write_sweep(tmp_path_factory.mktemp("healthy"), num_queries=100, effect=0.08, log=True),
        verbose=True,
    )


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Eighteen cells in which everything that can go wrong went wrong once."""
    fates = {(3, 2): "failed", (5, 1): "collapsed", (9, 3): "running", (10, 3): "planned"}
    fates |= {(7, 1): "failed", (7, 2): "failed", (7, 3): "diverged"}
    folder = tmp_path_factory.mktemp("damaged")
    return write_report(
        write_sweep(folder, kinds=EIGHTEEN, fates=fates, num_queries=60), verbose=True
    )


def _page(report: Report) -> str:
    return (report.folder / "index.html").read_text(encoding="utf-8")


def _results(report: Report) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads((report.folder / "results.json").read_text(), parse_constant=refuse)


def test_the_comparisons_are_those_of_the_statistics_unrounded(healthy: Report) -> None:
    lines = list(csv.DictReader((healthy.folder / "comparisons.csv").open()))
    scores = read_values(healthy.folder.parent)
    scores = scores[scores["split"] == "test"]
    cells = [cell.cell for cell in read_sweep_file(healthy.folder.parent).cells]
    expected = [
        one
        for measure in ("nDCG@10", "RR@10")
        for one in compare_cells(
            score_matrix(scores, measure=measure, cells=cells),
            baseline=cells[0],
            correction="holm",
        )
    ]
    assert list(lines[0]) == COMPARISON_COLUMNS
    assert healthy.comparisons == expected
    assert [line["system"] for line in lines] == [one.system for one in expected]
    assert [float(line["p_both_adjusted"]) for line in lines] == [
        one.p_both_adjusted for one in expected
    ]


def test_every_file_is_written_and_nothing_temporary_stays(healthy: Report) -> None:
    assert sorted(path.name for path in healthy.folder.iterdir() if path.is_file()) == FILES
    assert {path.stem for path in (healthy.folder / "plots").glob("*.svg")} == PLOTS
    assert {path.stem for path in (healthy.folder / "plots").glob("*.png")} == PLOTS
    assert sorted(path.name for path in healthy.folder.parent.iterdir()) == [
        "report",
        "sweep.json",
        "test_access.jsonl",
        "trials",
    ]


def test_the_page_needs_no_other_file_and_ids_of_figures_do_not_clash(healthy: Report) -> None:
    page = _page(healthy)
    assert not re.findall(r"<(?:link|img|iframe|object)\b|@import|\bsrc=", page)
    assert not re.findall(r'(?:href="|url\()(?!#|data:image/png;base64,)', page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    clips = [one for one in ids if not one.endswith(("-DejaVuSans", "_1"))]
    assert len(clips) == len(set(clips))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', page)) <= set(ids)


def test_the_headline_has_the_interval_of_the_family(healthy: Report) -> None:
    results = json.loads((healthy.folder / "results.json").read_text())
    choice = results["choice"]["system"]
    [own] = [
        one for one in healthy.comparisons if one.measure == "nDCG@10" and one.system == choice
    ]
    interval = f"{own.delta:+.3f} [{own.family_low:.3f}, {own.family_high:.3f}] over FirstP"
    assert f"Use {results['choice']['label']}: nDCG@10 " in healthy.text
    assert interval in " ".join(healthy.text.split())


def test_lost_seeds_are_counted_and_named(damaged: Report) -> None:
    results = json.loads((damaged.folder / "results.json").read_text())
    rows = {row["name"]: row for row in results["findings"] if row["question"] == "losses"}
    for words, lost in (
        ("trials failed", ["MaxP 75/25 (2)", "MaxP 100/50 (1, 2)"]),
        ("trials diverged", ["MaxP 100/50 (3)"]),
        ("trials collapsed", ["MaxP 75/75 (1)"]),
        ("trials still running", ["MaxP 100/100 (3)"]),
        ("trials not started", ["MaxP 150/25 (3)"]),
    ):
        assert rows[words]["names"] == lost
        assert all(name in text for name in lost for text in (_page(damaged), damaged.text))


def test_a_cell_with_a_missing_seed_is_compared_with_the_others(damaged: Report) -> None:
    by_system = {
        one.system: one
        for one in damaged.comparisons
        if one.measure == damaged.comparisons[0].measure
    }
    (lost,) = [one for name, one in by_system.items() if name.startswith("maxp-w75-s25-")]
    assert (lost.num_seeds_system, lost.num_seeds_baseline) == (2, 3)
    assert re.search(r"MaxP 75/25 +2/3 ", damaged.text)
    assert not [name for name in by_system if name.startswith("maxp-w100-s50-")]
    assert lost.family_size == len(by_system) == 16


def test_undefined_numbers_are_null_in_json_and_empty_in_csv(damaged: Report) -> None:
    cells = {one["label"]: one for one in _results(damaged)["cells"]}
    assert cells["MaxP 100/50"]["measures"]["nDCG@10"] == {"mean": None, "per_seed": {}}
    collapsed = cells["MaxP 75/75"]["measures"]["nDCG@10"]
    per_seed = collapsed["per_seed"]
    assert per_seed["1"] < 0.1 < per_seed["2"]
    assert collapsed["mean"] == pytest.approx(sum(per_seed.values()) / 3)
    assert "nan" not in (damaged.folder / "comparisons.csv").read_text()
    lost = [row for row in _results(damaged)["lost_attempts"] if "-w75-s25-" in row["cell"]]
    assert [(row["seed"], row["attempt"], row["again"]) for row in lost] == [
        (2, 1, True), (2, 2, True), (2, 3, False),
    ]  # fmt: skip


def test_the_terminal_gets_no_line_beyond_its_width(damaged: Report) -> None:
    lines = [line for line in damaged.text.splitlines() if not line.startswith("Report: ")]
    assert max(map(len, lines)) <= 80
    assert damaged.text.endswith(f"Report: {damaged.folder / 'index.html'}\n")
    # At 370 pixels, those of a telephone, the letters of a figure have 8 of their 12.5.
    widths = re.findall(r"width: (\d+)px; min-width: \d+px", _page(damaged))
    assert len(widths) >= 3 and max(map(int, widths)) <= 560


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"fates": {(0, seed): "failed" for seed in (1, 2, 3)}}, "not compared with another"),
        ({"kinds": FIVE[:1]}, "Keep FirstP (nDCG@10 "),
        ({"fates": {(n, s): "failed" for n in range(5) for s in (1, 2, 3)}}, "Nothing was chosen"),
    ],
)
def test_without_a_pair_of_systems_there_is_a_report_and_no_comparison(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    report = write_report(write_sweep(tmp_path, num_queries=20, **changes), verbose=True)
    assert report.comparisons == []
    assert why in " ".join(report.text.split())
    heading = ",".join(COMPARISON_COLUMNS)
    assert (report.folder / "comparisons.csv").read_text() == f"{heading}\n"
    assert "FirstP" in (report.folder / "table.md").read_text()


@pytest.mark.parametrize(
    ("seeds", "words", "absent"),
    [
        ((1,), "†: one training run", ""),
        ((1, 2), "Two seeds give no upper-case letter", "†"),
        ((1, 2, 3), "seed variances moderated over all of them (Smyth 2004)", "†"),
    ],
)
def test_few_seeds_are_said_to_be_few(
    tmp_path: Path, seeds: tuple[int, ...], words: str, absent: str
) -> None:
    folder = write_sweep(tmp_path, seeds=seeds, effect=0.06, num_queries=100)
    analysis = analyse(load_sweep(folder))
    shown = markdown(paper_table(analysis))
    assert words in shown and (len(seeds) == 1 or absent not in shown)
    upper = any(one.significant(0.05) for one in analysis.primary)
    assert upper == (len(seeds) > 2)
    step = next_step(analysis)
    assert step and ("three seeds" in step.why) == (len(seeds) < 3)
    sweep = analysis.sweep
    smoke_test = replace(sweep, about=replace(sweep.about, smoke_test=True))
    assert not next_step(replace(analysis, sweep=smoke_test))
    for text in (shown, latex(paper_table(analysis)), table_text(analysis)):
        assert bool(re.search(r"\(p\)|p in parentheses", text)) == (len(seeds) == 2)
        assert bool(re.search(r"\(\D*\.\d{3}\)", text)) == (len(seeds) == 2)


def test_the_heat_map_is_drawn_of_a_crossed_grid_alone(healthy: Report, tmp_path: Path) -> None:
    heat = _page(healthy).split("<h2>Window and stride</h2>")[1].split("<h2>")[0]
    drawn = re.findall(r"<!-- (.*?) -->", heat)
    assert "stride (tokens)" in drawn and "window" in drawn and "FirstP" not in drawn
    diagonal = [FIVE[0], *(("MaxP", window, window // 2) for window in (32, 64, 128))]
    analysis = analyse(load_sweep(write_sweep(tmp_path, kinds=diagonal, num_queries=20)))
    assert heat_map(analysis) is None


@pytest.mark.usefixtures("no_figures")
def test_paired_seeds_that_do_not_match_are_compared_as_unpaired(tmp_path: Path) -> None:
    whole = write_report(write_sweep(tmp_path / "a", num_queries=40, paired_seeds=True))
    fates = {(1, 2): "failed"}
    holed = write_report(
        write_sweep(tmp_path / "b", num_queries=40, paired_seeds=True, fates=fates)
    )
    assert _results(whole)["seeds_compared_as_paired"] is True
    assert _results(holed)["seeds_compared_as_paired"] is False
    assert "compared as unpaired" in _page(holed)
    assert "compared as unpaired" not in _page(whole)


@pytest.mark.usefixtures("no_figures")
def test_labels_are_told_apart_and_words_of_the_sweep_cannot_break_the_page(tmp_path) -> None:
    kinds = [("FirstP", 64, 64), ("FirstP", 128, 128), ("MaxP", 64, 64)]
    question = 'Is <b>"this"</b> & that safe?'
    report = write_report(write_sweep(tmp_path, kinds=kinds, num_queries=20, question=question))
    assert "<h1>Is &lt;b&gt;&#34;this&#34;&lt;/b&gt; &amp; that safe?</h1>" in _page(report)
    assert "FirstP (firstp-w128-s128-000000000001)" in (report.folder / "table.csv").read_text()


@pytest.mark.usefixtures("no_figures")
def test_the_command_prints_the_report_and_refuses_another_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_sweep(tmp_path / "sweep", num_queries=20)
    assert main([str(folder)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("window_stride: Which window") and "index.html" in printed
    with pytest.raises(BadInput, match=r"found none in .* it holds the folders of sweeps: sweep$"):
        main([str(tmp_path)])


@pytest.mark.usefixtures("no_figures")
def test_a_sample_of_the_queries_is_said_wherever_the_numbers_are(healthy, tmp_path) -> None:
    folder = write_sweep(tmp_path, num_queries=40)
    redescribe(folder, collection={**read_sweep_file(folder).collection, "sampled_from": 400})
    report, words = write_report(folder, verbose=True), "test, a sample of its 400 queries"
    assert "test, 40 sampled from its 400 queries" in " ".join(report.text.split())
    assert f"Split {words}." in (report.folder / "table.md").read_text()
    assert f"40 queries of split {words}" in _page(report)
    assert "sample of" not in healthy.text + (healthy.folder / "table.md").read_text()


def test_a_report_without_room_names_its_folder_and_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path, files: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sweep = write_sweep(tmp_path, num_queries=8)
    monkeypatch.setattr(build, "write_files", full)
    with pytest.raises(BadInput, match=r"report: No space left .*trials are kept.*same command"):
        write_report(sweep)
