"""Seconds of work that trials lose which are killed without a notice, on a storage with a limit.

Each trial is a process that checkpoints as the product does, to a storage of a fixed rate that all
share, whose writes are whole or absent. Trials are killed (SIGKILL) at random moments, each
followed by another one, and what is lost is the time from the state in the storage to the kill.
`before` is the way of 0.4: the trial waits while it uploads, all trials at the same times, one
upload per fifty times what the last one took. Files and times are smaller than said by one factor,
so that an hour takes minutes; processor time is not, and a busy machine adds to what is lost. Run:
python -m tests.benchmarks.preemption [--trials 64] [--nodes 8] [--gigabytes 1.3] [--rate 1.0]
    [--minutes 90] [--faster 20] [--json F]
"""

import argparse
import fcntl
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import torch
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem

from rank_core.checkpoints import COST_SHARE, Cadence
from rank_core.checkpoints.checkpoint import Checkpoints
from tests.benchmarks.workload import show

SMALLER = 10_000  # a file of 1.3 GB has 130 kB
PIECES = 20  # of a file, between which other uploads have their share
STEP = 0.05  # seconds between two steps of training
KILLS_AFTER = 10.0  # minutes, when uploads no longer follow from the common start


class Limited(DirFileSystem):  # type: ignore[misc]
    """A folder behind a link that carries so many bytes per second for all processes together."""

    protocol = ("limited",)
    rate = 0.0
    link = Path()

    def __init__(self) -> None:
        super().__init__(path="/", fs=LocalFileSystem())

    def put_file(self, lpath: str, rpath: str, *unused: Any, **options: Any) -> None:
        """Writes a copy whole or not at all, piece by piece as the link is free."""
        data, part = Path(lpath).read_bytes(), Path(f"{rpath}.part{os.getpid()}")
        size = -(-len(data) // PIECES)
        with part.open("wb") as file:
            for at in range(0, len(data), size):
                self._carry(size)
                file.write(data[at : at + size])
        part.replace(rpath)

    def _carry(self, size: int) -> None:
        # The end of a process frees a lock of the system.
        with self.link.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            free = max(float(file.read() or 0), time.monotonic()) + size / self.rate
            file.seek(0)
            file.write(f"{free:.6f}\n")
        time.sleep(max(0.0, free - time.monotonic()))


class Before(Checkpoints):
    """As in 0.4: the trial waits for each upload."""

    def due(self, step: int) -> bool:
        return self.clock() - self._since >= max(60 * self.cadence.minutes, self._cost / COST_SHARE)

    def save(self, *what: Any, **options: Any) -> None:
        before = self.clock()
        super().save(*what, **options)
        self.finish(3600.0)
        self._since = self.clock()
        self._cost = self._since - before


WAYS: dict[str, Callable[..., Checkpoints]] = {"before": Before, "after": Checkpoints}


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--trials", type=int, default=64)
    flags.add_argument("--nodes", type=int, default=8)
    flags.add_argument("--gigabytes", type=float, default=1.3, help="of a checkpoint")
    flags.add_argument("--rate", type=float, default=1.0, help="GB/s of the storage")
    flags.add_argument("--minutes", type=float, default=90.0, help="until the last trial is killed")
    flags.add_argument("--faster", type=float, default=20.0, help="than real time")
    flags.add_argument("--json", type=Path, help="write the figures here")
    options = flags.parse_args(argv)
    rows = []
    for way in WAYS:
        lost = lost_seconds(way, options)
        shares = np.percentile(lost, [50, 90, 100])
        names = ("mean", "median", "90%", "most")
        values = [float(np.mean(lost)), *map(float, shares)]
        rows.append(
            {"way": way, "trials": str(len(lost))}
            | {f"s lost, {name}": f"{n:.0f}" for name, n in zip(names, values, strict=True)}
        )
    show(rows, options.json)


def lost_seconds(way: str, options: argparse.Namespace) -> list[float]:
    """What each trial loses, in seconds before they were made shorter."""
    with _home() as home:
        random.seed(1)
        begun = time.monotonic()
        trials = [_started(way, home, number, options) for number in range(options.trials)]
        ends = [random.uniform(KILLS_AFTER, options.minutes) for _ in trials]
        lost = [0.0] * len(trials)
        for number in np.argsort(ends).tolist():
            end = begun + 60 * ends[number] / options.faster
            time.sleep(max(0.0, end - time.monotonic()))
            os.kill(trials[number].pid or 0, signal.SIGKILL)
            killed = time.monotonic()
            trials[number].join()
            content = Checkpoints(_uri(home, number), Cadence()).load()
            saved = json.loads(content["facts"]) if content else begun
            lost[number] = (killed - saved) * options.faster
            trials.append(_started(way, home, number + len(ends), options))
        for trial in trials:
            trial.kill()
            trial.join()
        return lost


def _started(way: str, home: Path, number: int, options: argparse.Namespace) -> Any:
    fork = multiprocessing.get_context("fork")
    trial = fork.Process(target=_train, args=(way, home, number, options), daemon=True)
    trial.start()
    return trial


def _uri(home: Path, number: int) -> str:
    return f"limited://{home}/storage/trial-{number:03}"


@contextmanager
def _home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ranksweep-preemption-") as name:
        home = Path(name)
        Limited.link = home / "link"
        Limited.link.touch()
        fsspec.register_implementation("limited", Limited, clobber=True)
        yield home


def _train(way: str, home: Path, number: int, options: argparse.Namespace) -> None:
    """A trial: it does nothing but checkpoints, until it is killed."""
    torch.set_num_threads(1)
    logging.disable()
    node = home / f"node-{number % options.nodes}"
    node.mkdir(exist_ok=True)
    os.environ["RANKSWEEP_CACHE"] = str(node)  # with the lock of the node
    Limited.rate = options.rate * 1e9 / SMALLER * options.faster
    weights = torch.zeros(int(options.gigabytes * 1e9 / SMALLER / 4))
    checkpoints = WAYS[way](_uri(home, number), Cadence(minutes=1 / options.faster))
    step = 0
    while True:
        step += 1
        time.sleep(STEP)
        if checkpoints.due(step):
            facts = json.dumps(time.monotonic())
            checkpoints.save({"weights": weights, "facts": facts}, (0, step))


if __name__ == "__main__":
    main(sys.argv[1:])
