"""The report of a halving: who was stopped where is told, and stands nowhere as finished."""

import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.driver.confirmation import choose
from sweeps.report.analysis import Analysis, analyse
from sweeps.report.build import write_report
from sweeps.report.conclusions import conclusions
from sweeps.report.load import load_sweep
from sweeps.report.page import page, sections
from sweeps.report.reliability import assess
from sweeps.report.search import search_sentences, standings
from sweeps.report.sections.section import Findings
from sweeps.report.terminal import terminal_text
from sweeps.store.checksums import COSTS
from sweeps.store.trial_store import Store
from tests.sweeps.report.test_load import FIVE, write_sweep

NAMES = [
    f"{group.lower()}-w{window}-s{stride}-{position:012x}"
    for position, (group, window, stride) in enumerate(FIVE)
]


def standing(position: int, epochs: int, dev: float | None, **more: Any) -> dict[str, Any]:
    stopped = epochs < 9
    return {
        "cell": NAMES[position],
        "epochs": epochs,
        "judged_after": min(epochs, 3),
        "dev_mean": dev,
        "num_seeds": 0 if stopped else 3,
        "left_after": 0 if stopped else None,
        "reason": None,
    } | more


def halving(**changes: Any) -> dict[str, Any]:
    """One at the end, one stopped after 3 epochs, one after 1, one lost."""
    return {
        "name": "halving",
        "eta": 3,
        "seed": 1,
        "num_seeds": 3,
        "over": True,
        "rungs": [
            {"epochs": 1, "configurations": 4},
            {"epochs": 3, "configurations": 2},
            {"epochs": 9, "configurations": 1},
        ],
        "standings": [
            standing(4, 9, 0.41),
            standing(3, 3, 0.39),
            standing(2, 1, 0.2),
            standing(1, 1, None, reason="a trial was lost"),
        ],
        "epochs": 59,
        "whole_grid": 135,
    } | changes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fates = {(position, seed): "planned" for position in (1, 2, 3) for seed in (1, 2, 3)}
    fates |= {(3, 1): "stopped", (2, 1): "stopped", (1, 1): "failed"}
    return write_sweep(
        tmp_path_factory.mktemp("halving") / "sweep",
        fates=fates,
        effect=0.08,
        num_queries=60,
        search=halving(),
    )


@pytest.fixture(scope="module")
def analysis(folder: Path) -> Analysis:
    return analyse(load_sweep(folder))


def test_only_those_at_the_end_are_compared(analysis):
    assert {one.system for one in analysis.comparisons} == {NAMES[4]}
    assert {one.family_size for one in analysis.comparisons} == {1}
    assert "stopped by successive halving" in " ".join(analysis.notes)


def test_the_sentence_says_how_many_stopped_where_on_what_evidence_and_at_what_cost(analysis):
    [sentence] = search_sentences(analysis.sweep)
    queries = analysis.sweep.dev_scores["query_id"].nunique()
    assert "1 of 4 configurations to the end, epoch 9" in sentence
    assert "stopped before: 1 after epoch 3, 2 after epoch 1" in sentence
    assert "1 of them because a trial failed or diverged" in sentence
    assert "59 of the grid's 135 epochs (44%)" in sentence
    assert f"the best nDCG@10 of seed 1 on {queries} dev queries" in sentence
    assert "not tested" in sentence
    assert "not over" not in sentence


def test_a_search_that_goes_on_says_so(tmp_path):
    waiting = [standing(n, 1, 0.3, left_after=None) for n in (1, 2)]
    search = halving(over=False, standings=waiting)
    sweep = load_sweep(write_sweep(tmp_path, search=search, num_queries=20))
    [sentence] = search_sentences(sweep)
    assert "stopped before: none" in sentence and "The search is not over." in sentence
    table = standings(sweep)
    assert table is not None and {row.cells[4].text for row in table.rows} == {"not decided yet"}


def test_who_was_stopped_is_no_loss_and_no_finished_trial(analysis):
    text = " ".join(conclusions(analysis))
    assert f"1 trial failed, not in any mean: {analysis.sweep.label(NAMES[1])} (seed 1)" in text
    assert "not started" not in text
    summaries = {one.cell.cell: one.used_of_launched for one in analysis.cells}
    assert summaries[NAMES[3]] == summaries[NAMES[2]] == "0/1"


def test_all_but_the_stopped_may_have_finished(tmp_path):
    fates = {(position, seed): "planned" for position in (1, 2, 3) for seed in (1, 2, 3)}
    fates |= {(position, 1): "stopped" for position in (1, 2, 3)}
    lines = [standing(4, 9, 0.4), *(standing(n, 1, 0.3) for n in (1, 2, 3))]
    folder = write_sweep(tmp_path, fates=fates, num_queries=30, search=halving(standings=lines))
    text = " ".join(conclusions(analyse(load_sweep(folder))))
    assert "All 9 trials finished but for 3 stopped by design; none failed" in text


def test_page_and_terminal_say_stopped(analysis):
    html = page(analysis, sections(Findings(analysis, assess(analysis), [], [])))
    assert html.count('<td class="lost">0/1, stopped</td>') == 1, "the one that failed"
    assert html.count("<td>0/1, stopped</td>") == 2 and "Successive halving on dev" in html
    assert "stopped after epoch 3 of 9" in html and "the whole rung" in html
    lines = terminal_text(analysis, Path("index.html")).splitlines()
    assert sum(" stopped" in line for line in lines if line.startswith("MaxP")) == 3
    assert all(len(line) <= 80 for line in lines)


def test_a_confirmation_counts_all_that_competed(folder):
    for cell in (NAMES[0], NAMES[4]):
        run = folder / "runs" / f"{cell}-seed1"
        run.mkdir(parents=True, exist_ok=True)
        (run / "config.json").write_text(json.dumps({"seed": 1}))
        result = {"status": "done"} | dict.fromkeys(COSTS, 1)
        (run / "result.json").write_text(json.dumps(result))
    shortlist = choose(Store(str(folder.parent), folder.name))
    assert shortlist.winner.cell == NAMES[4] and shortlist.num_candidates == 4


@pytest.mark.slow
def test_every_plot_can_be_drawn_without_those_that_were_stopped(folder):
    report = write_report(folder)
    assert (report.folder / "index.html").exists()
