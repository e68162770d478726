"""What a sweep's driver costs by the number of its trials: planning, each end, status, the report.

Whole commands of the local engine, processes for each size, on trials that compute nothing: a
trial writes made-up values of all queries. Prints, for each size, CPU seconds of the driver alone
(medians over processes, in turns with the other sizes), and the exponents with which the totals
grow: 1 is a cost for each cell or trial that does not depend on their number.
Run: python -m tests.benchmarks.driver [--cells 100,200,400] [--seeds 5] [--repeats 3] [WORDS],
with further words of the command: --search race, --search asha training.num_epochs=9 (whose trials
are never stopped here), training.keep_weights=best
"""

import argparse
import contextlib
import io
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from rank_core.checkpoints.weights import WEIGHTS
from rank_core.data.load import load_collection
from rank_core.data.trec import write_run
from rank_core.records import Run
from rank_core.trial.trial import TrialResult
from sweeps import learning_rates
from sweeps.engine import local
from sweeps.engine.trial_task import End, TrialTask
from sweeps.launch import sweep as launched
from sweeps.launch.command import launch
from sweeps.plan.search_options import SEARCHES
from sweeps.store.records import COSTS, Records
from sweeps.store.storage import Storage
from sweeps.store.trial_status import TrialStatus
from tests.benchmarks.workload import show

MEASURES = ("nDCG@10", "RR@10")
PHASES = ("plan", "ends", "status", "report")
PER = {"plan": "cell", "ends": "trial", "status": "trial", "report": "trial"}


class Clock:
    """CPU seconds of this process by phase, less those of the trials."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.trials = 0.0

    def around(self, phase: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **named: Any) -> Any:
            start, before = time.process_time(), self.trials
            try:
                return work(*args, **named)
            finally:
                self.seconds[phase] += time.process_time() - start - (self.trials - before)

        return timed


def attempt_of(clock: Clock) -> Callable[..., Iterator[End]]:
    """What stands for a trial: it publishes made-up values."""
    rng = np.random.default_rng(1)
    runs: dict[str, Run] = {}
    files: dict[str, bytes] = {}

    def attempt(task: TrialTask, notice: object) -> Iterator[End]:
        start = time.process_time()
        cell, _, seed = task.name.rpartition("-seed")
        if not runs:
            splits = load_collection(task.config.collection).splits
            runs.update({name: dict(splits[name].candidates) for name in ("dev", "test")})
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for split, run in runs.items() if not files else ():  # once: packing takes longest
                write_run(path := folder / f"{split}.run.gz", run, tag="made-up")
                files[path.name] = path.read_bytes()
            rows = [
                (cell, int(seed), split, query_id, measure, float(rng.uniform()))
                for split, run in runs.items()
                for query_id in run
                for measure in MEASURES
            ]
            columns = ["cell", "seed", "split", "query_id", "measure", "value"]
            pd.DataFrame(rows, columns=columns).to_parquet(folder / "per_query.parquet")
            for file, content in files.items():
                (folder / file).write_bytes(content)
            (folder / "config.json").write_text(json.dumps(task.config.settings()))
            (folder / "history.jsonl").write_text("")
            if task.config.training.keep_weights == "best":
                (folder / WEIGHTS).write_bytes(b"w")
            means = {measure: float(rng.uniform()) for measure in MEASURES}
            facts = dict.fromkeys(COSTS, 1.0) | {"versions": {"torch": "2"}, "best_step": 1}
            facts |= {"cell": cell, "seed": int(seed), "status": "done"}
            facts |= {"dev": means, "test": means}
            (folder / "result.json").write_text(json.dumps(facts))
            Records(Storage(task.storage, opened=True), task.sweep).publish(task.name, folder)
        clock.trials += time.process_time() - start
        yield End(TrialStatus.DONE, TrialResult(**facts))

    return attempt


def measured(cells: int, seeds: int, inputs: Sequence[str]) -> dict[str, float]:
    """CPU seconds of each phase of a sweep of this size, and the memory at its most."""
    clock = Clock()
    local.attempt = attempt_of(clock)  # type: ignore[assignment]
    # The local engine cannot stop trials, so a search that may is refused there.
    SEARCHES["asha"] = replace(SEARCHES["asha"], stops=False)
    for phase, name in (("plan", "make_plan"), ("ends", "_launch"), ("report", "_results")):
        setattr(launched, name, clock.around(phase, getattr(launched, name)))
    rates = ",".join(f"{1e-5 * (1 + i / 1000):.9g}" for i in range(cells - 1))
    with tempfile.TemporaryDirectory() as storage:
        words = ["--engine", "local", "--tracking-uri", "none", "--storage", storage, *inputs]
        words += [f"evaluation.measures={','.join(MEASURES)}", "--num-seeds", str(seeds)]
        words += [f"training.backbone_learning_rate={rates}", "training.head_learning_rate=1e-3"]
        words += ["training.aggregator_learning_rate=1e-3"]
        with contextlib.redirect_stdout(io.StringIO()):
            outcome = launch(learning_rates.EXPERIMENT, words)
        assert outcome.code == 0
        from sweeps.commands.status import take_snapshot

        snapshot = clock.around("status", take_snapshot)(outcome.where)
    trials = len(snapshot.trials)  # a race needs fewer
    assert trials == cells * seeds or "race" in inputs
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 2**30
    return {"cells": cells, "trials": trials, "GiB": memory} | clock.seconds


def _in_a_process(cells: int, seeds: int, inputs: Sequence[str]) -> dict[str, float]:
    words = ["--one", "--cells", str(cells), "--seeds", str(seeds), *inputs]
    command = [sys.executable, "-m", "tests.benchmarks.driver", *words]
    # On one core: threads that wait for each other on a busy machine count as work.
    env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    folder = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
    if done.returncode:
        raise SystemExit(f"the sweep failed:\n{done.stdout}{done.stderr}")
    measurement: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measurement


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """That of the power law through the points, by least squares of their logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]) if len(sizes) > 1 else math.nan


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--cells", default="100,200,400")
    flags.add_argument("--seeds", type=int, default=5)
    flags.add_argument("--repeats", type=int, default=3)
    flags.add_argument("--collection", default="python-docs")
    flags.add_argument("--backbone", default="tiny-docs")
    flags.add_argument("--one", action="store_true", help="print one size as JSON")
    flags.add_argument("--json", type=Path)
    args, others = flags.parse_known_args(argv)
    inputs = ["--collection", args.collection, "--backbone", args.backbone, *others]
    sizes = [int(part) for part in args.cells.split(",")]
    if args.one:
        print(json.dumps(measured(sizes[0], args.seeds, inputs)))
        return
    measurements = [
        [_in_a_process(cells, args.seeds, inputs) for cells in sizes] for _ in range(args.repeats)
    ]
    found = [
        {name: median(one[name] for one in of_size) for name in of_size[0]}
        for of_size in zip(*measurements, strict=True)
    ]
    rows = [
        {"cells x seeds": f"{one['cells']:.0f} x {args.seeds}"}
        | {
            f"{phase} (ms a {PER[phase]})": f"{1000 * one[phase] / one[f'{PER[phase]}s']:.2f}"
            for phase in PHASES
        }
        | {"memory": f"{one['GiB']:.2f} GiB"}
        for one in found
    ]
    grows = {
        phase: exponent([one[f"{PER[phase]}s"] for one in found], [one[phase] for one in found])
        for phase in PHASES
    }
    last = {"cells x seeds": "exponent of the total", "memory": ""}
    last |= {f"{phase} (ms a {PER[phase]})": f"{grows[phase]:.2f}" for phase in PHASES}
    show([*rows, last], args.json, found=found, each=measurements, exponents=grows)


if __name__ == "__main__":
    main(sys.argv[1:])
