"""The one choice of a sweep. Headline, figures, export, confirmation, files and Python read it;
nothing else chooses."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.store.trial_status import TrialStatus
from sweeps.systems.costs import costs_of, named_costs
from sweeps.systems.load import Sweep
from sweeps.systems.order import ranked
from sweeps.systems.summary import cells_of


@dataclass(frozen=True)
class Choice:
    """The system with the highest mean of the primary measure on dev, over seeds. With
    `--cost-weight` what its costs weigh is subtracted from the mean, and systems that cost more
    than `--at-most` are out.

    Candidates are all rows that can be used: cells, these with the first stage, and the first stage
    itself. Eliminated systems are out, and those of which a run diverged, unless one diverged of
    every system. Equals are ordered by cost, then as in the plan. A confirmation tests the choice
    of an earlier sweep, and so does a test set. Without dev the reported queries choose.
    """

    system: str  # the row's name
    label: str
    cell: str  # whose trials it uses; "" for the first stage
    measure: str
    split: str  # of the queries that chose
    on_reported: bool  # these queries are the reported ones
    mean: float  # on `split`
    mean_alone: float | None  # of the model without the first stage, where it is mixed
    num_candidates: int
    order: tuple[str, ...]  # the candidates that are not out, the best first
    diverged: tuple[str, ...] = ()  # systems that are out because a run diverged

    @property
    def is_mixed(self) -> bool:
        """True for a model with the first stage."""
        return self.mean_alone is not None


class _Candidate(NamedTuple):
    system: str
    label: str
    cell: str
    mean: float


def choose(sweep: Sweep) -> Choice | None:
    """The choice; None where no candidate has a mean."""
    on_dev = not sweep.dev_scores.empty
    split = "dev" if on_dev else sweep.split
    found = {one.system: one for one in _candidates(sweep, on_dev=on_dev)}
    means = {name: one.mean for name, one in found.items()}
    out = {name for name, one in found.items() if one.cell in sweep.about.eliminated}
    out |= over_limits(sweep).keys()
    lost = _diverged(sweep)
    unstable = {name for name, one in found.items() if one.cell in lost}
    if found.keys() <= out | unstable:
        unstable = set()
    weighed = weights_of_costs(sweep)
    worth = {name: mean - weighed.get(name, 0.0) for name, mean in means.items()}
    order = ranked(worth, found, out | unstable, costs_of(sweep).of)
    earlier = sweep.about.confirms or sweep.about.chosen
    if earlier:
        order = [name for name, one in found.items() if _is_earlier(one, earlier)] or order
    if not order:
        return None
    best = found[order[0]]
    alone = means.get(best.cell) if best.system != best.cell else None
    return Choice(
        system=best.system,
        label=best.label,
        cell=best.cell,
        measure=sweep.primary,
        split="dev" if earlier else split,
        on_reported=split == sweep.split and not earlier,
        mean=float(earlier.get("mean", earlier.get("dev_mean", best.mean))),
        mean_alone=alone,
        order=tuple(order),
        num_candidates=int(earlier.get("num_candidates", len(found))),
        diverged=tuple(dict.fromkeys(found[name].cell for name in found if name in unstable)),
    )


def over_limits(sweep: Sweep) -> dict[str, tuple[str, ...]]:
    """{row: the costs of which it exceeds the limit, or which decide and are not known}."""
    limits = {**dict.fromkeys(sweep.about.cost_weights, math.inf), **sweep.about.at_most}
    over: dict[str, tuple[str, ...]] = {}
    for cost, of in named_costs(sweep).items():
        for row, value in of.items() if cost in limits else ():
            if value > limits[cost] or math.isinf(value):
                over[row] = (*over.get(row, ()), cost)
    return over


def weights_of_costs(sweep: Sweep) -> dict[str, float]:
    """{row: what its costs weigh in the choice, in units of the measure}; empty where none do."""
    costs = named_costs(sweep)
    found: dict[str, float] = {}
    for cost, weight in sweep.about.cost_weights.items():
        for row, value in costs[cost].items():
            found[row] = found.get(row, 0.0) + weight * value
    return found


def _diverged(sweep: Sweep) -> set[str]:
    return {*sweep.trials.loc[sweep.trials["status"] == TrialStatus.DIVERGED, "cell"]}


def left_out(sweep: Sweep) -> set[str]:
    """The cells that its choice leaves out."""
    eliminated, lost = {*sweep.about.eliminated}, _diverged(sweep)
    return eliminated if {*sweep.used["cell"]} <= eliminated | lost else eliminated | lost


def _is_earlier(one: _Candidate, earlier: Mapping[str, Any]) -> bool:
    """Whether it is the choice of an earlier sweep: of the one that is confirmed, by its row (in
    0.4 its cell), or of the one that trained the models of a test set, by its label."""
    if "cell" in earlier:
        return one.system == str(earlier.get("system") or earlier["cell"])
    return one.label == str(earlier["label"])


def _candidates(sweep: Sweep, *, on_dev: bool) -> list[_Candidate]:
    """All rows that can be used and have a mean, in the order of the plan."""
    cells = cells_of(sweep)
    if on_dev:
        means = dev_means(sweep)
    else:
        means = {row.name: row.mean(sweep.primary) for row in cells if row.num_used}
    found = []
    if first := sweep.first_stage:
        mean = first.dev_mean if on_dev else first.mean(sweep.primary)
        found += [_Candidate(FIRST_STAGE, first.label, "", mean)] * (not math.isnan(mean))
    considered = sweep.mixed if sweep.about.interpolate != "none" else ()
    for row in cells:
        if row.name in means:
            found.append(_Candidate(row.name, row.label, row.name, means[row.name]))
            found += [
                _Candidate(own.name, own.label, row.name, mean)
                for own in considered
                if own.of == row.name and not own.identical_to
                for mean in [own.dev_mean if on_dev else own.mean(sweep.primary)]
            ]
    return found


def dev_means(sweep: Sweep) -> dict[str, float]:
    """{cell: mean of the primary measure on dev, over seeds}; empty where nothing is known."""
    return {cell: fmean(own.values()) for cell, own in _dev_of_cells(sweep).items()}


def dev_by_seed(sweep: Sweep) -> dict[str, dict[int, float]]:
    """{row: {seed: mean of the primary measure on dev}} of all rows that have one."""
    beside = [*sweep.mixed, *([sweep.first_stage] if sweep.first_stage else [])]
    return {**_dev_of_cells(sweep), **{row.name: dict(row.dev) for row in beside if row.dev}}


def _dev_of_cells(sweep: Sweep) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    if not sweep.dev_scores.empty:
        means = sweep.dev_scores.groupby(["cell", "seed"], observed=True)["value"].mean()
        for (cell, seed), value in means.items():
            found.setdefault(str(cell), {})[int(seed)] = float(value)
    return found


def with_rows(sweep: Sweep, rows: str) -> Sweep:
    """The sweep with the rows beside its cells: those of `mixed` that `rows` names, of
    `INTERPOLATE`, and always that of the choice."""
    best = choose(sweep)
    models = (sweep.baseline, best.cell if best else "")
    return replace(
        sweep,
        interpolated=tuple(
            row
            for row in sweep.mixed
            if rows == "all"
            or (rows == "best" and row.of in models)
            or (best is not None and row.name == best.system)
        ),
    )
