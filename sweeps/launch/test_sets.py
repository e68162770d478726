"""The test sets of a sweep (`evaluation.test_on`): their sweeps beside it, the weights that they
need, and the report over all of them."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from rank_core.checkpoints.weights import stored_cell
from rank_core.units import GIBIBYTE
from sweeps.engine.kept_weights import KeptWeights
from sweeps.plan.description import evaluated_qrels
from sweeps.plan.options import Options
from sweeps.plan.plan import Plan
from sweeps.plan.test_sets import TestSet, check_tested, plan_on, test_sets
from sweeps.store.records import Records, trial_name
from sweeps.store.sweep_file import (
    FIRST_STAGE,
    described,
    local_copy,
    read_sweep_file,
    sweep_on,
)
from sweeps.systems.choice import choose
from sweeps.systems.derived import with_interpolated
from sweeps.systems.interpolation import MixtureInputs, missing_input, trial_table, why_not
from sweeps.systems.load import Sweep, load_sweep
from sweeps.terminal.text import numbered


class Tested(NamedTuple):
    """A test set with the plan and the folder of its sweep."""

    test_set: TestSet
    plan: Plan
    records: Records


def tested_by(
    plan: Plan, records: Records, options: Options, finished: Collection[str] | None = None
) -> list[Tested]:
    """The test sets of a plan whose folder is `records`, for all of its trials or for those that
    have `finished`. Raises `BadInput` for sets that its models cannot rank."""
    check_tested(plan.base)
    experiment, _, own = records.sweep.rpartition("/")
    found = []
    for test_set in test_sets(plan.base):
        planned = plan_on(plan, test_set, options, finished)
        name = f"{own}+{test_set.name}"
        folder = sweep_on(Records(records.storage, experiment), planned.inputs.collection, name)
        folder.command = records.command
        found.append(Tested(test_set, planned, folder))
    return found


def test_set_line(one: Tested) -> str:
    """The test set and what ranks it, for a plan."""
    queries = evaluated_qrels(one.plan, "test")
    documents = len(one.plan.inputs.collection.documents)
    line = (
        f"test set    {one.test_set.name}: {len(queries):,} queries over {documents:,} "
        f"documents, ranked by {numbered(one.plan.num_trials, 'trained model')}"
    )
    return "\n".join(
        [line, *(f"excluded    {item.label}: {item.reason}" for item in one.plan.removed)]
    )


def untested(tested: Iterable[Tested]) -> frozenset[str]:
    """The trained trials whose weights some set still needs."""
    needed = set()
    for one in tested:
        trials = list(one.plan.trials())
        states = one.records.states(trial.name for trial in trials)
        for trial in trials:
            starts = stored_cell(trial.cell.config.training.init_from)
            if starts and not states[trial.name].status.used:
                needed.add(one.plan.trained_by(trial.name))
    return frozenset(needed)


def facts_of_sets(plan: Plan, tested: Sequence[Tested], trained: Records | None) -> dict[str, Any]:
    """What `sweep.json` says of the test sets of a sweep, and of the sweep that trained the models
    of a test set."""
    folders = {one.test_set.name: one.records.sweep.rpartition("/")[2] for one in tested}
    facts: dict[str, Any] = {"test_sets": folders} if folders else {}
    if trained is not None:
        copy = local_copy(trained, read_sweep_file(trained))
        sweep = load_sweep(copy.folder)
        alphas = _alphas(sweep)
        if chosen := choose(with_interpolated(sweep)):
            known = ("label", "mean", "num_candidates")
            facts["chosen"] = {name: getattr(chosen, name) for name in known}
        trials = {trial.name: plan.trained_by(trial.name) for trial in plan.trials()}
        facts |= {
            "trained_on": trained.sweep.rpartition("/")[2],
            "alphas": {name: alphas[own] for name, own in trials.items() if own in alphas},
        }
    return facts


def _alphas(sweep: Sweep) -> dict[str, float]:
    """{trial: the weight of its model beside the first stage that dev of its collection chooses},
    of the finished trials that can be interpolated."""
    if missing_input(sweep) or not (sweep.folder / FIRST_STAGE).is_dir():
        return {}
    inputs, alphas = MixtureInputs.of(sweep), {}
    for cell in (cell for cell in sweep.cells if not why_not(cell)):
        for seed in sweep.used.loc[sweep.used["cell"] == cell.cell, "seed"]:
            name = trial_name(cell.cell, int(seed))
            alphas[name] = float(trial_table(name, inputs)["alpha"].iloc[0])
    return alphas


def kept_weights(
    plan: Plan, records: Records, options: Options, *, held: bool = False
) -> KeptWeights:
    """The weights in a sweep's storage; all are `held` while test sets need them."""
    quota = int(options.weights_gib * GIBIBYTE)
    return KeptWeights(records, plan.base.evaluation.measures[0], quota, held=held)


def release_weights(plan: Plan, records: Records, options: Options) -> None:
    """Removes the weights that were held for test sets alone."""
    weights = kept_weights(plan, records, options)
    weights.take_in(records.states(trial.name for trial in plan.trials()).values())
    weights.prune([cell.cell for cell in plan.cells])


def hours_spent(records: Records, plan: Plan) -> float:
    """GPU-hours of a sweep's trials under a budget; 0 without one."""
    file = described(records)
    budget = file.budget if file else {}
    workers = int(budget.get("workers", 1))
    states = records.states(trial.name for trial in plan.trials()).values()
    seconds = sum(state.slot_seconds(workers) for state in states)
    return float(budget.get("units", 0)) * seconds / 3600
