"""Plays searches as the runner does, with values made up."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from rank_core.seeding import generator
from sweeps.plan.description import description_of
from sweeps.plan.plan import Plan, Trial
from sweeps.search.search import Search, make_search
from sweeps.store.records import COSTS, Records
from sweeps.store.storage import Storage

SIX = ("chunking.window=16,24,32", "chunking.stride=8,16")
Value = Callable[[Trial], float]


def leave(records: Records, trial: Trial, value: float) -> None:
    """The finished trial, whose dev values have the mean `value`."""
    rng = generator(trial.seed, trial.cell.cell)
    dev_Q = rng.normal(0, 0.05, 12)
    folder = records.folder / "work" / trial.name
    folder.mkdir(parents=True, exist_ok=True)
    columns = ["cell", "seed", "split", "query_id", "measure", "value"]
    rows = [
        (trial.cell.cell, trial.seed, "dev", f"q{number}", "nDCG@10", value + one - dev_Q.mean())
        for number, one in enumerate(dev_Q)
    ]
    pd.DataFrame(rows, columns=columns).to_parquet(folder / "per_query.parquet", index=False)
    facts = {"status": "done"} | dict.fromkeys(COSTS, 1.0)
    (folder / "result.json").write_text(json.dumps(facts))
    records.publish(trial.name, folder)


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
        self,
        folder: Path,
        plan: Plan,
        value: Value,
        *,
        lost: frozenset[str] = frozenset(),
        stopped: frozenset[str] = frozenset(),
    ) -> None:
        storage = Storage(str(folder))
        storage.open()
        self.records = Records(storage, "window_stride/woods")
        description_of(plan, []).write(self.records)
        self.plan, self.value, self.lost, self.stopped = plan, value, lost, stopped
        self.launched: list[Trial] = []

    def status(self, name: str) -> str | None:
        return "done" if self.records.state(name).status.used else None

    def begin(self) -> Search:
        def known(trial: Trial) -> str | None:
            return self.status(trial.name)

        return make_search(self.plan, known, self.records).begin()

    def play(
        self,
        *,
        slots: int = 1,
        order: int = 0,
        ends: int = 10_000,
        nodes: Sequence[int] = (),
    ) -> Search:
        """Until the search is over, or a driver is killed after some ends. `nodes` are the slots of
        a cluster that changes, in turn, each for three ends."""
        search, running, rng = self.begin(), list[Trial](), generator(order, "order")
        while ends and (running or not search.over):
            slots = nodes[ends // 3 % len(nodes)] if nodes else slots
            while len(running) < slots and (trial := search.next(slots)):
                running.append(trial)
                self.launched.append(trial)
            assert running, "a search that is not over must have something to run"
            trial = running.pop(int(rng.integers(len(running))))
            if trial.name in self.lost:
                search.ended(trial, "failed")
            elif trial.competes and trial.cell.cell in self.stopped:
                search.ended(trial, "stopped")
            else:
                leave(self.records, trial, self.value(trial))
                search.ended(trial, "done")
            ends -= 1
        if search.over and not running:  # as an engine ends
            search.describe()
        return search
