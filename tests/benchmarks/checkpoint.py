"""One checkpoint: how long training waits for it, and how fast it is written.

The state is that of BERT-base with Adam's two moments, and the best weights so far. `before` writes
all of it in the training thread and reads it again for its hash, as was done until 0.1. While a
thread writes, the training thread asks the clock without rest: `longest pause` is the longest time
in which it did not come to it.
Run:
python -m tests.benchmarks.checkpoint [--size bert-base] [--folder DIR] [--json FILE]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel

from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Best, Checkpoints, _digest, _num_bytes
from rank_core.machine import trial_device
from tests.benchmarks.workload import SIZES, machine, print_table, save


def state(size: str) -> dict[str, Any]:
    """Weights and moments on the device that trials run on."""
    layers, hidden, heads, inner = SIZES[size]
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=inner,
    )
    weights = BertModel(config).to(trial_device()).state_dict()
    moments = {
        number: {"exp_avg": w.clone(), "exp_avg_sq": w.clone()}
        for number, w in enumerate(weights.values())
    }
    return {"weights": weights, "optimizer": {"state": moments}, "facts": "{}"}


def row(what: str, held: float, whole: float, size: int, pause: float) -> dict[str, str]:
    """One line of the table."""
    return {
        "what": what,
        "training waits s": f"{held:.2f}",
        "longest pause ms": f"{1000 * pause:.0f}",
        "written after s": f"{whole:.2f}",
        "MiB": f"{size / 2**20:,.0f}",
        "MiB/s": f"{size / 2**20 / whole:,.0f}",
    }


def before(content: dict[str, Any], best: Best, folder: Path) -> dict[str, str]:
    """A write and a read, of everything."""
    start, path = time.perf_counter(), folder / "before"
    with path.open("wb") as file:
        torch.save(content | {"best": best.content["weights"]}, file)
    _digest(path)
    seconds = time.perf_counter() - start
    size = path.stat().st_size
    path.unlink()
    return row("before", seconds, seconds, size, seconds)


def now(
    what: str, checkpoints: Checkpoints, content: dict[str, Any], step: int, best: Best
) -> dict[str, str]:
    """A save by the thread, and how much of the interpreter it leaves to training."""
    there = sum(path.stat().st_size for path in Path(checkpoints.root).glob("*.best"))
    start = time.perf_counter()
    checkpoints.save(content, (0, step), best=best)
    held = time.perf_counter() - start
    pause, tick = 0.0, time.perf_counter()
    assert checkpoints._writing is not None
    while checkpoints._writing.is_alive():
        pause, tick = max(pause, time.perf_counter() - tick), time.perf_counter()
    checkpoints.finish()
    whole = time.perf_counter() - start
    bests = sum(path.stat().st_size for path in Path(checkpoints.root).glob("*.best"))
    return row(what, held, whole, _num_bytes(content) + (bests - there), pause)


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--size", choices=SIZES, default="bert-base")
    flags.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    flags.add_argument("--json", type=Path, help="write the figures here")
    given = flags.parse_args(argv)
    content = state(given.size)
    best = Best(1, {"weights": {k: w.clone() for k, w in content["weights"].items()}})
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        checkpoints = Checkpoints(f"{folder}/checkpoints/trial", Cadence(steps=1))
        rows = [
            before(content, best, Path(folder)),
            now("best weights changed", checkpoints, content, 1, best),
            now("best weights unchanged", checkpoints, content, 2, best),
        ]
    print(machine())
    print_table(rows)
    save(given.json, {"rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
