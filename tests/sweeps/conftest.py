"""Plans over the small collection, and what a trial leaves behind."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from sweeps.engine.progress import Monitor
from sweeps.plan.make_plan import make_plan
from sweeps.plan.options import parse
from sweeps.plan.plan import Plan
from sweeps.search.search import Listed, Search
from sweeps.store.plan_description import manifest
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import TrialTable
from sweeps.window_stride import EXPERIMENT
from tests.sweeps.made_log import COSTS

PlanOf = Callable[..., Plan]
"""Words of a command line to the plan of window_stride over the small collection."""


@pytest.fixture
def inputs_words(backbone_folder: Path, collection_folder: Path) -> list[str]:
    return ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]


@pytest.fixture
def plan_of(inputs_words: list[str]) -> PlanOf:
    def plan(*words: str) -> Plan:
        options = parse([*inputs_words, *words], prog="window_stride.py", description="")
        return make_plan(EXPERIMENT, options)

    return plan


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at words only: drawing takes most of a report's time."""
    monkeypatch.setattr("sweeps.report.build.figures", lambda analysis, trust: [])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store of window_stride in a folder."""
    store = Store(str(tmp_path / "s"), "window_stride")
    store.open()
    return store


class Watched(Listed):
    """A grid that remembers what it was told."""

    def __init__(self, *args):
        super().__init__(*args)
        self.told = []

    def ended(self, trial, status):
        self.told.append((trial.name, status))
        super().ended(trial, status)


def follow(store: Store, plan: Plan, feed: type[Search] = Listed) -> Monitor:
    """Who follows a sweep that begins, with its feed; what is said goes to a string."""
    store.open()
    manifest(plan, []).write(store.folder)
    table = TrialTable(store)
    table.begin(plan)
    table.plan(plan, store.finished())
    search = feed(plan, lambda trial: None, store)
    return Monitor(table, search, "nDCG@10", out=io.StringIO())


@pytest.fixture
def leave_result(tmp_path: Path) -> Callable[..., None]:
    """Publishes a made-up result of a trial, as the trial's own process does."""

    def leave(store: Store, name: str, status: str = "done", seconds: float = 2.0) -> None:
        workdir = tmp_path / "workdirs" / name
        workdir.mkdir(parents=True)
        cell, _, seed = name.rpartition("-seed")
        rows = [
            (cell, int(seed), split, f"q{i}", "nDCG@10", i / 10)
            for split in ("dev", "test")
            for i in range(3)
        ]
        columns = ["cell", "seed", "split", "query_id", "measure", "value"]
        pd.DataFrame(rows, columns=columns).to_parquet(workdir / "per_query.parquet", index=False)
        result = {"cell": cell, "seed": int(seed), "status": status}
        result |= COSTS | {"train_seconds": seconds}
        (workdir / "result.json").write_text(json.dumps(result))
        store.publish(workdir, name)

    return leave


UPLOAD = """
import sys
from pathlib import Path
from sweeps.tracking.uploader import Uploader
from tests.sweeps.made_log import MadeLog
folder, uri, number = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
log = MadeLog(folder / number)
uploader = Uploader(folder / number, uri, "rank/ws")
uploader.start()
log.whole(f"c-seed{number}", steps=1)
sys.exit(uploader.close(400))
"""


@pytest.fixture
def four_at_once(tmp_path: Path) -> Callable[[str], None]:
    """Four processes that upload a run each, named #0 to #3, to a database that does not exist yet;
    none may fail or be turned away."""

    def upload(uri: str) -> None:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", UPLOAD, str(tmp_path), uri, str(number)],
                stderr=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            for number in range(4)
        ]
        errors = "".join(process.communicate(timeout=500)[1] for process in processes)
        assert [process.returncode for process in processes] == [0] * 4, errors
        assert "is unavailable" not in errors

    return upload
