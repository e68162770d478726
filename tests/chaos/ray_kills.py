"""Kills of a process of a laptop's Ray in the middle of small sweeps, as a table:

    python -m tests.chaos.ray_kills gcs_server 12
    python -m tests.chaos.ray_kills raylet 12

A row has the longest silence on the terminal after the kill, the ending, whether the values equal
those of an undisturbed sweep, and whether MLflow has one run per trial.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pandas as pd

from tests.e2e.conftest import descendants, recorded, values_of

ROOT = Path(__file__).parents[2]
SEEDS = 4
TRIALS = 3 * SEEDS
WORDS = f"--smoke-test --num-seeds {SEEDS}".split()
SECONDS = 1500


def executable(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""  # it ended while we looked


def of_ray(name: str, pid: int) -> int | None:
    """The process of Ray called `name` that the process has started, if it runs."""
    found = [one for one in descendants(pid) if executable(one).endswith(f"/{name}")]
    return found[0] if found else None


class Terminal:
    """A command and the times of its lines."""

    def __init__(self, storage: Path) -> None:
        command = [sys.executable, str(ROOT / "sweeps" / "window_stride.py"), *WORDS]
        self.process = subprocess.Popen(
            ["nice", *command, "--storage", str(storage)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        self.lines: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line))

    @property
    def text(self) -> str:
        return "".join(line for _, line in list(self.lines))

    def has_ended_a_trial(self, since: int) -> bool:
        return any(line.startswith("[") and " dev " in line for _, line in self.lines[since:])

    def end(self) -> int | str:
        """Its exit code, or that it hangs."""
        try:
            code: int | str = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            below = descendants(self.process.pid)
            self.process.kill()
            for pid in below:
                os.kill(pid, signal.SIGKILL)
            code = "hangs"
        self._reader.join(30)
        return code

    def silence(self, since: float, until: float) -> float:
        """The longest time without a line."""
        times = [since, *(at for at, _ in self.lines if since < at < until)]
        return max((b - a for a, b in pairwise(times)), default=0.0)


def sweep(storage: Path, victim: str, moments: Sequence[float]) -> list[dict[str, object]]:
    """A sweep with kills, each some seconds after a trial has ended since the last restart; a row
    for each."""
    one, kills = Terminal(storage), []
    for moment in moments:
        seen = len(one.lines)
        while one.process.poll() is None and not one.has_ended_a_trial(seen):
            time.sleep(0.1)
        time.sleep(moment)
        pid = of_ray(victim, one.process.pid)
        if pid is None:  # the sweep is over
            break
        os.kill(pid, signal.SIGKILL)
        kills.append((time.monotonic(), moment))
        while one.process.poll() is None and one.text.count("restarting it") < len(kills):
            time.sleep(0.1)
    code = one.end()
    storage.with_suffix(".log").write_text(one.text)
    ends = [at for at, _ in kills[1:]] + [time.monotonic()] * bool(kills)
    return [
        {
            "killed": victim,
            "after s": round(moment, 1),
            "silence s": round(one.silence(at, until), 1),
            "exit": code,
            "lines": sum(at < each < until for each, _ in one.lines),
        }
        for (at, moment), until in zip(kills, ends, strict=True)
    ]


def values(storage: Path) -> pd.DataFrame:
    """The values of every trial and query, in one order."""
    table = values_of(storage / "window_stride" / "python-docs")
    return table.sort_values([*table.columns]).reset_index(drop=True)


def main(victim: str, kills: int, at_a_time: int = 3) -> None:
    home = Path(tempfile.mkdtemp(prefix="ray-kills-"))
    print(home, flush=True)
    moments = random.Random(int(os.environ.get("RANKSWEEP_CHAOS_SEED", random.randrange(10**6))))
    undisturbed = Path(os.environ.get("UNDISTURBED", home / "undisturbed"))
    if not undisturbed.exists():
        sweep(undisturbed, "", [])
    expected, done, number = values(undisturbed), 0, 0
    while done < kills:
        number += 1
        storage = home / f"{victim}{number}"
        several = min(at_a_time, kills - done)
        rows = sweep(storage, victim, [moments.uniform(0, 6) for _ in range(several)])
        done += len(rows)
        try:
            equal = values(storage).equals(expected)
            runs = recorded(f"sqlite:///{storage / 'mlflow.db'}")
            whole = sum(status == "FINISHED" for status, _ in runs.values())
            verdict = {"values equal": equal, "runs": f"{len(runs)}, {whole} finished of {TRIALS}"}
        except Exception as error:
            verdict = {"values equal": f"{type(error).__name__}: {error}"[:60]}
        for row in rows:
            print("| " + " | ".join(f"{k} {v}" for k, v in (row | verdict).items()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:]))
