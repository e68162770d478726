"""Plays halving as the runner does, over trials whose dev values are made up, one per epoch."""

import json
from pathlib import Path

import pytest

from rank_core.seeding import generator
from sweeps.plan.options import parse
from sweeps.plan.plan import Plan, Trial
from sweeps.search.halving import HalvingSearch
from sweeps.search.search import make_search
from sweeps.store.plan_description import manifest
from sweeps.store.rungs import Rung, leave_rung
from sweeps.store.trial_store import Store

EPOCHS = 9
NINE = ("chunking.window=16,24,32", "chunking.stride=8,12,16", f"training.num_epochs={EPOCHS}")
HALVING = ("--search", "halving", *NINE)
STEPS = 2  # of an epoch of the small collection: 8 training queries, batches of 4
FOUR = ("training.batch_size=4",)


def curve(trial: Trial) -> list[float]:
    """Dev per epoch: 16-token windows learn slowly and end best, others the other way round."""
    luck = generator(trial.seed, "luck", trial.cell.cell).normal(0, 0.01)
    final = 0.5 - trial.config.chunking.stride / 100 + float(luck)
    return [final * (1 - 0.5**epoch) for epoch in range(1, EPOCHS + 1)]


class Player:
    """Plays a search as the runner does: some slots, ends in any order, kills at any moment."""

    def __init__(self, folder: Path, plan: Plan, *, lost: frozenset[str] = frozenset()) -> None:
        self.store = Store(str(folder), "window_stride")
        self.store.folder.mkdir(parents=True)
        manifest(plan, []).write(self.store.folder)
        self.plan, self.lost = plan, lost
        self.launched: list[str] = []

    def begin(self) -> HalvingSearch:
        finished = self.store.finished()
        known = lambda trial: "done" if trial.name in finished else None  # noqa: E731
        search = make_search(self.plan, known, self.store)
        assert isinstance(search, HalvingSearch)
        return search

    def leave(self, trial: Trial) -> str:
        values = curve(trial)
        if trial.epochs:
            best = max(values[: trial.epochs])
            steps = (trial.epochs * STEPS, EPOCHS * STEPS)
            rung = Rung(trial.epochs, EPOCHS, *steps, "nDCG@10", best)
            leave_rung(self.store, trial.name, rung)
            checkpoints = Path(self.store.checkpoint_folder(trial.name))
            checkpoints.mkdir(parents=True, exist_ok=True)
            (checkpoints / "step.checkpoint").touch()
            return "stopped"
        folder = self.store.folder / "runs" / trial.name
        folder.mkdir(parents=True)
        history = [
            json.dumps({"step": STEPS * number, "dev": {"nDCG@10": value}})
            for number, value in enumerate(values, start=1)
        ]
        (folder / "history.jsonl").write_text("\n".join(history))
        (folder / "result.json").write_text(json.dumps({"status": "done"}))
        return "done"

    def play(self, *, slots: int = 1, order: int = 0, ends: int = 10_000) -> HalvingSearch:
        """Until the search is over, or a driver is killed after some ends."""
        search, running, rng = self.begin(), list[Trial](), generator(order, "order")
        while ends and (running or not search.over):
            while len(running) < slots and (trial := search.next()):
                assert trial.name not in {other.name for other in running}
                running.append(trial)
                self.launched.append(trial.job)
            assert running, "a search that is not over must have something to run"
            trial = running.pop(int(rng.integers(len(running))))
            search.ended(trial, "failed" if trial.name in self.lost else self.leave(trial))
            ends -= 1
        return search


@pytest.fixture(scope="module")
def wide(request, backbone_folder, collection_folder) -> Plan:
    """The baseline and 9 configurations of 9 epochs, 2 seeds."""
    from sweeps.plan.make_plan import make_plan
    from sweeps.window_stride import EXPERIMENT

    words = ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]
    words += [*HALVING, *FOUR, "--num-seeds", "2"]
    return make_plan(EXPERIMENT, parse(words, prog="window_stride.py", description=""))
