"""Finished configurations of other sweeps that begin a search, by `--search-from`."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rank_core.errors import BadInput
from sweeps.launch.same_sweep import differences
from sweeps.plan.make_plan import extended
from sweeps.plan.plan import Plan
from sweeps.plan.search_options import Finished
from sweeps.search.proposing import costs_of_cell, outcome_of, stored_search
from sweeps.store.records import Records, trial_name
from sweeps.store.scores import read_scores
from sweeps.store.sweep_file import Cell, SweepFile, find_sweep, read_sweep_file
from sweeps.store.trial_costs import TOKENS


def started(plan: Plan, into: Records) -> Plan:
    """The plan with the finished configurations of the sweeps that its search names: those that the
    search has stored `into` its own sweep, or else as they are now. Raises `BadInput` for a sweep
    of another collection, measure, swept settings or fixed settings, and where none of its finished
    configurations is in the space."""
    search, found = plan.search, list[Finished]()
    if search.start_from and (stored := stored_search(plan, into)):
        return replace(plan, search=replace(search, started=stored.started))
    for where in search.start_from:
        records = find_sweep(where)
        file = read_sweep_file(records)
        _check(where, file, plan)
        own = list(_finished(records, file, plan))
        if not own:
            raise BadInput(
                f"--search-from {where} has no finished configuration among those of this search"
            )
        found += own
    return replace(plan, search=replace(search, started=tuple(found))) if found else plan


def _check(where: str, file: SweepFile, plan: Plan) -> None:
    measures = file.primary, plan.base.evaluation.measures[0]
    swept = sorted(file.swept), sorted(plan.experiment.swept)
    contents = file.collection.get("content_hash"), plan.inputs.collection.content_hash
    why = ""
    if contents[0] != contents[1]:
        names = file.collection.get("name"), plan.inputs.collection.name
        why = f"its collection is {names[0]} ({contents[0]}), here {names[1]} ({contents[1]})"
    elif measures[0] != measures[1]:
        why = f"its measure is {measures[0]}, here {measures[1]}"
    elif swept[0] != swept[1]:
        why = f"it sweeps {', '.join(swept[0])}, this search {', '.join(swept[1])}"
    elif found := list(differences(file, plan)):
        why = "; ".join(map(str, found[:5]))
    if why:
        raise BadInput(f"--search-from {where} has values that do not compare with these: {why}")


def _finished(records: Records, file: SweepFile, plan: Plan) -> Iterator[Finished]:
    """The cells with a finished seed and all costs that count, whose settings are in the space, in
    the order of the sweep."""
    needs_tokens = TOKENS in (*plan.search.objectives, *plan.search.at_most)
    for cell in file.cells:
        point = _point(cell, plan)
        names = [trial_name(cell.cell, seed) for seed in file.seeds]
        used = [name for name, own in records.states(names).items() if own.status.used]
        tokens = cell.encoder_tokens_per_document
        if point is None or not used or (tokens is None and needs_tokens):
            continue
        table = read_scores(records, used)
        dev = table[(table["split"] == "dev") & (table["measure"] == file.primary)]
        if dev.empty:
            continue
        mean = float(np.mean(dev.groupby("seed", observed=True)["value"].mean()))
        folds = int(cell.config.get("evaluation.folds", 0))
        costs = costs_of_cell(records, used, tokens or 0.0, plan.search, folds=folds)
        yield Finished(point, outcome_of(mean, costs, plan.search))


def _point(cell: Cell, plan: Plan) -> Mapping[str, Any] | None:
    """The cell as a point of the space; None where the plan would make another cell of it, as of a
    baseline with another model."""
    space = plan.space
    values: dict[str, Any] = {}
    for name in (*space.axes(), *space.ranges):
        value = {**cell.config, **cell.settings}.get(name)
        values[name] = tuple(value) if isinstance(value, list) else value
    if any(values[name] not in own for name, own in space.ranges.items()):
        return None
    point = space.point(values)
    if point is None:
        return None
    made = extended(plan, point)
    same = isinstance(made, Plan) and made.cells[-1].cell == cell.cell
    return point if same else None
