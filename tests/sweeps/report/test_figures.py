"""The figures of a report: each appears with its data, none without, always the same bytes."""

import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps.findings import power
from sweeps.findings.analysis import Analysis, analyse
from sweeps.report.build import write_report
from sweeps.report.drawing import WIDTH, Drawing, legend, new_figure, style
from sweeps.report.figures import (
    figures,
    learning_curves,
    learning_plot,
    pareto_plot,
    query_bars,
)
from sweeps.systems.load import load_sweep
from tests.sweeps.systems.test_load import EIGHTEEN, FIVE, read_values, write_sweep, write_values


def _analysis(folder: Path, **changes: Any) -> Analysis:
    return analyse(load_sweep(write_sweep(folder, num_queries=40, **changes)))


def _texts(shown: Drawing | None) -> list[str]:
    """What stands in the figure: matplotlib writes each text as a comment above its outlines."""
    assert shown is not None
    return re.findall(r"<!-- (.*?) -->", shown.svg)


def test_learning_curves_are_those_of_trials_that_ended_and_of_others(tmp_path: Path) -> None:
    fates = {(0, 2): "failed", (1, 2): "diverged"}
    folder = write_sweep(tmp_path, num_queries=20, log=True, fates=fates)
    first, second = (cell.cell for cell in load_sweep(folder).cells[:2])
    news = {"step": 1, "num_steps": 9, "curve": [{"step": 1, "loss": 1.0}], "dev": None, "time": 9}
    (folder / "trials" / f"{first}-seed2" / "progress.json").write_text(json.dumps(news))
    curves = learning_curves(load_sweep(folder)).sort_index()
    assert len(curves["loss", first, 1]) == 60 and list(curves["dev", first, 1].index) == [
        20,
        40,
        60,
    ]
    assert max(curves["loss", second, 2].index) == 35
    assert curves["loss", first, 2].to_dict() == {1: 1.0}


@pytest.mark.slow
def test_learning_curves_name_all_of_few_cells_and_a_few_of_many(tmp_path: Path) -> None:
    few = _texts(learning_plot(_analysis(tmp_path / "few", log=True)))
    assert {"FirstP", "MaxP 128/64", "optimiser step", "training loss"} <= set(few)
    many = _analysis(tmp_path / "many", kinds=EIGHTEEN, log=True, fates={(2, 1): "collapsed"})
    texts = _texts(learning_plot(many))
    assert {"other cells", "failed, diverged or collapsed", "FirstP"} <= set(texts)
    assert sum(text.startswith("MaxP") for text in texts) == 1


@pytest.fixture(scope="module")
def clear(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Five cells with a clear effect."""
    return _analysis(tmp_path_factory.mktemp("clear"), effect=0.3)


def test_the_front_holds_what_no_cheaper_cell_beats(clear: Analysis, tmp_path: Path) -> None:
    analysis, shown = clear, pareto_plot(clear)
    assert {"encoder tokens per document", "nDCG@10 on test"} <= set(_texts(shown))
    assert shown is not None and "Bars: interval" in shown.caption
    front = shown.figure.axes[0].lines[0]
    means = [row.mean("nDCG@10") for row in analysis.cells]
    assert list(front.get_ydata()) == [means[0], max(means[1:4]), means[4]]
    wide = pareto_plot(_analysis(tmp_path / "wide", effect=0.9, seed_deviation=0.5))
    assert wide is not None and wide.figure.axes[0].get_ylim()[1] <= 1.1
    # Without tokens the cost is seconds, and without both there is no front.
    cells = [replace(cell, encoder_tokens_per_document=None) for cell in analysis.sweep.cells]
    sweep = replace(analysis.sweep, cells=tuple(cells))
    assert "seconds to evaluate a run" in _texts(pareto_plot(analyse(sweep)))
    bare = replace(sweep, trials=sweep.trials.drop(columns="eval_seconds"))
    assert pareto_plot(analyse(bare)) is None


def test_figures_follow_the_page_into_the_dark_and_tell_the_value_of_a_mark(
    clear: Analysis,
) -> None:
    shown = {one.name: one.inline for one in figures(clear)}
    for text in shown.values():
        assert "var(--ink, #222222)" in text and "fill: #ffffff" not in text
        assert "hint: " not in text
    row, best = clear.rows[0], clear.chosen
    seed, value = next(iter(row.seed_means["nDCG@10"].items()))
    assert f"<title>{row.label}, seed {seed}: {value:.4f}</title>" in shown["strip"]
    assert best and f": {best.delta:+.3f}, p " in shown["forest"]
    cost = clear.cells[0].cell.encoder_tokens_per_document
    assert f"{cost:,.4g} encoder tokens per document</title>" in shown["pareto"]


def test_the_query_bars_name_the_best_cell_and_its_extreme_queries(clear: Analysis) -> None:
    analysis, shown = clear, query_bars(clear)
    best = analysis.chosen
    assert best is not None
    words = f"queries: {best.wins} better, {best.ties} equal, {best.losses} worse"
    assert words in _texts(shown)
    assert shown is not None and shown.caption.startswith("MaxP 128/64 minus FirstP")
    (bars, _) = shown.figure.axes[0].collections
    edges = bars.get_datalim(shown.figure.axes[0].transData)
    assert (edges.x0, edges.x1) == (0, 40), "whole bars at both ends"


def test_the_query_bars_are_those_of_gains_and_losses_by_hand(tmp_path: Path) -> None:
    """Of 14 queries six gain .06, .05, .. and seven lose .07, .06, ..; one stays equal."""
    folder = write_sweep(tmp_path, kinds=FIVE[:2], seeds=(1, 2), num_queries=14)
    gains = dict(zip((f"q{number}" for number in range(14)), range(6, -8, -1), strict=True))
    table = read_values(folder)
    better = table["cell"].str.startswith("maxp")
    on_dev = table["split"] == "dev"
    gained = table["query_id"].map(gains).where(~on_dev, 1)
    table["value"] = 0.5 + 0.01 * gained * better
    write_values(folder, table)
    shown = query_bars(analyse(load_sweep(folder)))
    assert shown is not None and "queries: 6 better, 1 equal, 7 worse" in _texts(shown)
    assert shown.caption == (
        "MaxP 64/64 minus FirstP, means over seeds. Largest gains: q0, q1, q2. Largest losses: "
        "q13, q12, q11."
    )
    up, down = (
        {(int(x), round(float(y), 9)) for x, y in bars.get_paths()[0].vertices}
        for bars in shown.figure.axes[0].collections
    )
    # The height from each query to the next; the other side is 0 there.
    assert {(at, (6 - at) / 100) for at in range(6)} <= up
    assert {(at, (6 - at) / 100) for at in range(7, 14)} <= down
    assert max(y for _, y in up) == 0.06 and min(y for _, y in down) == -0.07
    assert min(y for _, y in up) == max(y for _, y in down) == 0


def test_where_nothing_varies_nothing_warns(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, num_queries=20)
    table = read_values(folder)
    table["value"] = pd.factorize(table["query_id"])[0] % 7 / 7  # the same of every cell and seed
    write_values(folder, table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        analysis = analyse(load_sweep(folder))
        assert power.rows(analysis) == []  # no t-test applies
        figures(analysis)
        assert {one.p_both for one in analysis.comparisons} == {1.0}


def test_a_plot_that_can_no_longer_be_drawn_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sweeps.report.files.figures",
        lambda analysis: [shown for shown in [learning_plot(analysis)] if shown],
    )
    report = write_report(
        write_sweep(tmp_path, kinds=FIVE[:2], seeds=(1, 2), num_queries=20, log=True)
    )
    assert (report.folder / "plots" / "learning.svg").exists()
    (report.folder / "plots" / "note.txt").write_text("mine")
    write_sweep(tmp_path, kinds=FIVE[:2], seeds=(1, 2), num_queries=20)
    write_report(tmp_path)
    left = {path.name for path in (report.folder / "plots").iterdir()}
    assert "learning.svg" not in left and "learning.png" not in left and "note.txt" in left


@pytest.mark.long
@pytest.mark.slow
def test_the_same_bytes_come_from_one_and_from_eight_threads(tmp_path: Path) -> None:
    fates = {(2, 1): "collapsed"}
    folder = write_sweep(tmp_path, log=True, fates=fates)
    code = (
        "import sys, pathlib, sweeps.report.build as b; b.write_report(pathlib.Path(sys.argv[1]))"
    )
    found = []
    for threads, seed in (("1", "1"), ("8", "2")):
        limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
        subprocess.run(
            [sys.executable, "-c", code, str(folder)],
            env=os.environ | limits | {"PYTHONHASHSEED": seed},
            check=True,
        )
        files = sorted(path for path in (folder / "report").rglob("*") if path.is_file())
        found.append({str(path.relative_to(folder)): path.read_bytes() for path in files})
    assert "report/results.json" in found[0] and "report/plots/pareto.png" in found[0]
    assert found[0].keys() == found[1].keys()
    assert [name for name in found[0] if found[0][name] != found[1][name]] == []


@pytest.mark.parametrize(
    ("name", "columns"), [("MaxP 64/48", 2), ("Bi-encoder 254, max_chunks 4", 1)]
)
def test_a_legend_has_as_many_columns_as_fit(name: str, columns: int) -> None:
    with style():
        figure = new_figure(WIDTH, 3.2)
        axes = figure.add_subplot()
        for _ in range(3):
            axes.plot([0, 1], [0, 1], label=name)
        legend(figure)
        figure.draw_without_rendering()
        [box] = figure.legends
        assert len({round(text.get_window_extent().x0) for text in box.get_texts()}) == columns
        assert box.get_window_extent().x1 <= figure.bbox.x1
