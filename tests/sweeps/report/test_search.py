"""The report of a race: who was eliminated is told, compared with nothing, and misses no trial."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from sweeps.findings import looks, losses
from sweeps.findings.analysis import Analysis, analyse
from sweeps.report.caption import notes
from sweeps.report.page import Content, page
from sweeps.report.terminal import terminal_text
from sweeps.systems.choice import choose, dev_means
from sweeps.systems.load import load_sweep
from tests.sweeps.systems.test_load import NAMES, read_values, write_sweep, write_values


def standing(position: int, seeds: int, left: int | None, **verdict: Any) -> dict[str, Any]:
    reason = "0.0210 below MaxP 128/64 on dev" if "p" in verdict else None
    line = {"cell": NAMES[position], "dev_mean": 0.4, "num_seeds": seeds, "left_after": left}
    return line | {"reason": reason} | verdict


def race(**changes: Any) -> dict[str, Any]:
    """Two left after 2 of 5 seeds; one lost its third trial; one stayed."""
    return {
        "name": "race",
        "alpha": 0.05,
        "delta": 0.0,
        "num_seeds": 5,
        "num_complete": 5,
        "over": True,
        "standings": [
            standing(4, 5, None),
            standing(3, 2, 2) | {"reason": "a trial was lost"},
            standing(1, 2, 2, leader=NAMES[4], gap=0.021, p=0.004, level=0.03),
            standing(2, 2, 2, leader=NAMES[4], gap=0.021, p=0.02, level=0.03),
        ],
        "launched_by_design": 17,
        "whole_grid": 25,
    } | changes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fates = {(position, seed): "planned" for position in (1, 2) for seed in (3, 4, 5)}
    fates |= {(3, 3): "failed", (3, 4): "planned", (3, 5): "planned"}
    return write_sweep(
        tmp_path_factory.mktemp("race") / "sweep",
        seeds=(1, 2, 3, 4, 5),
        fates=fates,
        effect=0.08,
        num_queries=60,
        search=race(),
    )


@pytest.fixture(scope="module")
def analysis(folder: Path) -> Analysis:
    return analyse(load_sweep(folder))


def test_only_what_has_all_seeds_is_compared(analysis):
    assert {one.system for one in analysis.comparisons} == {NAMES[4]}
    assert {one.family_size for one in analysis.comparisons} == {1}
    assert {(one.num_seeds_system, one.num_seeds_baseline) for one in analysis.comparisons} == {
        (5, 5)
    }
    assert "eliminated in the race" in " ".join(notes(analysis))


def test_a_seed_that_was_never_wanted_is_not_missed_and_a_lost_one_is(analysis):
    rows = {row.name: row for row in losses.rows(analysis)}
    assert rows["trials failed"].names == ("MaxP 128/128 (3)",) and rows["trials failed"].value == 1
    assert rows.keys() == {"trials with scores", "trials failed"}, "not of both others that left"


def test_page_and_terminal_mark_those_that_left(analysis):
    rows = {row.name: row.value for row in looks.rows(analysis)}
    assert rows["configurations of the race"] == 4
    assert rows["left out before all their seeds"] == 3
    assert "left out before all their seeds" in page(Content(analysis))
    lines = terminal_text(analysis, Path("index.html"), verbose=True).splitlines()
    assert sum(" out" in line for line in lines if line.startswith("MaxP")) == 3
    assert all(len(line) <= 80 for line in lines)


def test_an_eliminated_cell_is_not_chosen_however_good_on_dev(folder, tmp_path):
    sweep = shutil.copytree(folder, tmp_path / "sweep")
    table = read_values(sweep)
    table.loc[(table["split"] == "dev") & (table["cell"] == NAMES[1]), "value"] = 0.99
    write_values(sweep, table)
    found = load_sweep(sweep)
    assert max(dev_means(found), key=dev_means(found).get) == NAMES[1]
    chosen = choose(found)
    assert chosen and chosen.system == NAMES[4] and NAMES[1] not in chosen.order
    assert "Use MaxP 128/64: nDCG@10 0." in terminal_text(analyse(found), Path("index.html"))
