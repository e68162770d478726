"""The rungs that a plan's configurations climb under ASHA, and the most that can cost."""

from collections.abc import Iterator
from dataclasses import dataclass

from rank_core.errors import BadInput
from rank_core.seeding import generator
from sweeps.plan.plan import Plan, PlannedCell, Trial
from sweeps.search.halving_rule import rung_epochs, rung_sizes


@dataclass(frozen=True)
class Ladder:
    """`competitors` in the order of the decisions; `epochs` and number of configurations of each
    rung, the last of which is the end of training."""

    competitors: tuple[PlannedCell, ...]
    epochs: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def num_epochs(self) -> int:
        """Of a whole trial."""
        return self.epochs[-1]


def ladder_of(plan: Plan) -> Ladder:
    """The ladder of a plan; `BadInput` where it has none. The baseline is no competitor, as in a
    race, nor is a configuration that no seed can change."""
    search = plan.search
    cells = [cell for cell in plan.cells[1:] if not cell.deterministic]
    if len(cells) < search.eta:
        raise BadInput(
            f"--search asha needs --asha-eta = {search.eta} configurations or more beside the "
            "baseline that training can change, because one of so many goes on; got "
            f"{', '.join(cell.label for cell in cells) or 'none'}"
        )
    full = _num_epochs(plan, cells)
    epochs = rung_epochs(full, len(cells), eta=search.eta, fewest=search.min_epochs)
    if len(epochs) == 1:
        raise BadInput(
            "--search asha needs a rung before the end of training: 1 <= --asha-min-epochs < "
            f"training.num_epochs must hold, got {search.min_epochs} and {full}"
        )
    if not search.num_configs:  # what was drawn is in random order already
        order = generator(search.seed, "asha").permutation(len(cells))
        cells = [cells[position] for position in order]
    return Ladder(tuple(cells), epochs, rung_sizes(len(cells), len(epochs), eta=search.eta))


def _num_epochs(plan: Plan, cells: list[PlannedCell]) -> int:
    if plan.base.evaluation.folds:
        raise BadInput(
            "--search asha needs one model per trial, got evaluation.folds="
            f"{plan.base.evaluation.folds}: its folds are trained one after the other"
        )
    found = sorted({cell.config.training.num_epochs for cell in cells})
    if len(found) > 1:
        raise BadInput(
            "--search asha compares configurations after equally many epochs: "
            f"training.num_epochs must be one number, got {', '.join(map(str, found))}"
        )
    if any(cell.config.training.max_steps for cell in cells):
        raise BadInput(
            "--search asha counts epochs, which training.max_steps cuts; use training.epoch_steps"
        )
    return found[0]


def dearest_trials(plan: Plan) -> Iterator[Trial]:
    """The most that ASHA can run: the configurations that cost most go furthest."""
    ladder, swept = ladder_of(plan), plan.experiment.swept
    by_cost = sorted(ladder.competitors, key=lambda cell: -cell.cost)
    place = {cell.cell: number for number, cell in enumerate(by_cost)}
    for trial in plan.trials():
        if trial.cell.cell not in place:
            yield trial
            continue
        reached = sum(place[trial.cell.cell] < size for size in ladder.sizes) - 1
        if ladder.epochs[reached] == ladder.num_epochs:
            yield trial
        elif trial.seed == plan.seeds[0]:
            yield Trial(trial.cell, trial.seed, swept, epochs=ladder.epochs[reached])
