"""Sweeps from end to end, each on a folder of its own: in this process by the local engine, or as a
command of its own on Ray."""

import io
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 840  # a command that takes longer hangs; two share two cores


@dataclass
class Sweep:
    """A started command and where it writes."""

    process: subprocess.Popen[str]
    storage: Path
    log: Path  # standard output and error together

    @property
    def folder(self) -> Path:
        return self.storage / "window_stride" / "woods"

    @property
    def text(self) -> str:
        return self.log.read_text()

    def wait_for(self, words: str, seconds: float = SECONDS) -> None:
        """Returns once the command has printed `words`."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert self.process.poll() is None and time.monotonic() < deadline, self.text
            time.sleep(0.02)

    def end(self) -> int:
        """Waits for the end; the exit code."""
        return self.process.wait(SECONDS)


def trials_of(folder: Path) -> Any:
    """A row for each trial of a sweep that had an attempt, as its report has them."""
    from sweeps.store.sweep_file import find_sweep, read_sweep_file
    from sweeps.systems.load import planned_states, trial_table

    file = read_sweep_file(folder)
    return trial_table(planned_states(find_sweep(str(folder)), file), file)


def values_of(folder: Path) -> Any:
    """The per-query values of a sweep's trials, by their names."""
    import pandas as pd

    trials = trials_of(folder)
    used = trials[trials["status"].isin(("done", "collapsed"))]
    names = sorted(f"{row.cell}-seed{row.seed}" for row in used.itertuples())
    files = [folder.parents[1] / "trials" / name / "per_query.parquet" for name in names]
    return pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)


StartSweep = Callable[..., AbstractContextManager[Sweep]]
RunSweep = Callable[..., Sweep]


@pytest.fixture(scope="session")
def start_sweep(backbone_folder: Path, collection_folder: Path) -> StartSweep:
    """A context with a started sweep; nothing of it is left behind the block."""
    inputs = ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]

    @contextmanager
    def start(storage: Path, *words: str, program: Sequence[str] = ()) -> Iterator[Sweep]:
        storage.mkdir(parents=True, exist_ok=True)
        log = storage.parent / f"{storage.name}-{time.monotonic_ns()}.log"
        command = list(program) or [str(ROOT / "sweeps" / "window_stride.py")]
        command = [sys.executable, *command, *inputs, "--storage", str(storage), *words]
        with log.open("w") as output:
            process = subprocess.Popen(
                ["nice", "-n", "5", *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=storage,  # a user may stand anywhere
                env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
            )
        started = None
        try:
            yield Sweep(process, storage, log)
        finally:
            if process.poll() is None:
                started = descendants(process.pid)
                process.kill()
                process.wait(300)
            for pid in started or []:
                with suppress(ProcessLookupError):  # most end with their driver
                    os.kill(pid, signal.SIGKILL)

    return start


@pytest.fixture(scope="session")
def run_sweep(start_sweep: StartSweep) -> RunSweep:
    """Runs a sweep to its end and checks its exit code."""

    def run(storage: Path, *words: str, code: int = 0, program: Sequence[str] = ()) -> Sweep:
        with start_sweep(storage, *words, program=program) as sweep:
            assert sweep.end() == code, sweep.text
        return sweep

    return run


class _Output(io.StringIO):
    """What a command prints; acts once on some words as soon as they are printed."""

    def __init__(self, actions: Mapping[str, Callable[[], object]]) -> None:
        super().__init__()
        self.actions = dict(actions)

    def write(self, text: str) -> int:
        length = super().write(text)
        for words in [words for words in self.actions if words in self.getvalue()]:
            self.actions.pop(words)()
        return length


@dataclass
class Ran:
    """A command of the local engine, and where it has written."""

    storage: Path
    folder: Path
    text: str  # standard output, standard error and log together


@pytest.fixture(scope="session")
def run_local(backbone_folder: Path, collection_folder: Path) -> Callable[..., Ran]:
    """Runs a sweep (window_stride if no other) in this process; `code` is its exit code. The
    `actions` are done when their words have been printed. Drawing takes most of a report's time:
    only the report of `smoke` has `figures`."""
    from sweeps.launch.command import main
    from sweeps.window_stride import EXPERIMENT
    from tests.sweeps.conftest import quick_reports

    inputs = {"--collection": str(collection_folder), "--backbone": str(backbone_folder)}

    def run(
        storage: Path,
        *words: str,
        code: int = 0,
        experiment: Any = EXPERIMENT,
        actions: Mapping[str, Callable[[], object]] = MappingProxyType({}),
        figures: bool = False,
    ) -> Ran:
        out = _Output(actions)
        own = {} if "--confirm" in words else inputs
        given = [word for flag in own.items() if flag[0] not in words for word in flag]
        words = (*given, "--engine", "local", "--storage", str(storage), *words)
        log = logging.StreamHandler(out)
        logging.getLogger().addHandler(log)
        try:
            with (
                nullcontext() if figures else quick_reports(),
                redirect_stdout(out),
                redirect_stderr(out),
            ):
                ended = main(experiment, words, doc=None)
        finally:
            logging.getLogger().removeHandler(log)
        assert ended == code, out.getvalue()
        return Ran(storage, storage / experiment.name / "woods", out.getvalue())

    return run


@pytest.fixture(scope="session")
def smoke(run_local: Callable[..., Ran], tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A finished smoke test; whoever changes its folder works on a copy."""
    storage = tmp_path_factory.mktemp("smoke") / "results"
    return run_local(storage, "--smoke-test", figures=True)


@pytest.fixture(scope="session")
def confirmed(run_local: Callable[..., Ran], tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A finished smoke test of the seeds 3 and 4, of which MaxP, not the baseline, is the best on
    dev, and its confirmation; not to be changed."""
    storage = tmp_path_factory.mktemp("confirmed") / "results"
    run_local(storage, "--smoke-test", "--seeds", "3,4", "--interpolate", "none")
    return run_local(storage, "--confirm")


@pytest.fixture(scope="session")
def ray_smoke(run_sweep: RunSweep, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """The same on Ray, of a copy of the script, as `ray submit` brings it; not to be changed."""
    home = tmp_path_factory.mktemp("ray-smoke")
    script = shutil.copy(ROOT / "sweeps" / "window_stride.py", home)
    return run_sweep(home / "results", "--smoke-test", program=[str(script)])


def descendants(pid: int) -> list[int]:
    """All processes below `pid`."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended while we looked
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    found, new = [], {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found += sorted(new)
    return found


def recorded(uri: str) -> dict[str, Any]:
    """What MLflow shows of its one sweep: {run name: (status, {metric: [(step, value)]})}."""
    from sweeps.tracking.client import connect

    client = connect(uri)
    [experiment] = [e for e in client.search_experiments() if "rank.sweep" in e.tags]
    runs = client.search_runs([experiment.experiment_id], "tags.config.id != ''")
    assert len({run.data.tags["rank.trial_key"] for run in runs}) == len(runs)
    runs = [run for run in runs if "model.name" in run.data.params]  # not the first stage
    return {
        run.info.run_name: (
            run.info.status,
            {
                name: sorted(
                    (point.step, point.value)
                    for point in client.get_metric_history(run.info.run_id, name)
                )
                for name in run.data.metrics
            },
        )
        for run in runs
    }


@pytest.fixture(scope="session")
def read_mlflow() -> Callable[[str], dict[str, Any]]:
    return recorded


@pytest.fixture(scope="session")
def assert_recorded_once(read_mlflow: Callable[[str], dict[str, Any]]) -> Callable[..., None]:
    """That MLflow has each trial once, with each of its points once; dev after each ten steps."""

    def check(storage: Path, *, trials: int, steps: int) -> None:
        runs = read_mlflow(f"sqlite:///{storage / 'mlflow.db'}")
        assert len(runs) == trials
        for status, metrics in runs.values():
            assert status == "FINISHED"
            assert [step for step, _ in metrics["train/loss"]] == list(range(1, steps + 1))
            validated = list(range(10, steps + 1, 10))
            assert [step for step, _ in metrics["dev/ndcg_cut_10"]] == validated
            assert len(metrics["test/ndcg_cut_10"]) == 1

    return check


@pytest.fixture(scope="session")
def processes_below() -> Callable[[int], list[int]]:
    return descendants
