"""What Ray, tracking and the report cost beside the trials: a sweep's wall time, and its pauses.

Sixteen trials of one size (four learning rates x four seeds) of the embedded collection in an empty
storage, with the backbone already made. Prints the wall time against the trials' compute, and how
long a slot waits from the end of one trial's computing to the begin of the next one's: publishing,
Ray, a new model; imports are part of a slot's first trial alone, which no pause counts.
Run on idle cores: python -m tests.benchmarks.sweep_overhead [--json FILE] [-- name=value ...]
"""

import argparse
import heapq
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rank_core.encoders.backbones import resolve_backbone
from tests.benchmarks.workload import show

SWEEP = "learning_rates"
WORDS = (
    "training.backbone_learning_rate=1e-4,2e-4,4e-4",  # and the 3e-4 of the baseline
    "training.head_learning_rate=1e-3",
    "training.aggregator_learning_rate=1e-3",
    *("chunking.window=64", "chunking.stride=48", "--num-seeds", "4"),
)
Interval = tuple[float, float]
"""Begin and end of a trial's computing, Unix time."""


def pauses(intervals: Sequence[Interval], slots: int) -> list[float]:
    """Seconds from the end of a trial to the begin of the next one on its slot: each trial begins
    on the slot that was free first, and the first trial of a slot waits for none."""
    ordered = sorted(intervals)
    free = [end for _, end in ordered[:slots]]
    heapq.heapify(free)
    return [begin - heapq.heapreplace(free, end) for begin, end in ordered[slots:]]


def computed(folder: Path) -> list[Interval]:
    """When the finished trials of a sweep computed; a trial's last act is to write its result."""
    found = []
    for path in folder.parents[1].glob("trials/*/result.json"):
        result = json.loads(path.read_text())
        end = path.stat().st_mtime
        found.append((end - result["train_seconds"] - result["eval_seconds"], end))
    return found


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--backbone", default="tiny-docs")
    flags.add_argument("--json", type=Path)
    flags.add_argument("words", nargs="*")
    arguments = flags.parse_args(argv)
    resolve_backbone(arguments.backbone)
    with tempfile.TemporaryDirectory() as storage:
        command = [sys.executable, f"sweeps/{SWEEP}.py", "--storage", storage, *WORDS]
        command += ["--backbone", arguments.backbone]
        start = time.perf_counter()
        sweep = subprocess.run([*command, *arguments.words], capture_output=True, text=True)
        wall = time.perf_counter() - start
        if sweep.returncode:
            raise SystemExit(f"the sweep failed:\n{sweep.stdout}{sweep.stderr}")
        [file] = (Path(storage) / SWEEP).glob("*/sweep.json")  # of its only collection
        intervals = computed(file.parent)
    slots = int(sweep.stdout.split(" slot")[0].rsplit(maxsplit=1)[-1])
    sizes = [end - begin for begin, end in intervals]
    ideal = sum(sizes) / slots
    trials_wall = max(end for _, end in intervals) - min(begin for begin, _ in intervals)
    waited = pauses(intervals, slots)
    rows = [
        {
            "trials": f"{len(sizes)} of {statistics.median(sizes):.1f} s",
            "slots": str(slots),
            "compute / slots": f"{ideal:.1f} s",
            "first begin to last end": f"{trials_wall:.1f} s ({trials_wall / ideal:.3f}x)",
            "whole command": f"{wall:.1f} s ({wall / ideal:.3f}x)",
            "pause of a slot": f"median {statistics.median(waited):.2f} s, max {max(waited):.2f} s",
        }
    ]
    show(rows, arguments.json, pauses=waited, seconds=sizes, wall=wall)


if __name__ == "__main__":
    main(sys.argv[1:])
