"""The preparation of a collection with MS MARCO's shape: speed, memory, and what a kill costs.

Built once undisturbed; built again in another cache by a process that is killed (SIGKILL) after a
checkpoint and started anew, and compared byte for byte; then opened by another process.
Run:
python -m tests.benchmarks.prepare [--scale .05] [--folder DIR] [--json FILE]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rank_core.chunking.inputs import load_inputs
from rank_core.data.disk import build
from rank_core.settings.config import TrialConfig
from rank_core.trial.prepare import prepare
from tests.benchmarks.msmarco_shape import Shape, texts_of, write_shape
from tests.benchmarks.workload import machine, print_table, random_backbone, save


def run(collection: str, backbone: str, checkpoints: float) -> dict[str, float]:
    """Prepares in this process: seconds and the most memory it had."""
    build.SECONDS_BETWEEN_CHECKPOINTS = checkpoints
    named = {"collection": collection, "model.backbone": backbone}
    config, began = TrialConfig().override(named), time.perf_counter()
    before = _kilobytes("RssAnon")
    prepare(config)
    seconds = time.perf_counter() - began
    tokens = load_inputs(collection, backbone).tokens
    documents, length = len(tokens), float(tokens.lengths().mean())
    return {
        "seconds": seconds,
        "documents": documents,
        "tokens": length,
        "before": before / 1e3,
        "peak": _kilobytes("VmHWM") / 1e3,
    }


def _kilobytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def _child(cache: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", __spec__.name, "--run", *words]
    environment = os.environ | {"RANKSWEEP_CACHE": str(cache)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def _finished(child: subprocess.Popen[str]) -> dict[str, float]:
    out, _ = child.communicate()
    if child.returncode:
        raise SystemExit(f"a preparation ended with {child.returncode}")
    found: dict[str, float] = json.loads(out.splitlines()[-1])
    return found


def _killed(cache: Path, words: Sequence[str]) -> int:
    """Kills a preparation after each kind of checkpoint; how often."""
    kills = 0
    for kind in ("document-sources", "tokens"):
        child = _child(cache, *words, "0")
        while child.poll() is None and not list(cache.glob(f"{kind}/*.building-*/store.json")):
            time.sleep(0.005)
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            kills += 1
        child.communicate()
    return kills


def _files(cache: Path) -> dict[str, bytes]:
    """Everything that is not a lock; two caches differ in nothing else."""
    paths = (path for path in sorted(cache.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(cache)): path.read_bytes() for path in paths if path.suffix != ".lock"
    }


def measure(home: Path, shape: Shape) -> list[dict[str, str]]:
    """A row per figure."""
    texts = list(islice(texts_of(shape, seed=1), 300))
    backbone = str(random_backbone(home / "backbone", texts, "tiny"))
    words = [str(write_shape(home / "made", shape)), backbone]
    straight, broken = home / "straight", home / "broken"
    first = _finished(_child(straight, *words, "20"))
    second = _finished(_child(straight, *words, "20"))
    kills = _killed(broken, words)
    resumed = _finished(_child(broken, *words, "20"))
    if _files(straight) != _files(broken):
        raise SystemExit("a preparation that was killed and resumed has other bytes")
    size = sum(path.stat().st_size for path in straight.rglob("*") if path.is_file())
    figures = {
        "documents": f"{first['documents']:,} of {first['tokens']:.0f} tokens on average",
        "training queries": f"{shape.train:,} with {shape.candidates} candidates each",
        "prepared in": f"{first['seconds']:.1f} s, "
        f"{first['documents'] / first['seconds']:,.0f} documents/s",
        "peak memory": f"{first['peak']:.0f} MB, {first['before']:.0f} MB of them before",
        "on disk": f"{size / 1e9:.2f} GB",
        "another process": f"{second['seconds']:.2f} s",
        "after kills (SIGKILL)": f"{kills}, resumed in {resumed['seconds']:.1f} s",
        "every byte the same": "yes",
    }
    return [{"what": name, "figure": figure} for name, figure in figures.items()]


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--scale", type=float, default=0.05, help="of MS MARCO's documents")
    flags.add_argument("--folder", type=Path, help="where all is made and deleted again")
    flags.add_argument("--json", type=Path, help="write the figures here")
    flags.add_argument("--run", nargs=3, help=argparse.SUPPRESS)  # what a child is told
    given = flags.parse_args(argv)
    if given.run:
        collection, backbone, checkpoints = given.run
        print(json.dumps(run(collection, backbone, float(checkpoints))))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as home:
        rows = measure(Path(home), Shape().scaled(given.scale))
    print(machine())
    print_table(rows)
    save(given.json, {"rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
