"""Successive halving of the plan's configurations, in an order that is drawn beforehand.

Rungs are epochs of the first seed. A trial pauses at its rung with a checkpoint and its value on
dev, and resumes from there if it is promoted. Configurations that reach the end run all seeds, as
the baseline does; only they are tested.

ASHA (Li et al. 2020) promotes a configuration as soon as it is among the best 1/eta of those that
happen to have finished. Here the n-th decision waits only for the first configurations of the
order. So waiting is rare, and slots, nodes and kills change no decision. A rung's last decision
waits for the whole rung, so its best configuration is always promoted.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rank_core.errors import BadInput
from rank_core.seeding import generator
from rank_core.trial.fold_model import pause_step
from sweeps.plan.plan import Plan, PlannedCell, Trial
from sweeps.plan.terminal import numbered, say
from sweeps.search.search import Block, Decision, Known, Search
from sweeps.store.checksums import read_checked
from sweeps.store.rungs import Rung, best_on_dev, read_rung
from sweeps.store.storage_retry import patient_read
from sweeps.store.trial_status import USED, TrialStatus
from sweeps.store.trial_store import HISTORY, Store

LOST = float("-inf")
"""The value of a configuration that ended without scores: it is never promoted."""
NO_POSITION = -1  # a promotion without a configuration: all others were lost


def rung_epochs(full: int, num_configs: int, *, eta: int, fewest: int) -> tuple[int, ...]:
    """Epochs of the rungs, the last of which is `full`: each has an eta-th of the next one's, as
    long as that is `fewest` or more and there are configurations to choose from; the first of two
    may have `fewest` instead."""
    rungs = [full]
    while num_configs >= eta ** len(rungs):
        epochs = rungs[0] // eta
        if epochs < fewest and len(rungs) == 1:
            epochs = fewest
        if not fewest <= epochs < rungs[0]:
            break
        rungs.insert(0, epochs)
    return tuple(rungs)


def rung_sizes(num_configs: int, num_rungs: int, *, eta: int) -> tuple[int, ...]:
    """The number of configurations that reach each rung."""
    return tuple(num_configs // eta**number for number in range(num_rungs))


def promoted(values: Sequence[float | None], *, eta: int) -> list[int]:
    """The promoted positions, in the order of the decisions, so far. `values` are the dev values of
    a rung's configurations, in their order; None: not known yet. The n-th of len // eta decisions
    needs all values but the last eta x (decisions after it). It promotes the best configuration not
    promoted before, on a tie the earlier one, or `NO_POSITION`.
    """
    decisions = len(values) // eta
    chosen: list[int] = []
    for number in range(1, decisions + 1):
        available = values[: len(values) - eta * (decisions - number)]
        if any(value is None for value in available):
            break
        rest = [
            (value, -position)
            for position, value in enumerate(available)
            if value is not None and value > LOST and position not in chosen
        ]
        chosen.append(-max(rest)[1] if rest else NO_POSITION)
    return chosen


@dataclass(frozen=True)
class Schedule:
    """`competitors` in the order of the decisions; `epochs` and number of configurations of each
    rung, the last of which is the end of training."""

    competitors: tuple[PlannedCell, ...]
    epochs: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def num_epochs(self) -> int:
        """Of a whole trial."""
        return self.epochs[-1]


def schedule_of(plan: Plan) -> Schedule:
    """The schedule of a plan; `BadInput` where it has none. As in a race, the baseline and
    deterministic configurations do not compete."""
    search = plan.search
    cells = [cell for cell in plan.cells[1:] if not cell.deterministic]
    if len(cells) < search.eta:
        raise BadInput(
            f"--search halving needs --halving-eta = {search.eta} configurations or more beside "
            "the baseline that training can change, of which it promotes one; got "
            f"{', '.join(cell.label for cell in cells) or 'none'}"
        )
    full = _num_epochs(plan, cells)
    epochs = rung_epochs(full, len(cells), eta=search.eta, fewest=search.min_epochs)
    if len(epochs) == 1:
        raise BadInput(
            "--search halving needs a rung before the end of training: 1 <= --halving-min-epochs < "
            f"training.num_epochs must hold, got {search.min_epochs} and {full}"
        )
    if not search.num_configs:  # drawn configurations are in random order already
        # Another name of the stream would change every order.
        order = generator(search.seed, "asha").permutation(len(cells))
        cells = [cells[position] for position in order]
    return Schedule(tuple(cells), epochs, rung_sizes(len(cells), len(epochs), eta=search.eta))


def _num_epochs(plan: Plan, cells: list[PlannedCell]) -> int:
    if plan.base.evaluation.folds:
        raise BadInput(
            "--search halving needs one model per trial, got evaluation.folds="
            f"{plan.base.evaluation.folds}: its folds are trained one after the other"
        )
    numbers = sorted({cell.config.training.num_epochs for cell in cells})
    if len(numbers) > 1:
        raise BadInput(
            "--search halving compares configurations after equally many epochs: "
            f"training.num_epochs must be one number, got {', '.join(map(str, numbers))}"
        )
    if any(cell.config.training.max_steps for cell in cells):
        raise BadInput(
            "--search halving counts epochs, which training.max_steps cuts; use "
            "training.epoch_steps"
        )
    return numbers[0]


Rungs = list[list[PlannedCell | None]]
"""The configurations of each rung in the order of promotion; None: all remaining were lost."""


class HalvingSearch(Search):
    """Runs rungs of the first seed, then all seeds of the finalists."""

    def __init__(self, plan: Plan, known: Known, store: Store) -> None:
        super().__init__(plan, known, store)
        self.schedule = schedule_of(plan)
        self._reached: dict[str, float] = {}

    @classmethod
    def plan_lines(cls, plan: Plan) -> Iterator[str]:
        """The rungs, and how many trials and epochs they take at most."""
        if plan.search.num_configs:
            yield from super().plan_lines(plan)
        schedule, seeds = schedule_of(plan), len(plan.seeds)
        trials, full = list(cls.costliest_trials(plan)), schedule.num_epochs
        epochs, grid = round(full * sum(trial.share for trial in trials)), full * plan.num_trials
        begin, *climb = zip(schedule.epochs, schedule.sizes, strict=True)
        order = "" if plan.search.num_configs else f" (order by search seed {plan.search.seed})"
        on = ", ".join(f"{size} to epoch {until}" for until, size in climb)
        paused = sum(trial.epochs > 0 for trial in trials)
        whole = len(trials) - paused
        yield f"search      halving of {begin[1]} configurations{order}:"
        yield f"            all train {begin[0]} of {full} epochs with seed {plan.seeds[0]};"
        yield f"            the best on dev continue, {on};"
        yield f"            those that reach the end run all {seeds} seeds, as the baseline does;"
        yield f"            at most {whole} whole trials and {paused} that stop before:"
        yield f"            {epochs:,} of the grid's {grid:,} epochs ({epochs / grid:.0%})"

    @classmethod
    def costliest_trials(cls, plan: Plan) -> Iterator[Trial]:
        """The trials if the most expensive configurations are promoted."""
        schedule, swept = schedule_of(plan), plan.experiment.swept
        by_cost = sorted(schedule.competitors, key=lambda cell: -cell.cost)
        place = {cell.cell: number for number, cell in enumerate(by_cost)}
        for trial in plan.trials():
            if trial.cell.cell not in place:
                yield trial
                continue
            reached = sum(place[trial.cell.cell] < size for size in schedule.sizes) - 1
            if schedule.epochs[reached] == schedule.num_epochs:
                yield trial
            elif trial.seed == plan.seeds[0]:
                yield Trial(trial.cell, trial.seed, swept, epochs=schedule.epochs[reached])

    def decide(self) -> Decision:
        """The furthest configurations first; further seeds last, as no decision waits for them."""
        rungs, (first, *more) = self._rungs(), self.plan.seeds
        climbing = {cell.cell for cell in self.schedule.competitors}
        fixed = [cell for cell in self.plan.cells if cell.cell not in climbing]
        trials = [self._trial(cell, first) for cell in fixed]
        for number in reversed(range(len(rungs))):
            trials += [self._at(number, cell) for cell in rungs[number] if cell]
        repeated = [
            *(cell for cell in fixed if not cell.deterministic),
            *(cell for cell in rungs[-1] if cell),
        ]
        trials += [self._trial(cell, seed) for seed in more for cell in repeated]
        return Decision(tuple(trials), final=len(rungs[-1]) == self.schedule.sizes[-1])

    def status(self, trial: Trial) -> str | None:
        """The final status of a trial; `stopped` for one that has paused."""
        if trial.epochs and trial.job not in self._status:
            ended = self._known(replace(trial, epochs=0))
            rests = ended not in USED and read_rung(self.store, trial.name, trial.epochs)
            self._status[trial.job] = TrialStatus.STOPPED if rests else ended
        return super().status(trial)

    def launch(self, trial: Trial) -> None:
        """Prints the configurations that continue."""
        super().launch(trial)
        if number := self._rung_of(trial):
            epochs = self.schedule.epochs
            say(
                f"halving: {trial.cell.label} continues to epoch {epochs[number]}, with dev "
                f"{self._value(self._at(number - 1, trial.cell)):.3f} after {epochs[number - 1]}"
            )

    def block(self, trial: Trial) -> Block | None:
        """The first rung and the baseline; then next rungs; then further seeds of the finalists,
        once all are known, and of the baseline."""
        first = self.plan.seeds[0]
        bottom = tuple(
            ahead for ahead in self.ahead if ahead.seed == first and not self._rung_of(ahead)
        )
        if number := self._rung_of(trial):
            what = f"{trial.cell.label} to epoch {self.schedule.epochs[number]}"
            return Block((*bottom, trial), what)
        if trial.seed == first:
            return Block(bottom, f"{numbered(len(bottom), 'trial')} with seed {first}")
        return super().block(trial) if self.decision.final else None

    def left(self, trial: Trial) -> float:
        """The share from its rung on, if its checkpoint still exists."""
        number = self._rung_of(trial)
        resumes = number and patient_read(
            self.store, lambda: self.store.has_checkpoints(trial.name)
        )
        return trial.share - (self._at(number - 1, trial.cell).share if resumes else 0.0)

    def begun(self) -> Mapping[str, Any]:
        """The changes as in a grid, with the rungs that the first seed has reached."""
        first, seeds = self.plan.seeds[0], super().begun()["seeds"]
        ahead = {trial.job for trial in self.ahead}
        bottom, *higher = self._rungs()
        climbed = [
            [cell for cell in rung if cell is None or self._at(number, cell).job not in ahead]
            for number, rung in enumerate(higher, start=1)
        ]
        search = self._described([bottom, *climbed], ahead)
        return {"seeds": seeds if first in seeds else [first], "search": search}

    def resting(self) -> dict[str, str]:
        """{paused trial that is not promoted yet: its result so far}."""
        resting = {}
        for trial in self._furthest({trial.job for trial in self.ahead}):
            if self.status(trial) == TrialStatus.STOPPED and (rung := self._rung(trial)):
                resting[trial.name] = rung.text()
        return resting

    def described(self) -> Mapping[str, Any]:
        """The rungs, and the last rung of each configuration."""
        return self._described(self._rungs(), set())

    def _described(self, rungs: Rungs, ahead: set[str]) -> dict[str, Any]:
        """The description if the jobs `ahead` never start."""
        schedule, full = self.schedule, self.schedule.num_epochs
        climbs = any(trial.seed == self.plan.seeds[0] for trial in self.ahead if trial.job in ahead)
        return {
            "name": self.plan.search.name,
            "eta": self.plan.search.eta,
            "seed": self.plan.search.seed,
            "num_seeds": len(self.plan.seeds),
            "over": self.decision.final and not climbs,
            "rungs": [
                {"epochs": epochs, "configurations": sum(cell is not None for cell in entered)}
                for epochs, entered in zip(schedule.epochs, rungs, strict=True)
            ],
            "standings": self._standings(rungs),
            "epochs": round(full * sum(trial.share for trial in self._furthest(ahead))),
            "whole_grid": full * self.plan.num_trials,
        }

    def _standings(self, rungs: Rungs) -> list[dict[str, Any]]:
        """The configurations, the furthest first, then by the last deciding value on dev."""
        lines = []
        for cell in self.schedule.competitors:
            number = max(n for n, entered in enumerate(rungs) if cell in entered)
            judged = min(number, len(rungs) - 2)
            value = self._value(self._at(judged, cell))
            lost = value == LOST
            decided = judged == number and len(rungs[number + 1]) == self.schedule.sizes[number + 1]
            stopped = lost or (decided and value is not None)
            whole = [self._trial(cell, seed) for seed in self.plan.seeds]
            lines.append(
                {
                    "cell": cell.cell,
                    "epochs": self.schedule.epochs[number],
                    "judged_after": self.schedule.epochs[judged],
                    "dev_mean": None if lost else value,
                    "num_seeds": sum(self.status(trial) in USED for trial in whole),
                    "left_after": 0 if stopped else None,
                    "reason": "a trial was lost" if lost else None,
                }
            )
        return sorted(lines, key=_by_place)

    def _rungs(self) -> Rungs:
        """The configurations that have reached each rung, as far as decided."""
        rungs: Rungs = [list(self.schedule.competitors)]
        for number, size in enumerate(self.schedule.sizes[:-1]):
            here = rungs[-1]
            values = [self._value(self._at(number, cell)) if cell else LOST for cell in here]
            values += [None] * (size - len(here))
            chosen = promoted(values, eta=self.plan.search.eta)
            rungs.append(
                [None if position == NO_POSITION else here[position] for position in chosen]
            )
        return rungs

    def _furthest(self, ahead: Collection[str] = ()) -> Iterator[Trial]:
        """Every wanted trial up to its last wanted epoch, without the jobs `ahead`."""
        share: dict[str, Trial] = {}
        for trial in self.decision.wanted:
            if trial.job in ahead:
                continue
            if trial.name not in share or share[trial.name].share < trial.share:
                share[trial.name] = trial
        yield from share.values()

    def _value(self, trial: Trial) -> float | None:
        """The best mean on dev until a pause; `LOST` without one, None while it runs."""
        status = self.status(trial)
        if status is not None and trial.job not in self._reached:
            rung = self._rung(trial)
            if rung is None and status in USED:
                self._reached[trial.job] = self._on_the_way(trial)
            else:
                self._reached[trial.job] = rung.dev if rung else LOST
        return self._reached.get(trial.job)

    def _on_the_way(self, trial: Trial) -> float:
        """The value of a finished trial at the end of a rung."""

        def read() -> list[str]:
            self.store.pull({trial.name})
            folder = self.store.folder / "runs" / trial.name
            return read_checked(folder, HISTORY).decode().splitlines()

        history = patient_read(self.store, read)
        step = pause_step(trial.config, trial.cell.inputs, trial.epochs)
        measure = trial.config.evaluation.measures[0]
        return best_on_dev(history, measure, step)

    def _rung(self, trial: Trial) -> Rung | None:
        return read_rung(self.store, trial.name, trial.epochs)

    def _rung_of(self, trial: Trial) -> int:
        """The rung on which a trial ends; 0 also for trials that do not compete."""
        climbs = trial.seed == self.plan.seeds[0] and trial.cell in self.schedule.competitors
        return self.schedule.epochs.index(trial.epochs or self.schedule.num_epochs) if climbs else 0

    def _at(self, number: int, cell: PlannedCell) -> Trial:
        """A configuration's trial with the first seed, up to a rung."""
        epochs = self.schedule.epochs
        until = epochs[number] if number < len(epochs) - 1 else 0
        return replace(self._trial(cell, self.plan.seeds[0]), epochs=until)

    def _trial(self, cell: PlannedCell, seed: int) -> Trial:
        return Trial(cell, seed, self.plan.experiment.swept)


def _by_place(standing: Mapping[str, Any]) -> tuple[float, float]:
    dev = standing["dev_mean"]
    return -standing["epochs"], -(LOST if dev is None else dev)
