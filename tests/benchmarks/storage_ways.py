"""Bytes and seconds of a trial's files by each way to its storage: a path, a URI (moto's S3 server
on loopback), and through Ray to the disk of the driver's host. Weights are made: random numbers of
the model's size. Run: python -m tests.benchmarks.storage_ways [--size tiny|bert-base] [--ways path]
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import ray
import torch
from safetensors.torch import save_file

from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Best, Checkpoints
from sweeps.ray_engine.driver_disk import driver_disk, through_ray
from sweeps.store.lock import only_driver
from sweeps.store.records import COSTS, Records
from sweeps.store.storage import Storage
from tests.benchmarks.workload import show
from tests.s3_server import s3_bucket

WEIGHTS = {"tiny": 10**5, "bert-base": 110 * 10**6}
SMALL = {"per_query.parquet": 30_000, "dev.run.gz": 20_000, "test.run.gz": 90_000}
"""Files of a trial with 500 queries at depth 20, in bytes."""
WAYS = ("path", "URI", "through Ray")
SWEEP = "window_stride/woods"


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--size", choices=WEIGHTS, default="bert-base")
    flags.add_argument("--ways", default=",".join(WAYS))
    flags.add_argument("--json", type=Path, help="write the figures here")
    options = flags.parse_args(argv)
    rows = []
    for way in options.ways.split(","):
        with tempfile.TemporaryDirectory(prefix="ranksweep-ways-") as name, ExitStack() as stack:
            storage = stack.enter_context(storage_by(way, Path(name)))
            rows += [{"way": way} | row for row in measured(storage, Path(name), options.size)]
    show(rows, options.json)


@contextmanager
def storage_by(way: str, folder: Path) -> Iterator[Storage]:
    """An opened storage, as a trial's process has it."""
    if way == "URI":
        with s3_bucket():
            storage = Storage("s3://bucket/rank")
            storage.open()
            yield storage
        return
    storage = Storage(str(folder / "storage"))
    storage.open()
    if way == "path":
        yield storage
        return
    context = ray.init(address="local", include_dashboard=False, log_to_driver=False)
    os.environ["RAY_ADDRESS"] = context.address_info["address"]  # that of a cluster
    try:
        records = Records(storage, SWEEP)
        with only_driver(records), driver_disk(records):
            yield Storage(through_ray(storage.root), opened=True)
    finally:
        del os.environ["RAY_ADDRESS"]
        ray.shutdown()


def measured(storage: Storage, folder: Path, size: str) -> Iterator[dict[str, Any]]:
    """A row for each step of a trial."""
    number = WEIGHTS[size]
    weights = {"encoder": torch.randn(number)}
    small, kept = folder / "small", folder / "kept"
    for work in (small, kept):
        work.mkdir()
        facts = {"status": "done"} | dict.fromkeys(COSTS, 1.0)
        (work / "result.json").write_text(json.dumps(facts))
        for name, num_bytes in SMALL.items():
            (work / name).write_bytes(os.urandom(num_bytes))
    save_file(weights, kept / "weights.safetensors")
    records = Records(storage, SWEEP)
    yield timed("results", small, lambda: records.publish("a-seed1", small))
    yield timed("results and weights", kept, lambda: records.publish("b-seed1", kept))
    state = {"model": weights, "moments": [torch.randn(number), torch.randn(number)]}
    uri = records.checkpoint_folder("c-seed1")
    checkpoints = Checkpoints(uri, Cadence(steps=1))
    best = Best(1, lambda: weights)
    begun = time.perf_counter()
    checkpoints.save(state, (0, 1), best=best)
    seconds = time.perf_counter() - begun
    num_bytes = sum(entry.size for entry in storage.files("checkpoints").values())
    yield row("checkpoint with new best", num_bytes, seconds)
    begun = time.perf_counter()
    content = Checkpoints(uri, Cadence(steps=1)).load()
    assert content is not None and torch.equal(content["moments"][1], state["moments"][1])
    yield row("resumed from it", num_bytes, time.perf_counter() - begun)


def timed(step: str, work: Path, action: Any) -> dict[str, Any]:
    """The row of a step that writes a folder."""
    begun = time.perf_counter()
    action()
    seconds = time.perf_counter() - begun
    return row(step, sum(file.stat().st_size for file in work.iterdir()), seconds)


def row(step: str, num_bytes: int, seconds: float) -> dict[str, Any]:
    """A row of the table."""
    return {"step": step, "MB": f"{num_bytes / 1e6:,.2f}", "seconds": f"{seconds:.2f}"}


if __name__ == "__main__":
    main(sys.argv[1:])
