"""Plays searches as the runner does, with values made up."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from rank_core.seeding import generator
from sweeps.plan.plan import Plan, Trial
from sweeps.search.search import Search, make_search
from sweeps.store.plan_description import manifest
from sweeps.store.trial_store import Store

SIX = ("chunking.window=16,24,32", "chunking.stride=8,16")
Value = Callable[[Trial], float]


def leave(store: Store, trial: Trial, value: float) -> None:
    """The finished trial, whose dev values have the mean `value`."""
    rng = generator(trial.seed, trial.cell.cell)
    dev_Q = rng.normal(0, 0.05, 12)
    folder = store.folder / "runs" / trial.name
    folder.mkdir(parents=True)
    columns = ["cell", "seed", "split", "query_id", "measure", "value"]
    rows = [
        (trial.cell.cell, trial.seed, "dev", f"q{number}", "nDCG@10", value + one - dev_Q.mean())
        for number, one in enumerate(dev_Q)
    ]
    pd.DataFrame(rows, columns=columns).to_parquet(folder / "per_query.parquet", index=False)
    (folder / "result.json").write_text(json.dumps({"status": "done"}))


def window_of(trial: Trial) -> int:
    return trial.config.chunking.window


def good_small_windows(trial: Trial) -> float:
    """Windows of 16 are better by far, and every run has its luck, whatever its cell is called."""
    stride = trial.config.chunking.stride
    luck = generator(trial.seed, "luck", str(window_of(trial)), str(stride)).normal(0, 0.004)
    return 0.5 - window_of(trial) / 100 - stride / 1000 + float(luck)


class Player:
    """Plays a search as the runner does: some slots, ends in any order, kills at any moment."""

    def __init__(
        self, folder: Path, plan: Plan, value: Value, *, lost: frozenset[str] = frozenset()
    ) -> None:
        self.store = Store(str(folder), "window_stride")
        self.store.folder.mkdir(parents=True)
        manifest(plan, []).write(self.store.folder)
        self.plan, self.value, self.lost = plan, value, lost
        self.launched: list[Trial] = []

    def begin(self) -> Search:
        finished = self.store.finished()
        return make_search(
            self.plan, lambda trial: "done" if trial.name in finished else None, self.store
        )

    def play(self, *, slots: int = 1, order: int = 0, ends: int = 10_000) -> Search:
        """Until the search is over, or a driver is killed after some ends."""
        search, running, rng = self.begin(), list[Trial](), generator(order, "order")
        while ends and (running or not search.over):
            while len(running) < slots and (trial := search.next()):
                running.append(trial)
                self.launched.append(trial)
            assert running, "a search that is not over must have something to run"
            trial = running.pop(int(rng.integers(len(running))))
            if trial.name in self.lost:
                search.ended(trial, "failed")
            else:
                leave(self.store, trial, self.value(trial))
                search.ended(trial, "done")
            ends -= 1
        return search
