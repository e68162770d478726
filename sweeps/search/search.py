"""Base class of searches: decisions depend only on finished trials.

A restarted driver reads the ended trials from the store and makes the same decisions, whatever the
order or the number of slots.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import takewhile
from statistics import fmean
from typing import Any

import numpy as np

from rank_core.arrays import Floats
from rank_core.errors import BadInput
from sweeps.plan.description import described_cells
from sweeps.plan.plan import Plan, PlanLine, PlannedCell, Trial
from sweeps.plan.search_options import search_kind
from sweeps.store.records import Records
from sweeps.store.scores import read_scores
from sweeps.store.sweep_file import read_sweep_file, update_sweep_file
from sweeps.store.trial_status import USED
from sweeps.terminal.text import numbered

WRITING = 0.05
"""The share of a driver's time that writing the standings of `sweep.json` and the studies of
Optuna takes at most while trials run: of thousands of cells it takes seconds. New cells and the
verdicts of a race are written at once."""

StatusOf = Callable[[Trial], str | None]
"""The status of a trial that has ended for good before this command, else None."""


@dataclass(frozen=True)
class Decision:
    """`wanted` are all trials so far, including ended ones, in the order in which they should run;
    `final` is true if no end of a trial can add to them."""

    wanted: tuple[Trial, ...]
    final: bool


@dataclass(frozen=True)
class Block:
    """Trials that are only useful together: under a budget all of them begin, or none."""

    trials: tuple[Trial, ...]
    what: str


class Limit:
    """What may keep the trials of a search from starting; this one keeps none."""

    held_back = ""  # the reason why no more trials start
    admitted: Collection[str] = ()  # names of trials that may start in any case
    by_seed = False  # trials start seed by seed

    def admits(self, trial: Trial) -> bool:
        """True if a trial may start now; without `held_back`, that is not known yet."""
        return True

    def launched(self, trial: Trial) -> None:
        """A trial was launched: it waits for its process."""

    def started(self, trial: Trial, workers: int = 1) -> None:
        """A process of a trial starts, the first or another one, with so many workers."""

    def lost(self, trial: Trial) -> None:
        """An attempt of a trial was lost: it waits for its next process."""

    def ended(self, trial: Trial, status: str) -> None:
        """A trial has ended."""


class Search(ABC):
    """The source of trials, for an engine: what `decide` of a subclass wants. Only the driver's
    thread calls it, and it never blocks. An engine runs a trial again whose process or node died; a
    search sees the final end only."""

    writes = True  # what it decides; not in a dry run

    def __init__(self, plan: Plan, known: StatusOf, records: Records) -> None:
        self.plan, self.records = plan, records
        self.limit = Limit()
        self._known = known
        self._launched: set[str] = set()
        self._status: dict[str, str | None] = {}
        self.decision = Decision((), final=False)
        self._waiting: dict[str, Trial] = {}  # wanted, not launched and not ended, in their order
        self._cost_waiting = 0.0
        self._described: Mapping[str, Any] | None = None  # the search, as `sweep.json` has it
        self._cells_described: tuple[PlannedCell, ...] | None = None
        self._news = True  # since it was written
        self._describe_at = 0.0  # not before

    @classmethod
    def plan_lines(cls, plan: Plan) -> Iterator[PlanLine]:
        """What a plan says of the search."""
        drawn, asked = "", plan.search.num_configs
        if asked:
            drawn = f" drawn from {source(plan)}"
        number = len(plan.cells) - 1
        yield "search", f"{plan.search.name} of {number} configurations{drawn}"
        if asked and number < asked:
            yield "", f"{asked} were asked for: no further ones differ and can run"

    @abstractmethod
    def decide(self) -> Decision:
        """The trials to run, by the statuses so far. Proposals are written here."""

    def changes(self, trial: Trial, status: str) -> bool:
        """Whether this end of a trial may change the trials to run now: a decision may take time
        that grows with the plan."""
        return True

    def described(self) -> Mapping[str, Any]:
        """The description of the search in `sweep.json` so far."""
        return {"name": self.plan.search.name}

    @property
    def eliminated(self) -> set[str]:
        """The cells that the search has eliminated so far."""
        standings = self.described().get("standings", ())
        return {line["cell"] for line in standings if line["left_after"] is not None}

    def begin(self) -> "Search":
        """Decides by the trials that have ended before this command."""
        self._decide()
        return self

    def _decide(self) -> None:
        self.decision = self.decide()
        new = (trial for trial in self.decision.wanted if trial.name not in self._launched)
        self._waiting = {trial.name: trial for trial in new if self.status(trial) is None}
        self._cost_waiting = sum(trial.cost for trial in self._waiting.values())

    def _waits_no_more(self, name: str) -> None:
        if trial := self._waiting.pop(name, None):
            self._cost_waiting -= trial.cost

    def status(self, trial: Trial) -> str | None:
        """The final status of a trial; None if it has not ended."""
        if trial.name not in self._status:
            self._status[trial.name] = self._known(trial)
        return self._status[trial.name]

    @property
    def num_ended(self) -> int:
        """The trials of the plan so far that have ended."""
        return sum(self.status(trial) is not None for trial in self.plan.trials())

    @property
    def unstarted(self) -> tuple[Trial, ...]:
        """Wanted trials that were not launched and have not ended."""
        return tuple(self._waiting.values())

    @property
    def ahead(self) -> tuple[Trial, ...]:
        """Those of them that may still start."""
        return tuple(self._ahead())

    def _ahead(self) -> Iterator[Trial]:
        limit = self.limit
        return (
            trial
            for trial in self._waiting.values()
            if not limit.held_back or trial.name in limit.admitted
        )

    @property
    def work_ahead(self) -> tuple[int, float]:
        """The number of trials ahead, and their costs in all; in constant time, for the screen."""
        if self.limit.held_back:
            return len(self.ahead), sum(trial.cost for trial in self._ahead())
        return len(self._waiting), self._cost_waiting

    def share(self, trial: Trial, beside: Iterable[Trial] = ()) -> float:
        """The share of a launched trial in the work that waits: its own, that of the trials ahead,
        and of those `beside` that run again."""
        again = sum(one.cost for one in beside)
        return trial.cost / (trial.cost + again + self.work_ahead[1])

    def next(self, slots: int = 1) -> Trial | None:
        """The trial to launch now, of as many at a time as there are `slots`; None: none at this
        moment. Called several times a second, and after every end of a trial, until `over`. Waiting
        costs warm processes, so it is any trial that will be needed."""
        while trial := self._first(slots):
            if self.limit.admits(trial):
                self._launched.add(trial.name)
                self._waits_no_more(trial.name)
                self.limit.launched(trial)
                return trial
            if not self.limit.held_back:
                return None
        return None

    def _first(self, slots: int) -> Trial | None:
        """The trial whose turn it is."""
        return next(self._ahead(), None)

    @property
    def complete(self) -> bool:
        """True once every trial of the search was launched."""
        return self.decision.final and not self._waiting

    @property
    def over(self) -> bool:
        """True once no trial can follow, whatever the results of the running ones."""
        return next(self._ahead(), None) is None if self.limit.held_back else self.complete

    def block(self, trial: Trial) -> Block | None:
        """The trials that start together with a trial ahead: all of its seed, so that cells get
        equally many seeds. None: not decided yet."""
        trials = tuple(ahead for ahead in self.unstarted if ahead.seed == trial.seed)
        return Block(trials, f"{numbered(len(trials), 'trial')} with seed {trial.seed}")

    def begun(self) -> Mapping[str, Any]:
        """The changes of `sweep.json` if no further trial starts, with which the report of the
        finished ones is complete; none without a finished trial."""
        waiting = {trial.seed for trial in self.unstarted}
        begun = {trial.seed for trial in self.decision.wanted} - waiting
        if not (known := self._seeds_used(self.plan.cells)):
            return {}
        if begun & known:
            return {"seeds": [seed for seed in self.plan.seeds if seed in begun]}
        # New cells wait with every seed.
        cells = self._comparable_cells(least=2)
        used, search = self._seeds_used(cells), dict(self.described())
        if "standings" in search:
            names = {cell.cell for cell in cells}
            search["standings"] = [one for one in search["standings"] if one["cell"] in names]
        return {
            **described_cells(replace(self.plan, cells=cells)),
            "seeds": [seed for seed in self.plan.seeds if seed in used],
            "search": search,
        }

    def _used(self) -> Iterator[Trial]:
        return (trial for trial in self.decision.wanted if self.status(trial) in USED)

    def _seeds_used(self, cells: Collection[PlannedCell]) -> set[int]:
        """The seeds of their finished trials."""
        names = {cell.cell for cell in cells}
        return {trial.seed for trial in self._used() if trial.cell.cell in names}

    def _comparable_cells(self, least: int = 1) -> tuple[PlannedCell, ...]:
        """The cells of which no trial waits. Where these are without the baseline or fewer than
        `least`, the baseline and the cells with a finished trial."""
        waiting = {trial.cell.cell for trial in self.unstarted}
        whole = tuple(cell for cell in self.plan.cells if cell.cell not in waiting)
        baseline = self.plan.cells[0]
        if baseline in whole and len(whole) >= least and self._seeds_used(whole):
            return whole
        used = {trial.cell.cell for trial in self._used()} | {baseline.cell}
        return tuple(cell for cell in self.plan.cells if cell.cell in used)

    def ended(self, trial: Trial, status: str) -> None:
        """A trial has ended for good: done or collapsed (its result is in the storage), stopped by
        ASHA, failed or diverged. Decides again."""
        self.limit.ended(trial, status)
        self._status[trial.name] = status
        self._waits_no_more(trial.name)
        if self.changes(trial, status):
            self._decide()
        self._news = True
        self.describe_in_time()

    def measured(self, trial: Trial, seconds: float) -> None:  # noqa: B027 - few searches ask
        """A trial ends that took so many seconds of its workers in all."""

    def describe_in_time(self) -> None:
        """Writes what is new to `sweep.json`: cells at once, as their trials start; what is known
        of them if that takes no more than its share of the time. Called at every end and every
        report of a trial. A killed driver may leave it unwritten: the next one decides by the
        ended trials, and writes the same."""
        if self._news and time.monotonic() >= self._describe_at:
            self.describe()
        elif facts := self._new_cells():
            update_sweep_file(self.records, **facts)

    def describe(self) -> None:
        """Writes what is new to `sweep.json`, for `status` and the report."""
        start = time.monotonic()
        self.write_description()
        self._news = False
        self._describe_at = start + (time.monotonic() - start) / WRITING

    def write_description(self) -> None:
        """Writes the decisions so far, and the cells of the plan if there are new ones."""
        facts, found = self._new_cells(), dict(self.described())
        if found != self._described:
            facts["search"] = self._described = found
        if facts:
            update_sweep_file(self.records, **facts)

    def _new_cells(self) -> dict[str, Any]:
        """What `sweep.json` lacks of the cells of the plan."""
        if self.plan.cells is self._cells_described:
            return {}
        self._cells_described = self.plan.cells
        planned = read_sweep_file(self.records).trials
        named = (*planned, *(trial.name for trial in self.plan.trials()))
        return described_cells(self.plan) | {"trials": tuple(dict.fromkeys(named))}


EARLY = 2.0
"""A trial has its turn where what waits would keep all slots for less than this many times its own
length: forecasts err, and a long trial that starts last is what a sweep waits for."""
SHORTEST = 1e-6  # seconds of a trial that takes none


class FreeOrder(Search):
    """A search that decides the same in whatever order its trials run. They start seed by seed, so
    that a sweep that ends early has about as many seeds of every cell; several at a time also
    longest first, as soon as a long one could be the last to end. A trial is taken to be as long
    as others of its cell were; where none has ended, by its encoder tokens."""

    def __init__(self, plan: Plan, known: StatusOf, records: Records) -> None:
        super().__init__(plan, known, records)
        self._seconds: dict[str, list[float]] = {}  # {cell: of trials that have ended}
        self._speed: list[tuple[float, float]] = []  # (seconds, cost) of each of them
        self._lengths: dict[str, float] = {}  # {cell: by which its trials are sorted}
        self._sort_at = 0  # the ends after which they are sorted again

    def begin(self) -> Search:
        """Decides, and learns how long the trials took that have ended."""
        super().begin()
        trials = {one.name: one for one in self._used()}
        self._sort_at = len(trials)
        for name, state in self.records.states(trials).items() if trials else ():
            self.measured(trials[name], state.result_seconds(1))
        return self

    def _decide(self) -> None:
        super()._decide()
        self._sort()

    def measured(self, trial: Trial, seconds: float) -> None:
        """Those that wait are sorted by it."""
        self._seconds.setdefault(trial.cell.cell, []).append(seconds)
        self._speed.append((seconds, trial.cost))
        if len(self._speed) >= self._sort_at:
            self._sort()

    def _sort(self) -> None:
        """Sorts what waits. It is sorted again once a tenth more has ended, so that the work of an
        end does not grow with the plan."""
        self._sort_at = len(self._speed) + 1 + len(self._speed) // 10
        seconds, costs = map(sum, zip(*self._speed, strict=True)) if self._speed else (1.0, 1.0)
        self._lengths = {
            trial.cell.cell: max(fmean(known), SHORTEST) if known else trial.cost * seconds / costs
            for trial in self.decision.wanted
            for known in [self._seconds.get(trial.cell.cell)]
        }
        # Some of them wait no more when their turn comes.
        self._by_length = sorted(reversed(self._waiting.values()), key=self._length)
        self._length_waiting = sum(map(self._length, self._by_length))

    def _length(self, trial: Trial) -> float:
        return self._lengths[trial.cell.cell]

    def share(self, trial: Trial, beside: Iterable[Trial] = ()) -> float:
        """By the lengths of trials."""
        if self.limit.held_back:
            return super().share(trial, beside)
        again, length = sum(map(self._length, beside)), self._length(trial)
        return length / (length + again + self._length_waiting)

    def _waits_no_more(self, name: str) -> None:
        if trial := self._waiting.get(name):
            self._length_waiting -= self._length(trial)
        super()._waits_no_more(name)

    def _first(self, slots: int) -> Trial | None:
        trial = super()._first(slots)
        if trial is None or slots == 1:
            return trial
        if self.limit.by_seed:
            of_seed = takewhile(lambda ahead: ahead.seed == trial.seed, self._ahead())
            return max(of_seed, key=self._length)
        while self._by_length[-1].name not in self._waiting:
            self._by_length.pop()
        longest = self._by_length[-1]
        early = EARLY * self._length(longest) >= self._length_waiting / slots
        return longest if early else trial


class Listed(FreeOrder):
    """All trials of the plan: the grid, or the drawn part of it."""

    @classmethod
    def plan_lines(cls, plan: Plan) -> Iterator[PlanLine]:
        """None for the whole grid."""
        if plan.search.num_configs:
            yield from super().plan_lines(plan)

    def decide(self) -> Decision:
        """All trials, whatever their results."""
        return Decision(tuple(self.plan.trials()), final=True)

    def changes(self, trial: Trial, status: str) -> bool:
        """False: all is decided."""
        return False


def competitors(plan: Plan) -> list[PlannedCell]:
    """The configurations of a search that compares runs on dev; refuses fewer than two."""
    competing = [cell for cell in plan.cells[1:] if not cell.deterministic]
    if len(competing) < 2:
        raise BadInput(
            f"--search {plan.search.name} needs 2 configurations or more besides the baseline that "
            f"training can change, got {', '.join(cell.label for cell in competing) or 'none'}"
        )
    return competing


def source(plan: Plan) -> str:
    """The space and the seed of the drawn configurations, for messages."""
    of = "ranges" if plan.space.ranges else f"{len(plan.space.points)} points of the grid"
    return f"{of} (search seed {plan.search.seed})"


def dev_values(records: Records, trial: Trial) -> Floats:
    """The primary measure of a finished trial on dev, (queries,), in the order of their ids."""
    table = read_scores(records, [trial.name])
    measure = trial.config.evaluation.measures[0]
    dev = table[(table["split"] == "dev") & (table["measure"] == measure)]
    return np.asarray(dev.sort_values("query_id")["value"], dtype=np.float64)


def search_class(name: str) -> type[Search]:
    """The class of the search called `name`, or of a sampler, imported now."""
    module, _, kind = search_kind(name).path.partition(":")
    search: type[Search] = getattr(import_module(module), kind)
    return search


def make_search(plan: Plan, known: StatusOf, records: Records) -> Search:
    """The search of a plan; earlier proposals are part of its plan."""
    return search_class(plan.search.name)(plan, known, records)
