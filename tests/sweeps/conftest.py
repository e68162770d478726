"""Plans over the small collection, and what a trial leaves behind."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rank_core.trial.trial import TrialResult
from sweeps.engine.kept_weights import KeptWeights
from sweeps.engine.progress import Screen
from sweeps.engine.trial_events import TrialEvents
from sweeps.plan.description import description_of
from sweeps.plan.experiment import Experiment
from sweeps.plan.make_plan import make_plan
from sweeps.plan.options import parse
from sweeps.plan.plan import Plan
from sweeps.search.search import Listed, Search
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.window_stride import EXPERIMENT

PlanOf = Callable[..., Plan]
"""Words of a command line to the plan of window_stride, or of another `experiment`, over the small
collection."""


@pytest.fixture
def inputs_words(backbone_folder: Path, collection_folder: Path) -> list[str]:
    return ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]


@pytest.fixture
def plan_of(inputs_words: list[str]) -> PlanOf:
    def plan(*words: str, experiment: Experiment = EXPERIMENT) -> Plan:
        given = inputs_words[:2] if "--backbone" in words else inputs_words
        options = parse([*given, *words], prog="window_stride.py", description="")
        return make_plan(experiment, options)

    return plan


@contextmanager
def quick_reports() -> Iterator[None]:
    """Reports without figures, which take most of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweeps.report.files.figures", lambda analysis: [])
        yield


@pytest.fixture
def no_figures() -> Iterator[None]:
    """For tests that look at words only."""
    with quick_reports():
        yield


@pytest.fixture(scope="module")
def no_figures_here() -> Iterator[None]:
    """For a module of such tests, its fixtures included."""
    with quick_reports():
        yield


COSTS = {
    "train_seconds": 2.0,
    "eval_seconds": 1.0,
    "peak_memory_bytes": 2**20,
    "encoder_tokens": 1000,
    "padding_share": 0.25,
    "training_padding_share": 0.125,
    "ties": 0,
}
"""Of a trial."""


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """An empty sweep in a folder, driven by this test."""
    storage = Storage(str(tmp_path / "s"))
    storage.open()
    return Records(storage, "window_stride/woods", command="driver")


class Watched(Listed):
    """A grid that remembers what it was told."""

    def __init__(self, *args):
        super().__init__(*args)
        self.told = []

    def ended(self, trial, status):
        self.told.append((trial.name, status))
        super().ended(trial, status)


class ToldMlflow:
    """What the thread that talks to MLflow was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def changed(self, name):
        self.told.append(("changed", name))

    def reported(self, name, report):
        self.told.append(("reported", name))


def follow(records: Records, plan: Plan, feed: type[Search] = Listed) -> TrialEvents:
    """A sweep that begins; its search is `feed`, and what is said goes to a string."""
    description_of(plan, []).write(records)
    states = records.states(trial.name for trial in plan.trials())
    search = feed(plan, lambda trial: None, records).begin()
    screen = Screen(search, "nDCG@10", states, out=io.StringIO())
    return TrialEvents(
        records, ToldMlflow(), search, screen, KeptWeights(records, "nDCG@10", 2**30)
    )


@pytest.fixture
def leave_result(tmp_path: Path) -> Callable[..., TrialResult]:
    """Publishes a made-up result of a trial, as the trial's own process does."""

    def leave(records: Records, name: str, status: str = "done", **facts: Any) -> TrialResult:
        workdir = tmp_path / "workdirs" / name
        workdir.mkdir(parents=True, exist_ok=True)
        cell, _, seed = name.rpartition("-seed")
        rows = [
            (cell, int(seed), split, f"q{i}", "nDCG@10", i / 10)
            for split in ("dev", "test")
            for i in range(3)
        ]
        columns = ["cell", "seed", "split", "query_id", "measure", "value"]
        pd.DataFrame(rows, columns=columns).to_parquet(workdir / "per_query.parquet", index=False)
        values = {"nDCG@10": 0.25, "RR@10": 0.5}
        result = {"cell": cell, "seed": int(seed), "status": status, "best_step": 2}
        result |= COSTS | {"dev": values, "test": values, "versions": {"torch": "2"}} | facts
        (workdir / "config.json").write_text('{"training.keep_weights": "none"}')
        (workdir / "result.json").write_text(json.dumps(result))
        records.publish(name, workdir)
        return TrialResult(**result)

    return leave
