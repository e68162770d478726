"""A sweep's wall time against what its trials computed: what Ray, tracking and the report cost.

Runs the window/stride sweep of the embedded collection in an empty storage, with the backbone
already made. Run: python -m benchmarks.sweep_overhead [--json FILE] [-- section.setting=value ...]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from benchmarks.workload import machine, print_table, save
from rank_core.backbones import resolve_backbone


def main() -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--json", type=Path)
    flags.add_argument("words", nargs="*")
    arguments = flags.parse_args()
    resolve_backbone("tiny")
    with tempfile.TemporaryDirectory() as storage:
        command = [sys.executable, "sweeps/window_stride.py", "--storage", storage]
        output = ""
        start = last = time.perf_counter()
        launched = 0.0
        with subprocess.Popen(
            [*command, *arguments.words], stdout=subprocess.PIPE, text=True
        ) as sweep:
            assert sweep.stdout is not None
            for line in sweep.stdout:
                output += line
                now = time.perf_counter()
                if "slot(s)" in line:
                    launched = now
                if line.startswith("["):
                    last = now
        wall = time.perf_counter() - start
        if sweep.returncode:
            raise SystemExit(f"the sweep failed:\n{output}")
        trials = pd.read_parquet(Path(storage) / "window_stride" / "trials.parquet")
    slots = int(output.split(" slot(s)")[0].rsplit(maxsplit=1)[-1])
    compute = float((trials.train_seconds + trials.eval_seconds).sum()) / slots
    rows = [
        {
            "trials": str(len(trials)),
            "slots": str(slots),
            "compute / slots": f"{compute:.1f} s",
            "trials' wall time": f"{last - launched:.1f} s ({(last - launched) / compute:.2f}x)",
            "whole command": f"{wall:.1f} s ({wall / compute:.2f}x)",
        }
    ]
    print(machine())
    print_table(rows)
    save(arguments.json, {"rows": rows})


if __name__ == "__main__":
    main()
