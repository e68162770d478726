"""How long a grid takes on several slots by the order of its trials, beside the least of any order.

The search of a plan gives its trials to simulated slots: all there at once; slots that fail, so
that a trial goes on in a new process from its last checkpoint; half of the slots an hour late.
What the search knows of a trial is its encoder tokens; what it takes is measured: by a forecast on
this machine (`plans`), or by the finished trials of the sweeps whose folders are given. The longest
trial counts four hours. `least` is the longest trial, or all work over all slots from when they are
there. Run:
python -m tests.benchmarks.schedule [FOLDER ...] [--plans model_zoo,window_stride]
    [--slots 8,64,128] [--seeds 5] [--json F]
"""

import argparse
import heapq
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
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
from sweeps.search.search import Listed
from sweeps.store.records import Records
from sweeps.systems.load import load_sweep
from tests.benchmarks.workload import show

HOURS = 4.0  # of the longest trial
FAILURES = 0.02  # of a slot in an hour
LOST = 0.1  # hours of a failure: since the last checkpoint, and the start of a process
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

    def least(self, hours: Sequence[float]) -> float:
        """The hours that any order takes at least."""
        work, there = sum(hours), 0.0
        joins = sorted(self.joins)
        for number, (since, until) in enumerate(itertools.pairwise([*joins, np.inf]), start=1):
            if there + number * (until - since) >= work:
                return max(since + (work - there) / number, joins[0] + max(hours))
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
    """Those of the finished trials of a sweep, means over seeds."""
    trials = load_sweep(folder).trials
    done = trials[trials["status"] == "done"]
    done = done.assign(seconds=done["train_seconds"] + done["eval_seconds"])
    means = done.groupby("cell", sort=False)[["encoder_tokens", "seconds"]].mean()
    return Lengths.of((max(tokens, 1.0), seconds) for tokens, seconds in means.to_numpy())


def simulated(search: Listed, hours: Sequence[float], cluster: Cluster) -> tuple[float, float]:
    """(the hours until the last trial ends, the least of any order with the same failures)."""
    rng = generator(1, "failures")
    mean = {f"cell{i}": one for i, one in enumerate(hours)}
    taken = {}
    for trial in search.unstarted:
        own = mean[trial.cell.cell]
        taken[trial.name] = own + LOST * float(rng.poisson(cluster.failures * own))
    free, end = list(cluster.joins), 0.0
    heapq.heapify(free)
    while True:
        now = heapq.heappop(free)
        trial = search.next(sum(join <= now for join in cluster.joins))
        if trial is None:
            return end, cluster.least(list(taken.values()))
        heapq.heappush(free, now + taken[trial.name])
        end = max(end, now + taken[trial.name])


def main(argv: Sequence[str]) -> None:
    """Simulates and prints."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("folders", nargs="*", type=Path)
    flags.add_argument("--plans", default="model_zoo,window_stride")
    flags.add_argument("--collection", default="python-docs")
    flags.add_argument("--backbone", default="tiny-docs")
    flags.add_argument("--slots", default="8,64,128")
    flags.add_argument("--seeds", type=int, default=5)
    flags.add_argument("--json", type=Path)
    args = flags.parse_args(argv)
    words = ["--collection", args.collection, "--backbone", args.backbone]
    lengths = {folder.parent.name: recorded(folder) for folder in args.folders}
    if not lengths:
        lengths = {name: forecasted(name, words) for name in args.plans.split(",")}
    rows = []
    for name, own in lengths.items():
        for slots in map(int, args.slots.split(",")):
            for cluster in clusters(slots):
                before, least = simulated(own.search(InPlanOrder, args.seeds), own.hours, cluster)
                after, _ = simulated(own.search(Listed, args.seeds), own.hours, cluster)
                rows.append(
                    {
                        "sweep": f"{name}, {len(own.hours)} x {args.seeds}",
                        "slots": str(slots),
                        "cluster": cluster.name,
                        "least (h)": f"{least:.2f}",
                        "plan order": f"{before:.2f} ({before / least - 1:+.0%})",
                        "long ones early": f"{after:.2f} ({after / least - 1:+.1%})",
                    }
                )
    show(rows, args.json, lengths={name: vars(own) for name, own in lengths.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
