"""The driver of a large cluster: its share of time at 64 slots, and what a command costs to start.

    python -m tests.benchmarks.many_slots [--slots 64] [--finished 2000] [--json FILE]

1. Fake trials report 5 steps/s each, every step a report of its own (a real trial reports every 20
   steps), over a storage with 3 ms a write; a trial has 100 steps. The clock is simulated: each
   call of the driver moves it by its processor seconds, and each write by 3 ms. Lag is the time
   from a report until the driver has taken it.
2. A command starts on a folder of finished trials, in a process of its own: seconds and peak
   memory until it knows what is left to do, and until `status` knows it, for trials of few and of
   many steps.
3. A database of MLflow gets the curves of trials that run: points/s that the driver is told of,
   and that arrive (of long trials 1,000 steps).
"""

import argparse
import io
import json
import multiprocessing
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from heapq import heapify, heapreplace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from rank_core.settings.config import TrialConfig
from rank_core.training.train import CurvePoint
from rank_core.trial.trial import Progress
from rank_core.trial.trial_result import TrialResult
from sweeps.driver.sweep import Finished
from sweeps.engine.progress import Monitor
from sweeps.engine.trial_task import End
from sweeps.plan.plan import PlannedCell, Trial
from sweeps.store import trial_events
from sweeps.store.checksums import COSTS, seal
from sweeps.store.trial_events import PROGRESS, Reported, append_lines, line_of
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_store import HISTORY, Store
from sweeps.store.trial_table import TrialTable, read_state
from sweeps.tracking.records import CURVE
from sweeps.tracking.uploader import Uploader
from tests.benchmarks.workload import print_table, save

STEPS_PER_SECOND = 5.0
WRITE_SECONDS = 0.003
NUM_STEPS = 100
WAITING = 1000  # trials that no slot takes up meanwhile


def trials(number: int) -> list[Trial]:
    """Trials of a sweep with 5 seeds."""
    config = TrialConfig()
    collection = SimpleNamespace(name="woods", content_hash="woods", documents={}, splits={})
    inputs: Any = SimpleNamespace(collection=collection)
    cells = [
        PlannedCell(f"cell{cell}", f"MaxP {cell}", config, inputs, None, 1e6, False)  # type: ignore[arg-type]
        for cell in range(-(-number // 5))
    ]
    return [Trial(cell, seed, ("chunking.window",)) for cell in cells for seed in range(5)][:number]


def progress(step: int, num_steps: int) -> Progress:
    """The report of one step."""
    point = CurvePoint(step, 1e9 + step / STEPS_PER_SECOND, 1 / step, 1e-5, 1.0)
    return Progress(step, num_steps, (point,), {"nDCG@10": 0.3} if step == num_steps else None)


def leave_result(store: Store, trial: Trial) -> TrialResult:
    """The folder of a finished trial."""
    folder = store.folder / "runs" / trial.name
    folder.mkdir(parents=True)
    costs = dict.fromkeys(COSTS, 1)
    values = {"nDCG@10": 0.3, "RR@10": 0.4}
    result = TrialResult(
        trial.cell.cell, trial.seed, "done", 1, values, values, versions={"torch": "2"}, **costs
    )
    (folder / "result.json").write_text(json.dumps(vars(result)))
    (folder / HISTORY).write_text("")
    seal(folder)
    return result


class Clock:
    """Simulated time. The driver's calls move it by what they took, writes by 3 ms each."""

    def __init__(self) -> None:
        self.now = self.busy = 0.0
        self.writes = 0

    def do(self, call: Callable[[], None]) -> None:
        """A call of the driver."""
        start, writes = time.process_time(), self.writes
        call()
        seconds = time.process_time() - start + WRITE_SECONDS * (self.writes - writes)
        self.busy += seconds
        self.now += seconds

    @contextmanager
    def of_the_log(self) -> Iterator[None]:
        """The clock by which the log knows when its reports are due."""

        def write(*given, **options):
            self.writes += 1
            append_lines(*given, **options)

        with (
            patch.object(trial_events, "append_lines", write),
            patch.object(
                trial_events,
                "time",
                SimpleNamespace(monotonic=lambda: self.now, time_ns=time.time_ns),
            ),
        ):
            yield


def driver(folder: Path, slots: int, seconds: float) -> dict[str, str]:
    """The driver's share of its time, events and writes per second, and lag."""
    store = Store(str(folder), "ws")
    store.open()
    number = int(slots * (2 + seconds * STEPS_PER_SECOND / NUM_STEPS))
    waiting = deque(trials(number + WAITING))
    feed = SimpleNamespace(ahead=waiting)  # what the time left is told from
    monitor = Monitor(TrialTable(store), feed, "nDCG@10", out=io.StringIO())
    clock, lags, ends = Clock(), [], 0
    with clock.of_the_log():
        running = []
        for slot in range(slots):
            monitor.started(trial := waiting.popleft())
            step = 1 + slot * NUM_STEPS // slots  # so that they do not all end at once
            running.append((slot / slots / STEPS_PER_SECOND, slot, trial, step))
        heapify(running)
        clock.writes = 0
        while (due := running[0][0]) < seconds:
            _, slot, trial, step = running[0]
            clock.now = max(clock.now, due)
            clock.do(lambda: monitor.news(trial, progress(step, NUM_STEPS)))  # noqa: B023
            lags.append(clock.now - due)
            if step == NUM_STEPS:
                result = leave_result(store, trial)
                clock.do(lambda: monitor.finished(trial, End(TrialStatus.DONE, result)))  # noqa: B023
                trial, step, ends = waiting.popleft(), 0, ends + 1
                clock.do(lambda: monitor.started(trial))  # noqa: B023
            heapreplace(running, (due + 1 / STEPS_PER_SECOND, slot, trial, step + 1))
    elapsed = max(clock.now, seconds)
    return {
        "slots": str(slots),
        "reports/s": f"{len(lags) / elapsed:.0f}",
        "trials ended": str(ends),
        "writes/s": f"{clock.writes / elapsed:.1f}",
        "driver's share": f"{100 * clock.busy / elapsed:.1f}%",
        "lag, median": f"{1000 * sorted(lags)[len(lags) // 2]:.1f} ms",
        "lag, most": f"{1000 * max(lags):.0f} ms",
    }


def restart(folder: Path, number: int, steps: int) -> dict[str, str]:
    """What a command costs that starts on `number` finished trials of so many steps."""
    store = Store(str(folder), "ws")
    store.open()
    table, of_sweep = TrialTable(store), trials(number)
    point = line_of(Reported.of("cell0-seed0", asdict(progress(1, steps))))
    with (folder / "ws" / PROGRESS).open("wb") as file:
        for _ in range(number):
            file.write(point * steps)
    for trial in of_sweep:
        leave_result(store, trial)
    table.plan(SimpleNamespace(trials=lambda: iter(of_sweep)), store.finished())  # type: ignore[arg-type]
    table.write_tables()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, status, mib = pool.apply(_start, (folder, number))
    return {
        "finished trials": str(number),
        "steps each": str(steps),
        "reports": f"{(folder / 'ws' / PROGRESS).stat().st_size / 2**20:.0f} MiB",
        "start": f"{seconds:.2f} s",
        "status": f"{status:.2f} s",
        "memory beside the imports": f"{mib:.0f} MiB",
    }


def upload(folder: Path, slots: int, num_steps: int) -> dict[str, str]:
    """Points/s that MLflow takes of running trials, whose runs it has."""
    store = Store(str(folder), "ws")
    store.open()
    table, uri = TrialTable(store), f"sqlite:///{folder / 'mlflow.db'}"
    running = trials(slots)
    for trial in running:
        table.started(trial)
    _upload(store, uri)
    for last in range(20, num_steps + 1, 20):
        points = [progress(step, num_steps).curve[0] for step in range(last - 19, last + 1)]
        for trial in running:
            table.reported(trial, asdict(replace(progress(last, num_steps), curve=tuple(points))))
    table.write_tables()
    seconds, told = _upload(store, uri), slots * (num_steps // 20 * 20) * len(CURVE)
    return {
        "trials": str(slots),
        "steps each": str(num_steps),
        "points told": str(told),
        "seconds": f"{seconds:.1f}",
        "points/s": f"{told / seconds:.0f}",
    }


def _upload(store: Store, uri: str) -> float:
    """Seconds until MLflow has all."""
    uploader = Uploader(store.folder, uri, "rank/ws")
    start = time.perf_counter()
    uploader.start()
    if uploader.close(3600):
        raise RuntimeError(f"MLflow has not taken all: {uploader.trouble}")
    return time.perf_counter() - start


def main(argv: Sequence[str]) -> None:
    """Measure all three and print a table of each."""
    parser = argparse.ArgumentParser(description="The driver at many slots.")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated (60)")
    parser.add_argument("--finished", type=int, default=2000, help="trials (2000)")
    parser.add_argument("--steps", default="100,1000", help="of a finished trial (100,1000)")
    parser.add_argument("--uploaded-steps", default="1000,4000", help="of a trial (1000,4000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    given = parser.parse_args(argv)
    found: dict[str, list[dict[str, str]]] = {"driver": [], "restart": [], "mlflow": []}
    with tempfile.TemporaryDirectory() as name:
        found["driver"].append(driver(Path(name), given.slots, given.seconds))
    for steps in map(int, given.steps.split(",")):
        with tempfile.TemporaryDirectory() as name:
            found["restart"].append(restart(Path(name), given.finished, steps))
    for steps in map(int, given.uploaded_steps.split(",")):
        with tempfile.TemporaryDirectory() as name:
            found["mlflow"].append(upload(Path(name), given.slots, steps))
    for rows in found.values():
        print_table(rows)
        print()
    save(given.json, found)  # type: ignore[arg-type]


def _start(folder: Path, number: int) -> tuple[float, float, float]:
    before, start = _mib("VmRSS"), time.perf_counter()
    store = Store(str(folder), "ws")
    table, of_sweep = TrialTable(store), trials(number)
    finished = Finished(store)
    finished.check(trial.name for trial in of_sweep)
    if table.plan(SimpleNamespace(trials=lambda: iter(of_sweep)), finished.names):  # type: ignore[arg-type]
        raise RuntimeError("all trials have finished")
    begun = time.perf_counter()
    read_state(store)
    return begun - start, time.perf_counter() - begun, _mib("VmHWM") - before


def _mib(what: str) -> float:
    """Resident set of this process, at its peak (VmHWM) or now (VmRSS); 0 where Linux is not."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(what)), 0.0)


if __name__ == "__main__":
    main(sys.argv[1:])
