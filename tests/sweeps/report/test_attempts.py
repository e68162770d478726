"""What the report says of lost attempts and of trials that never ended."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sweeps.report.build import write_report
from sweeps.report.conclusions import attempts_sentence, unfinished
from sweeps.report.load import load_sweep
from sweeps.store.failures import lost_by_kind
from sweeps.store.sweep_file import read_sweep_file
from tests.sweeps.report.test_load import redescribe, write_attempt, write_sweep

HEADING = "Unfinished trials"


pytestmark = pytest.mark.usefixtures("no_figures")


def trial(seed: int, status: str, attempts: int) -> dict[str, Any]:
    return {"cell": "c", "seed": seed, "status": status, "attempts": attempts}


def failure(seed: int, kind: str) -> dict[str, Any]:
    return {"cell": "c", "seed": seed, "kind": kind}


@pytest.mark.parametrize(
    ("status", "attempts", "kinds", "expected"),
    [
        ("done", 1, [], {}),
        ("done", 3, ["node lost", "node lost"], {"node lost": 2}),
        ("done", 3, ["host memory"], {"out of host memory": 1, "interrupted": 1}),
        ("failed", 2, ["process died", "error"], None),
        ("diverged", 2, ["device"], {"diverged": 1, "device broke": 1}),
        ("running", 1, [], {}),
        ("planned", 2, ["storage"], {"storage away": 1, "interrupted": 1}),
        ("interrupted", 1, [], {"interrupted": 1}),
        ("stopped", 1, [], {}),
    ],
)
def test_every_attempt_but_a_last_good_one_is_lost_by_some_kind(
    status: str, attempts: int, kinds: list[str], expected: Mapping[str, int] | None
) -> None:
    found = lost_by_kind([trial(1, status, attempts)], [failure(1, kind) for kind in kinds])
    if expected is not None:
        assert found == expected
    good = status in ("done", "collapsed", "stopped", "running")
    assert sum(found.values()) == attempts - good


def damage(folder: Path) -> None:
    """Two trials that came back, and one that is given up."""
    cells = [cell.cell for cell in read_sweep_file(folder).cells]
    rows = [
        (cells[1], 1, 1, "host-a (0a1b2c3d)", "process died", "ActorDiedError: gone", True),
        (cells[1], 1, 2, "host-a (0a1b2c3d)", "host memory", "95% in use\nmore", True),
        (cells[2], 2, 1, "", "storage", "StorageAway: no route", True),
        (cells[3], 3, 1, "host-b (11112222)", "error", "ValueError: x", False),
    ]
    names = ("node", "kind", "reason", "again")
    times = {"begun": 0, "ended": 1795255200000}
    for cell, seed, number, *facts in rows:
        trial = folder / "trials" / f"{cell}-seed{seed}"
        write_attempt(
            trial, number, status="failed", **times, **dict(zip(names, facts, strict=True))
        )
    for cell, seed, number in ((cells[1], 1, 3), (cells[2], 2, 2)):
        write_attempt(folder / "trials" / f"{cell}-seed{seed}", number, status="done", **times)
    for number in (2, 3):
        (folder / "trials" / f"{cells[3]}-seed3" / f"attempt-{number}.json").unlink()


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    fates = {(3, 3): "failed", (4, 1): "diverged", (4, 2): "planned"}
    folder = write_sweep(tmp_path / "sweep", num_queries=20, fates=fates)
    damage(folder)
    return folder


def test_a_reader_finds_lost_attempts_and_unfinished_trials(damaged: Path) -> None:
    sweep = load_sweep(damaged)
    kinds = "worker process died (1), out of host memory (1), storage away (1), "
    assert attempts_sentence(sweep) == (
        "2 of 15 trials needed more than one attempt; 6 attempts were lost: "
        f"{kinds}error of the trial itself (1), diverged (1), interrupted (1)."
    )
    shown = unfinished(sweep)
    assert shown is not None
    assert [tuple(cell.text for cell in row.cells) for row in shown.rows] == [
        ("failed", "MaxP 128/128 seed 3", "ValueError: x"),
        ("diverged", "MaxP 128/64 seed 1", "loss is NaN at step 120"),
        ("interrupted", "MaxP 128/64 seed 2", "the command ended first"),
    ]


def test_page_terminal_and_results_tell_of_it(damaged: Path) -> None:
    described = json.loads((damaged / "sweep.json").read_text())
    redescribe(damaged, described | {"stopped": "the <budget>"})
    report = write_report(damaged)
    page = (report.folder / "index.html").read_text()
    section = page.split(f"<summary>{HEADING}</summary>")[1].split("<h2>")[0]
    assert "ended early: the &lt;budget&gt;." in page and "ValueError: x" in section
    assert "attempts were lost" not in section, "the conclusions have it"
    assert len(re.findall("<tr>", section)) == 1 + 3
    text = " ".join(report.text.split())
    assert "2 of 15 trials needed more than one attempt; 6 attempts were lost:" in text
    results = json.loads((report.folder / "results.json").read_text())
    assert [row["kind"] for row in results["lost_attempts"]] == [
        "process died",
        "host memory",
        "storage",
        "error",
    ]
