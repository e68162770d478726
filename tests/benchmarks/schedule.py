"""How long a grid takes on several slots by the order of its trials, beside the least of any order.

The search of a plan gives its trials to simulated slots: all there at once; slots that fail, so
that a trial goes on in a new process from its last checkpoint; half of the slots an hour late.
What the search knows of a trial is its encoder tokens, and what others of its cell took; what it
takes is measured: by a forecast on this machine (`plans`), by the finished trials of the sweeps
whose folders are given, or as an earlier run has written it (`lengths`). The longest trial counts
four hours. `least` is the longest trial, or all work over all slots from when they are there.
In the last columns a trial has 1 to 8 slots (`--num-workers 1-8`), of which two do 1.8 times the
work of one, and `least` counts the longest trial on 8. Run:
python -m tests.benchmarks.schedule [FOLDER ...] [--plans model_zoo,window_stride] [--lengths F]
    [--slots 8,64,128] [--seeds 5] [--json F]
"""

import argparse
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np

from rank_core.seeding import generator
from sweeps.forecast.forecast import forecast
from sweeps.plan.make_plan import make_plan
from sweeps.plan.options import parse
from sweeps.plan.plan import Plan, PlannedCell, Trial
from sweeps.plan.resources import Resources
from sweeps.search.search import Listed
from sweeps.store.records import Records, trial_name
from sweeps.systems.load import load_sweep
from tests.benchmarks.workload import show

HOURS = 4.0  # of the longest trial
FAILURES = 0.1  # of a slot in an hour
LOST = 0.1  # hours of a failure: since the last checkpoint, and the start of a process
GROUP = 8  # slots of a trial, at most
DOUBLED = 0.9  # of twice the speed, on twice the slots
GROWING = 1 / 60  # hours in which a group that goes on with more slots does nothing
LATE = 1.0  # hours after which half of the slots join


class InPlanOrder(Listed):
    """Seed by seed, whatever the lengths of trials."""

    def _first(self, slots: int) -> Trial | None:
        return next(self._ahead(), None)


@dataclass(frozen=True)
class Cluster:
    """Slots by the hours at which they join, and their failures in an hour."""

    name: str
    joins: tuple[float, ...]
    failures: float = 0.0

    def least(self, hours: Sequence[float], most: int = 1) -> float:
        """The hours that any order takes at least, of trials on 1 to `most` slots each."""
        work, there = sum(hours), 0.0
        joins = sorted(self.joins)
        for number, (since, until) in enumerate(itertools.pairwise([*joins, np.inf]), start=1):
            if there + number * (until - since) >= work:
                return max(since + (work - there) / number, joins[0] + max(hours) / most)
            there += number * (until - since)
        raise AssertionError("slots without an end do all work")


def clusters(slots: int) -> Iterator[Cluster]:
    """The same number of slots, undisturbed and not."""
    yield Cluster("undisturbed", (0.0,) * slots)
    yield Cluster("failures", (0.0,) * slots, FAILURES)
    late = slots // 2
    yield Cluster("late nodes", (0.0,) * (slots - late) + (LATE,) * late)


@dataclass(frozen=True)
class Lengths:
    """What the search knows of a trial of each cell, and how long one takes."""

    tokens: tuple[float, ...]
    hours: tuple[float, ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> "Lengths":
        """From tokens and seconds; the longest trial counts `HOURS`."""
        tokens, seconds = zip(*pairs, strict=True)
        longest = max(seconds)
        return cls(tokens, tuple(HOURS * one / longest for one in seconds))

    def search(self, kind: type[Listed], seeds: int) -> Listed:
        """A grid of these cells."""
        cells = [
            cast(PlannedCell, SimpleNamespace(cell=f"cell{i}", cost=tokens, deterministic=False))
            for i, tokens in enumerate(self.tokens)
        ]
        trials = tuple(Trial(cell, seed) for seed in range(seeds) for cell in cells)
        plan = cast(Plan, SimpleNamespace(trials=lambda: trials))
        search = kind(plan, lambda trial: None, cast(Records, None))
        search.begin()
        return search


def forecasted(name: str, words: Sequence[str]) -> Lengths:
    """Those of the plan of a sweep."""
    experiment = import_module(f"sweeps.{name}").EXPERIMENT
    options = parse(words, prog=f"{name}.py", description="")
    plan = make_plan(experiment, options)
    known = forecast(plan, options).trials
    cells = [cell for cell in plan.cells if cell.cell in known]
    return Lengths.of((max(cell.cost, 1.0), known[cell.cell].seconds) for cell in cells)


def recorded(folder: Path) -> Lengths:
    """Those of the finished trials of a sweep, in seconds of a worker; means over seeds."""
    sweep = load_sweep(folder)
    done = sweep.trials[sweep.trials["status"] == "done"]
    names = [trial_name(cell, seed) for cell, seed in zip(done["cell"], done["seed"], strict=True)]
    states = sweep.stored.states(names)
    done = done.assign(seconds=[states[name].result_seconds(1) for name in names])
    means = done.groupby("cell", sort=False)[["encoder_tokens", "seconds"]].mean()
    return Lengths.of((max(tokens, 1.0), seconds) for tokens, seconds in means.to_numpy())


@dataclass
class Running:
    """A trial on a slot, or on several."""

    trial: Trial
    left: float  # hours on one slot
    workers: int

    @property
    def hours(self) -> float:
        """Until it ends."""
        return self.left / self.speed

    @property
    def speed(self) -> float:
        """That of its group, in slots."""
        return float((2 * DOUBLED) ** np.log2(self.workers))


@dataclass
class Simulation:
    """A search whose trials run on a cluster, each on 1 to `most` slots."""

    search: Listed
    hours: Sequence[float]  # of a trial of each cell on one slot
    cluster: Cluster
    most: int = 1

    @property
    def resources(self) -> Resources:
        """Those of a trial."""
        return Resources(self.most, cpus=1, gpus=0, threads=1, slots=1, min_workers=1)

    def run(self) -> tuple[float, float]:
        """(the hours until the last trial ends, the least of any order with the same failures)."""
        rng = generator(1, "failures")
        taken = {}
        for trial in self.search.unstarted:
            own = self.hours[int(trial.cell.cell.removeprefix("cell"))]
            taken[trial.name] = own + LOST * float(rng.poisson(self.cluster.failures * own))
        now, running = 0.0, list[Running]()
        while True:
            slots = sum(join <= now for join in self.cluster.joins)
            running += self._started(slots - sum(one.workers for one in running), slots, taken)
            if not running:
                return now, self.cluster.least(list(taken.values()), self.most)
            self._grow(running, slots - sum(one.workers for one in running))
            ends = min(one.hours for one in running)
            joins = min((join - now for join in self.cluster.joins if join > now), default=np.inf)
            passed = min(ends, joins)
            now += passed
            for one in running:
                one.left -= passed * one.speed
            for one in [one for one in running if one.left <= 1e-9]:
                running.remove(one)
                self.search.measured(one.trial, taken[one.trial.name] * 3600)

    def _started(self, room: int, slots: int, taken: Mapping[str, float]) -> Iterator[Running]:
        while room and (trial := self.search.next(slots)):
            trials = min(room, 1 + self.search.work_ahead[0])
            workers = self.resources.group(room, self.search.share(trial), trials)
            room -= workers
            yield Running(trial, taken[trial.name], workers)

    def _grow(self, running: Sequence[Running], room: int) -> None:
        """The smallest group takes the room that no trial waits for."""
        while room and (smaller := [one for one in running if one.workers < self.most]):
            one = min(smaller, key=lambda one: one.workers)
            more = min(room, self.most - one.workers)
            one.workers, room = one.workers + more, room - more
            one.left += GROWING * one.speed


def simulated(
    search: Listed, hours: Sequence[float], cluster: Cluster, most: int = 1
) -> tuple[float, float]:
    """(the hours until the last trial ends, the least of any order with the same failures)."""
    return Simulation(search, hours, cluster, most).run()


def main(argv: Sequence[str]) -> None:
    """Simulates and prints."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("folders", nargs="*", type=Path)
    flags.add_argument("--plans", default="model_zoo,window_stride")
    flags.add_argument("--collection", default="python-docs")
    flags.add_argument("--backbone", default="tiny-docs")
    flags.add_argument("--slots", default="8,64,128")
    flags.add_argument("--seeds", type=int, default=5)
    flags.add_argument("--lengths", type=Path, help="a file that --json has written")
    flags.add_argument("--json", type=Path)
    args = flags.parse_args(argv)
    words = ["--collection", args.collection, "--backbone", args.backbone]
    lengths = {folder.parent.name: recorded(folder) for folder in args.folders}
    if args.lengths:
        saved = json.loads(args.lengths.read_text())["lengths"]
        lengths |= {name: Lengths(**one) for name, one in saved.items()}
    if not lengths:
        lengths = {name: forecasted(name, words) for name in args.plans.split(",")}
    rows = []
    for name, own in lengths.items():
        for slots in map(int, args.slots.split(",")):
            for cluster in clusters(slots):
                before, least = simulated(own.search(InPlanOrder, args.seeds), own.hours, cluster)
                after, _ = simulated(own.search(Listed, args.seeds), own.hours, cluster)
                groups, low = simulated(own.search(Listed, args.seeds), own.hours, cluster, GROUP)
                rows.append(
                    {
                        "sweep": f"{name}, {len(own.hours)} x {args.seeds}",
                        "slots": str(slots),
                        "cluster": cluster.name,
                        "least (h)": f"{least:.2f}",
                        "plan order": f"{before:.2f} ({before / least - 1:+.0%})",
                        "long ones early": f"{after:.2f} ({after / least - 1:+.1%})",
                        f"least, 1-{GROUP} (h)": f"{low:.2f}",
                        f"1-{GROUP} workers": f"{groups:.2f} ({groups / low - 1:+.1%})",
                    }
                )
    show(rows, args.json, lengths={name: vars(own) for name, own in lengths.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
