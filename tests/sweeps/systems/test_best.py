"""The best on dev: one rule, whoever asks."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sweeps.commands.export import WINNER, _cell
from sweeps.commands.status import _best
from sweeps.launch import confirmation
from sweeps.store.sweep_file import find_sweep
from sweeps.systems.best import best_on_dev, ranked
from sweeps.systems.load import Sweep, load_sweep
from tests.sweeps.systems.test_load import NAMES, write_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = write_sweep(tmp_path_factory.mktemp("q") / "x" / "woods", num_queries=8)
    return load_sweep(folder)


def with_dev(sweep: Sweep, values: dict[str, float], eliminated: tuple[str, ...] = ()) -> Sweep:
    """The sweep where each cell has one value on dev."""
    dev = sweep.dev_scores
    standings = [{"cell": cell, "left_after": 2} for cell in eliminated]
    return replace(
        sweep,
        dev_scores=dev.assign(value=dev["cell"].astype(str).map(values)),
        about=replace(sweep.about, search={"name": "race", "over": True, "standings": standings}),
    )


def choices(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the report, the export and the confirmation choose."""
    means = {name: {1: 0.5} for name in NAMES}
    monkeypatch.setattr(confirmation, "load_sweep", lambda folder: sweep)
    monkeypatch.setattr(confirmation, "_frozen", lambda records, sweep, cell: cell)
    chosen = confirmation.choose(find_sweep(str(sweep.folder)))
    return [best_on_dev(sweep), _cell(sweep, WINNER, means, means), str(chosen.winner)]


def test_among_equals_it_is_the_first_of_the_plan(sweep, monkeypatch):
    assert sorted(NAMES[1:]) != NAMES[1:], "the order of names is another one"
    tied = with_dev(sweep, dict.fromkeys(NAMES, 0.5) | {NAMES[0]: 0.1})
    assert choices(tied, monkeypatch) == [NAMES[1]] * 3


def test_an_eliminated_cell_never_wins(sweep, monkeypatch):
    values = {name: 0.1 * place for place, name in enumerate(NAMES)}
    assert choices(with_dev(sweep, values), monkeypatch) == [NAMES[4]] * 3
    assert choices(with_dev(sweep, values, (NAMES[4],)), monkeypatch) == [NAMES[3]] * 3


def test_cells_without_a_mean_are_left_out():
    assert ranked({"b": 0.2, "a": 0.2, "c": 0.3}, "abcd") == ["c", "a", "b"]
    assert ranked({}, "ab") == []


def test_status_names_the_same_best(sweep):
    """An eliminated cell leads, two others tie."""
    dev = {NAMES[4]: 0.9, NAMES[2]: 0.5, NAMES[1]: 0.5}
    trials = [SimpleNamespace(status="done", dev=value, cell=cell) for cell, value in dev.items()]
    known = with_dev(sweep, dict.fromkeys(NAMES, 0.1) | dev, (NAMES[4],))
    labels = {name: name for name in NAMES}
    snapshot = SimpleNamespace(file=known.about, trials=trials, labels=labels)
    assert f"0.500 by {NAMES[1]} (1 seed)" in _best(snapshot)
    assert best_on_dev(known) == NAMES[1]
