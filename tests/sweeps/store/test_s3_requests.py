"""The requests that a sweep makes of S3 (moto's server on loopback): a bounded number for each
thing that happens, however many trials the storage holds. `pip install -e ".[dev]"` brings what it
needs."""

import json
import logging
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rank_core.settings.config import TrialConfig
from rank_core.trial.trial_result import TrialResult
from sweeps.plan.plan import Trial
from sweeps.store.checksums import COSTS, seal
from sweeps.store.driver_lock import only_driver
from sweeps.store.trial_store import HISTORY, Store
from sweeps.store.trial_table import TrialTable
from tests.s3_server import s3_bucket

pytest.importorskip("s3fs", minversion="2026.1")
pytest.importorskip("moto")

pytestmark = pytest.mark.slow

REQUESTS = {
    "start a trial": 2,  # the log's last piece, and the last reports
    "tell its progress": 0,  # they go with the next start or end
    "leave its files": 4,
    "record its end": 7,  # its files are brought here, the log sent
    "look for its checkpoints": 5,
    "ask whether another sweep has it": 3,
    "write the tables": 3,
}
"""At most, whatever the number of trials."""


@pytest.fixture(scope="module")
def requests():
    """The number of requests that S3 has had, by kind."""
    counts: Counter[str] = Counter()

    class Handler(logging.Handler):
        def emit(self, record):
            counts["all"] += 1
            counts["list"] += "list-type" in record.getMessage()

    log = logging.getLogger("werkzeug")  # a line for each request
    handler, level = Handler(), log.level
    with s3_bucket():
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        yield counts
        log.removeHandler(handler)
        log.setLevel(level)


def fresh_store(number: int, home: Path, monkeypatch) -> Store:
    monkeypatch.setenv("RANKSWEEP_CACHE", str(home))
    store = Store(f"s3://bucket/{number}", "ws/woods")
    store.open()
    return store


def trials(number: int) -> list[Trial]:
    collection = SimpleNamespace(name="woods", content_hash="woods", documents={}, splits={})
    cell: Any = SimpleNamespace(
        cell="cell",
        label="MaxP",
        config=TrialConfig(),
        inputs=SimpleNamespace(collection=collection),
    )
    return [Trial(cell, seed, ("chunking.window",)) for seed in range(number)]


def leave_result(store: Store, trial: Trial) -> None:
    folder = store.folder / "runs" / trial.name
    folder.mkdir(parents=True)
    values, costs = {"nDCG@10": 0.3}, dict.fromkeys(COSTS, 1)
    result = TrialResult("cell", trial.seed, "done", 1, values, values, versions={}, **costs)
    (folder / "result.json").write_text(json.dumps(vars(result)))
    (folder / HISTORY).write_text("")
    seal(folder)


def plan_of(number: int) -> SimpleNamespace:
    return SimpleNamespace(trials=lambda: iter(trials(number)))


def run_all(number: int, store: Store, counts: Counter[str]) -> dict[str, int]:
    """A sweep of fake trials; the requests of the last of them, by what happened."""
    made: dict[str, int] = {}

    def count(what, action):
        before = counts["all"]
        action()
        made[what] = counts["all"] - before

    with only_driver(store):
        table = TrialTable(store)
        table.plan(plan_of(number), store.finished())
        store.adoptable(trials(number))
        for trial in trials(number):
            other = Store(tempfile.mkdtemp(dir=store.folder), "ws/woods")
            leave_result(other, trial)
            files = other.folder / "runs" / trial.name
            news = {"step": 1, "num_steps": 10, "curve": [], "dev": None}
            count("start a trial", lambda: table.started(trial))  # noqa: B023
            count("tell its progress", lambda: table.reported(trial, news))  # noqa: B023
            count("leave its files", lambda: store.publish(files, trial.name))  # noqa: B023
            count("record its end", lambda: table.finished(trial))  # noqa: B023
            count("look for its checkpoints", lambda: store.has_checkpoints(trial.name))  # noqa: B023
            count("ask whether another sweep has it", lambda: store.seek(trial.name))  # noqa: B023
        count("write the tables", table.write_tables)
    return made


@pytest.mark.parametrize("number", [2, 12])
def test_what_happens_to_a_trial_takes_a_bounded_number_of_requests(
    requests, tmp_path, monkeypatch, number
):
    made = run_all(number, fresh_store(number, tmp_path, monkeypatch), requests)
    assert {what: most for what, most in made.items() if most > REQUESTS[what]} == {}


def test_a_command_starts_with_the_same_requests_whatever_has_finished(
    requests, tmp_path, monkeypatch
):
    started = {}
    for number in (3, 30):
        store = fresh_store(100 + number, tmp_path / "first", monkeypatch)
        run_all(number, store, requests)
        again = Store(store.storage, store.sweep)
        before = requests["all"]
        with only_driver(again):
            table = TrialTable(again)
            assert table.plan(plan_of(number), again.finished()) == []
            again.adoptable(trials(number))
        started[number] = requests["all"] - before
    assert started[30] <= started[3] <= 25, started
