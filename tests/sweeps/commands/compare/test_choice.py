"""The choice of a comparison: on dev where all its systems are of one sweep that has it."""

from pathlib import Path

import pytest

from sweeps.findings.analysis import analyse
from sweeps.report.headline import headline
from sweeps.systems.choice import choose
from sweeps.systems.load import load_sweep
from sweeps.systems.runs import run_systems
from sweeps.systems.sources import training_runs
from tests.sweeps.systems.test_load import FIVE, NAMES, read_values, write_sweep, write_values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep whose best cell on dev is not the best on test, with one that diverged."""
    folder = write_sweep(
        tmp_path / "woods", kinds=FIVE[:4], num_queries=40, first_stage={}, effect=0.1,
        fates={(3, 2): "diverged"},
    )  # fmt: skip
    table = read_values(folder)
    dev = table["split"] == "dev"
    values = table["value"].mask(dev & (table["cell"] == NAMES[1]), 0.8)
    values = values.mask(dev & (table["cell"] == NAMES[3]), 0.9)
    write_values(folder, table.assign(value=values))
    return folder


def test_a_comparison_of_a_sweep_names_the_choice_of_its_report(folder):
    sweep = load_sweep(folder)
    report = choose(sweep)
    means = sweep.scores[sweep.scores["measure"] == sweep.primary].groupby("cell", observed=True)
    assert report is not None and report.cell == NAMES[1] != means["value"].mean().idxmax()
    found = run_systems(training_runs(folder)).sweep
    choice = choose(found)
    assert choice is not None and choice.label == report.label
    assert (choice.split, choice.on_reported) == ("dev", False)
    assert "chosen from" not in headline(analyse(found)).text


def test_beside_runs_without_dev_the_reported_queries_choose_and_it_says_so(folder):
    systems = training_runs(folder)
    [label, *_] = systems
    table = systems[label][0].values
    assert table is not None
    found = run_systems(systems | {"other": [table.assign(value=table["value"] / 2)]}).sweep
    choice = choose(found)
    assert (
        choice is not None
        and choice.on_reported
        and choice.cell != load_sweep(folder).label(NAMES[1])
    )
    assert "It was chosen from 5 on the reported queries." in headline(analyse(found)).text
