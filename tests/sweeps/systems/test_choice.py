"""The choice of a sweep: one rule, on dev alone, whoever asks."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sweeps.commands.export import WINNER, _spelled
from sweeps.commands.status import _best
from sweeps.findings.analysis import analyse
from sweeps.launch import confirmation
from sweeps.report.headline import headline
from sweeps.store.sweep_file import FIRST_STAGE, find_sweep
from sweeps.systems.choice import choose
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import Sweep, load_sweep
from sweeps.systems.order import ranked
from tests.sweeps.report.ranked_sweep import write_ranked_sweep
from tests.sweeps.systems.test_load import NAMES, write_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = write_sweep(tmp_path_factory.mktemp("q") / "x" / "woods", num_queries=8)
    return load_sweep(folder)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """FirstP 40 and MaxP 40/20 with the first stage and without."""
    return with_interpolated(load_sweep(write_ranked_sweep(tmp_path_factory.mktemp("m") / "woods")))


def with_dev(sweep: Sweep, values: dict[str, float], eliminated: tuple[str, ...] = ()) -> Sweep:
    """The sweep where each cell has one value on dev."""
    dev = sweep.dev_scores
    standings = [{"cell": cell, "left_after": 2} for cell in eliminated]
    return replace(
        sweep,
        dev_scores=dev.assign(value=dev["cell"].astype(str).map(values)),
        about=replace(sweep.about, search={"name": "race", "over": True, "standings": standings}),
    )


def with_costs(sweep: Sweep, costs: Mapping[str, float]) -> Sweep:
    cells = [
        replace(cell, encoder_tokens_per_document=costs.get(cell.cell)) for cell in sweep.cells
    ]
    return replace(sweep, cells=tuple(cells))


def chosen(sweep: Sweep) -> str:
    found = choose(sweep)
    return found.system if found else ""


def choices(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What the report, the export and the confirmation choose."""
    monkeypatch.setattr(confirmation, "load_sweep", lambda folder: sweep)
    monkeypatch.setattr(confirmation, "_frozen", lambda records, sweep, cell: cell)
    confirmed = confirmation.choose(find_sweep(str(sweep.folder)))
    exported = {sweep.label(cell.cell): cell.cell for cell in sweep.cells}[_spelled(sweep, WINNER)]
    return {chosen(sweep), exported, str(confirmed.winner)}


def test_among_equals_it_is_the_first_of_the_plan(sweep, monkeypatch):
    assert sorted(NAMES[1:]) != NAMES[1:], "the order of names is another one"
    tied = with_dev(sweep, dict.fromkeys(NAMES, 0.5) | {NAMES[0]: 0.1})
    assert choices(with_costs(tied, {}), monkeypatch) == {NAMES[1]}


def test_among_equals_the_cheaper_comes_first_if_all_costs_are_known(sweep, monkeypatch):
    tied = with_dev(sweep, dict.fromkeys(NAMES, 0.5) | {NAMES[0]: 0.1})
    costs = {name: 80.0 - at for at, name in enumerate(NAMES)}
    assert choices(with_costs(tied, costs), monkeypatch) == {NAMES[-1]}
    del costs[NAMES[2]]
    assert choices(with_costs(tied, costs), monkeypatch) == {NAMES[1]}


def test_limits_and_weights_of_costs_decide_for_every_way_out(sweep, monkeypatch):
    """Means rise by .1 and tokens by 100 from system to system."""
    dev = with_dev(sweep, {name: 0.1 * place for place, name in enumerate(NAMES)} | {NAMES[0]: -1})
    dear = with_costs(dev, {name: 100.0 * place for place, name in enumerate(NAMES)})

    def stated(**goals: dict[str, float]) -> Sweep:
        return replace(dear, about=replace(dear.about, **goals))

    def choice(**goals: float) -> set[str]:
        named = {name: {"tokens_per_document": value} for name, value in goals.items()}
        return choices(stated(**named), monkeypatch)

    assert choice() == choice(at_most=400) == {NAMES[4]}
    assert choice(at_most=399) == choice(at_most=300) == {NAMES[3]}
    assert choice(cost_weights=0.00099) == {NAMES[4]}
    assert choice(cost_weights=0.00101) == {NAMES[1]}
    assert choice(cost_weights=0.00099, at_most=250) == {NAMES[2]}
    assert choose(stated(at_most={"ms_per_query": 5.0})) is None  # nobody has measured it
    text = headline(analyse(stated(at_most={"ms_per_query": 5.0}))).sentence
    assert text == "Nothing was chosen: every finished system is over a limit of cost."


def test_the_gain_after_the_choice_chooses_by_the_same_weights(sweep):
    """Without the cheap system's weight the choice among the other seeds would be another one."""
    dev = with_dev(sweep, dict.fromkeys(NAMES, 0.0) | {NAMES[1]: 0.5, NAMES[2]: 0.6})
    dear = with_costs(dev, dict.fromkeys(NAMES, 0.0) | {NAMES[2]: 100.0})
    weighed = replace(dear, about=replace(dear.about, cost_weights={"tokens_per_document": 0.01}))
    analysis = analyse(weighed)
    assert analysis.chosen and analysis.chosen.system == NAMES[1]
    assert analysis.gain_after_choice == pytest.approx(analysis.chosen.delta)


def test_an_eliminated_cell_is_never_chosen(sweep, monkeypatch):
    values = {name: 0.1 * place for place, name in enumerate(NAMES)}
    assert choices(with_dev(sweep, values), monkeypatch) == {NAMES[4]}
    assert choices(with_dev(sweep, values, (NAMES[4],)), monkeypatch) == {NAMES[3]}


def test_a_system_of_which_a_run_diverged_is_out_unless_all_are(sweep):
    best = with_dev(sweep, {name: 0.1 * place for place, name in enumerate(NAMES)})

    def diverged(cells: list[str]) -> Sweep:
        lost = best.trials["cell"].isin(cells) & (best.trials["seed"] == 2)
        return replace(best, trials=best.trials.assign(
            status=best.trials["status"].mask(lost, "diverged")))  # fmt: skip

    found = choose(diverged([NAMES[4]]))
    assert found and (found.system, found.diverged) == (NAMES[3], (NAMES[4],))
    every = choose(diverged(NAMES))
    assert every and (every.system, every.diverged) == (NAMES[4], ())


def test_values_of_test_choose_nothing(sweep):
    scores = sweep.scores
    flipped = replace(sweep, scores=scores.assign(value=1 - scores["value"]))
    assert choose(flipped) == choose(sweep)
    found = choose(sweep)
    assert found and (found.split, found.on_reported) == ("dev", False)


def test_without_dev_it_says_that_the_reported_queries_chose(sweep):
    blind = replace(sweep, dev_scores=sweep.dev_scores.iloc[:0])
    found = choose(blind)
    assert found and (found.split, found.on_reported) == ("test", True)
    means = sweep.scores.query("measure == @sweep.primary").groupby("cell")["value"].mean()
    assert found.system == means.idxmax()


def test_rows_with_the_first_stage_and_the_first_stage_are_candidates(mixed):
    """Each wins where its mean on dev is the highest; the model alone where all are equal."""
    [of_first, of_maxp] = mixed.mixed
    cells = [cell.cell for cell in mixed.cells]
    assert mixed.first_stage
    dev = with_dev(mixed, dict.fromkeys(cells, 0.5))

    def over(first: float, *rows: float) -> Sweep:
        own = tuple(
            replace(row, dev={1: value}) for row, value in zip(mixed.mixed, rows, strict=True)
        )
        stage = replace(mixed.first_stage, dev={1: first})
        return replace(dev, mixed=own, first_stage=stage)

    found = choose(over(0.4, 0.6, 0.7))
    assert found and (found.system, found.cell) == (of_maxp.name, cells[1])
    assert found.is_mixed and found.mean_alone == pytest.approx(0.5)
    assert found.label == "MaxP 40/20 +BM25" and found.num_candidates == 5
    assert chosen(over(0.4, 0.8, 0.7)) == of_first.name
    assert chosen(over(0.9, 0.8, 0.7)) == FIRST_STAGE
    assert chosen(over(0.4, 0.5, 0.5)) == cells[0]
    assert chosen(over(0.5, 0.5, 0.5)) == FIRST_STAGE, "it costs nothing"


def test_a_row_that_is_another_by_construction_is_no_candidate(mixed):
    rows = tuple(replace(row, dev={1: 0.99}, alphas={1: (0.0,)}) for row in mixed.mixed)
    found = choose(replace(mixed, mixed=rows))
    assert found and not found.is_mixed


def test_the_row_of_the_choice_is_shown_whatever_rows_are_asked_for(mixed):
    folder = mixed.folder
    for rows in ("none", "best", "all"):
        sweep = with_interpolated(load_sweep(folder), rows)
        assert choose(sweep) == choose(mixed)
        assert chosen(sweep) in [row.name for row in sweep.interpolated]


def test_a_confirmation_tests_the_choice_of_before(sweep):
    confirms = {"cell": NAMES[2], "num_candidates": 17}
    values = {name: 0.1 * place for place, name in enumerate(NAMES)}
    found = choose(replace(sweep, about=replace(with_dev(sweep, values).about, confirms=confirms)))
    assert found and (found.system, found.num_candidates) == (NAMES[2], 17)
    assert not found.on_reported


def test_a_test_set_tests_the_choice_of_the_sweep_that_trained(sweep):
    labels = [sweep.label(name) for name in NAMES]
    earlier = {"label": labels[2], "mean": 0.7, "num_candidates": 9}
    blind = replace(sweep, dev_scores=sweep.dev_scores.iloc[:0])
    found = choose(replace(blind, about=replace(sweep.about, chosen=earlier)))
    assert found and (found.system, found.mean, found.num_candidates) == (NAMES[2], 0.7, 9)
    assert (found.split, found.on_reported) == ("dev", False)


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
    assert chosen(with_costs(known, {})) == NAMES[1]
