"""The start of a trial over many training queries: seconds to its first step, and private memory.

A collection with MS MARCO's shape is made and prepared for each number of queries, with few
documents: a start reads none but those of its first step. Each start is a process of its own.
Run:
python -m tests.benchmarks.trial_start [--queries 3000 30000 300000] [--json FILE]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rank_core.settings.config import TrialConfig
from rank_core.training.micro_batch import TrainingStep
from rank_core.trial.trial import prepare, run_trial
from tests.benchmarks.msmarco_shape import Shape, texts_of, write_shape
from tests.benchmarks.workload import random_backbone, show


class _FirstStep(Exception):
    pass


def start(collection: str, backbone: str) -> dict[str, float]:
    """Seconds from the settings to the first step of training, and MiB of memory that this process
    shares with no other, beside what the libraries and the backbone take."""
    config = _config(collection, backbone)

    def first_step(*_: Any) -> None:
        raise _FirstStep

    TrainingStep.backward = first_step  # type: ignore[assignment]
    before, began = _private_mib(), time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            list(run_trial(config, Path(folder)))
    except _FirstStep:
        return {"seconds": time.perf_counter() - began, "mib": _private_mib() - before}
    raise RuntimeError("the trial ended before a step of training: nothing was measured")


def _config(collection: str, backbone: str) -> TrialConfig:
    named = {"collection": collection, "model.backbone": backbone}
    return TrialConfig().override(named)


def _private_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:"))


def measure(shape: Shape) -> dict[str, str]:
    """A row: the preparation of a collection, then the start of a trial in another process."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["RANKSWEEP_CACHE"] = str(Path(home) / "cache")
        collection = str(write_shape(Path(home) / "made", shape))
        texts = list(islice(texts_of(shape, seed=1), 200))
        backbone = str(random_backbone(Path(home) / "backbone", texts, "tiny"))
        began = time.perf_counter()
        prepare(_config(collection, backbone))
        prepared = time.perf_counter() - began
        command = [sys.executable, "-m", __spec__.name, "--start", collection, backbone]
        child = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(child.stdout.splitlines()[-1])
    return {
        "training queries": f"{shape.train:,}",
        "prepared in": f"{prepared:.1f} s",
        "to the first step": f"{found['seconds']:.2f} s",
        "private memory": f"{found['mib']:.0f} MiB",
    }


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--queries", type=int, nargs="+", default=[3_000, 30_000, 300_000])
    flags.add_argument("--documents", type=int, default=20_000)
    flags.add_argument("--json", type=Path, help="write the figures here")
    flags.add_argument("--start", nargs=2, help=argparse.SUPPRESS)  # what a child is told
    given = flags.parse_args(argv)
    if given.start:
        print(json.dumps(start(*given.start)))
        return
    whole = Shape(documents=given.documents, dev=50)
    most = min(whole.candidates, given.documents // 2)
    shapes = [whole._replace(train=number, candidates=most) for number in given.queries]
    rows = [measure(shape) for shape in shapes]
    show(rows, given.json)


if __name__ == "__main__":
    main(sys.argv[1:])
