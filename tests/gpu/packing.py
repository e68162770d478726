"""Trials an hour of one GPU: one, two and three at a time, with and without CUDA MPS.

For a FirstP over a MiniLM and a MaxP over a BERT-base, with random weights and made documents of
MS MARCO's lengths. Each slot is a process (`tests.gpu.packing_slot`), warm before the clock starts;
all start together, and each runs `--trials` trials. An hour has as many trials as ran, by the
seconds from the start to the last end. Idle is the share of this time in which no kernel ran, as
NVML tells. The daemon of MPS is started and ended for each row that needs it.

A row is written as soon as it is measured. With `--minutes` none begins that would hardly end in
time; the same command measures the rows that a file lacks.
Run: python -m tests.gpu.packing [--minutes 9] [--sizes minilm,bert-base] [--at-once 1,2,3]
"""

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import torch

from rank_core.chunking.inputs import load_inputs
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import num_training_queries
from tests.benchmarks.msmarco_shape import Shape, write_shape
from tests.benchmarks.workload import SIZES, print_table, random_backbone
from tests.gpu.ladder import numbers
from tests.gpu.mps import NoDaemon, own_mps, serves, without_mps

ROOT = Path(__file__).parents[2]
WHOLE = ("bert-base", "modernbert")  # MaxP reads whole documents by them, FirstP others' start
STEPS = {True: 30, False: 200}  # of such a trial, and of others: to take some seconds on an H200
SHAPE = Shape(documents=1000, train=400, dev=5, test=10, candidates=100)
SMALL = Shape(documents=30, train=20, dev=2, test=2, candidates=5)
ROW_SECONDS = 300.0  # a row that takes longer hangs
SAMPLE_SECONDS = 0.1
Row = dict[str, Any]


class Case(NamedTuple):
    """What a row is of."""

    size: str
    slots: int
    mps: bool

    @property
    def key(self) -> str:
        """Its name in the file."""
        return f"{self.size}, {self.slots} at once, {'with' if self.mps else 'without'} MPS"


def main(argv: Sequence[str]) -> None:
    """Measures, prints and writes."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--sizes", default="minilm,bert-base", help=f"of {', '.join(SIZES)}")
    flags.add_argument("--at-once", default="1,2,3", help="trials")
    flags.add_argument("--trials", type=int, default=3, help="of each slot, one after the other")
    flags.add_argument("--steps", type=int, help="of a trial")
    flags.add_argument("--small", action="store_true", help="a collection for a CPU")
    flags.add_argument("--minutes", type=float, default=60.0, help="begin no row after them")
    flags.add_argument("--json", type=Path, default=Path("gpu-packing.json"))
    options = flags.parse_args(argv)
    settings = {"trials": options.trials, "steps": options.steps, "small": options.small}
    settings |= {"host": socket.gethostname()}  # its GPUs
    kept = json.loads(options.json.read_text()) if options.json.exists() else {}
    figures = kept if kept.get("settings") == settings else {"settings": settings, "rows": {}}
    start, longest, left = time.monotonic(), 0.0, []
    with tempfile.TemporaryDirectory(prefix="ranksweep-packing-") as folder:
        for case in cases(options.sizes.split(","), numbers(options.at_once)):
            if "trials/hour" in figures["rows"].get(case.key, ()):
                continue
            begun = time.monotonic()
            if begun - start + longest > 60 * options.minutes:
                left.append(case.key)
                continue
            row = row_of(case, prepared(Path(folder), case.size, options.small), options)
            figures |= {"machine": row.pop("machine", figures.get("machine"))}
            figures["rows"][case.key] = row
            options.json.write_text(json.dumps(figures, indent=1))
            longest = max(longest, time.monotonic() - begun)
            print(f"{case.key}: {row}", file=sys.stderr, flush=True)
    if rows := figures["rows"]:
        print(figures["machine"])
        print_table([printed(name, row, rows) for name, row in rows.items()])
    if left:
        print(f"no time for {'; '.join(left)}: the same command measures them")


def cases(sizes: Sequence[str], at_once: Sequence[int]) -> Iterator[Case]:
    """The rows, the most useful first."""
    for size in sizes:
        for slots in at_once:
            if slots > 1:
                yield Case(size, slots, mps=True)
            yield Case(size, slots, mps=False)
        if 1 in at_once:
            yield Case(size, 1, mps=True)


class Prepared(NamedTuple):
    """What trials read."""

    collection: str
    backbone: str


def prepared(folder: Path, size: str, small: bool) -> Prepared:
    """An encoder and a collection, tokenised in the cache, where slots find it."""
    collection, backbone = folder / "collection", folder / size
    if not collection.exists():
        write_shape(collection, SMALL if small else SHAPE)
    if not backbone.exists():
        documents = (collection / "docs.jsonl").read_text().splitlines()[:300]
        random_backbone(backbone, [json.loads(line)["text"] for line in documents], size)
    found = Prepared(str(collection), str(backbone))
    config = TrialConfig().override({"collection": found.collection})
    num_training_queries(load_inputs(*found), config)
    return found


def row_of(case: Case, inputs: Prepared, options: argparse.Namespace) -> Row:
    """The row of a case, or why there is none."""
    whole = case.size in WHOLE
    steps, share = options.steps or STEPS[whole], f"{1 / case.slots:.3f}"
    # The same in all rows, which differ by the GPU's share alone.
    threads = max(1, (os.cpu_count() or 1) // max(numbers(options.at_once)))
    words = [*inputs, "maxp" if whole else "firstp", share, threads, steps, options.trials]
    try:
        with own_mps() if case.mps else without_mps() as own:
            return measured([*map(str, words)], case, own)
    except (NoDaemon, SlotEnded) as error:
        return {"error": str(error)}


class SlotEnded(Exception):
    """A slot has ended before its last trial."""


def measured(words: list[str], case: Case, own: dict[str, str]) -> Row:
    """Runs the slots of a case."""
    with started(words, case.slots, own) as slots:
        machines = [slot.line() for slot in slots]  # all are warm
        if case.mps and not serves(own):
            raise NoDaemon("the daemon of MPS runs, but serves no process of the slots")
        with idle_share() as idle:
            start = time.time()
            for slot in slots:
                slot.go()
            trials = [slot.line() for _ in range(int(words[-1])) for slot in slots]
        for slot in slots:  # a killed process would break what MPS serves
            slot.process.wait(ROW_SECONDS)
    seconds = max(trial["end"] for trial in trials) - start
    each = [trial["end"] - trial["start"] for trial in trials]
    return {
        "machine": machines[0],
        "trials/hour": round(3600 * len(trials) / seconds, 1),
        "tokens/s": round(sum(trial["tokens"] for trial in trials) / seconds),
        "idle": round(mean(idle), 3) if idle else None,
        "GiB each": round(max(trial["bytes"] for trial in trials) / 2**30, 2),
        "seconds": [round(one, 3) for one in each],
    }


class Slot:
    """A process that runs trials."""

    def __init__(self, words: Sequence[str], own: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.gpu.packing_slot", *words],
                cwd=ROOT,
                env=os.environ | own,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def go(self) -> None:
        """Lets it begin its trials."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `line` tells why
            self.process.stdin.write("go\n")
            self.process.stdin.flush()

    def line(self) -> Any:
        """The next line that it prints. Raises `SlotEnded`."""
        assert self.process.stdout is not None
        if not (text := self.process.stdout.readline()):
            code = self.process.wait()
            words = self.log.read_text().strip().splitlines()[-1:]
            raise SlotEnded(f"a slot ended with {code}: {' '.join(words)}")
        return json.loads(text)


@contextlib.contextmanager
def started(words: Sequence[str], number: int, own: dict[str, str]) -> Iterator[list[Slot]]:
    """Slots, which end with the context, and after `ROW_SECONDS`."""
    slots: list[Slot] = []

    def end() -> None:
        for slot in slots:
            slot.process.kill()

    late = threading.Timer(ROW_SECONDS, end)
    with tempfile.TemporaryDirectory(prefix="ranksweep-slots-") as folder:
        try:
            slots += [Slot(words, own, Path(folder, f"{i}.log")) for i in range(number)]
            late.start()
            yield slots
        finally:
            late.cancel()
            end()
            for slot in slots:
                slot.process.communicate()


@contextlib.contextmanager
def idle_share() -> Iterator[list[float]]:
    """Samples of the share of time in which no kernel runs on the GPU, taken while the context is
    open; none where NVML does not tell."""
    samples: list[float] = []
    over = threading.Event()

    def sample() -> None:
        with contextlib.suppress(Exception):  # no GPU, no nvidia-ml-py, no right to read
            while not over.wait(SAMPLE_SECONDS):
                samples.append(1 - torch.cuda.utilization(0) / 100)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def printed(name: str, row: Row, rows: dict[str, Row]) -> dict[str, str]:
    """A row of the table, compared with one trial at a time without MPS."""
    alone = rows.get(Case(name.partition(",")[0], 1, mps=False).key, {}).get("trials/hour")
    seconds = row.get("seconds", [])
    spread = f"{median(seconds):.1f} ({min(seconds):.1f}-{max(seconds):.1f})" if seconds else ""
    idle, rate = row.get("idle"), row.get("trials/hour")
    return {
        "what": name,
        "trials/hour": f"{rate:,.0f}" if rate else row["error"],
        "ratio": f"{rate / alone:.2f}" if rate and alone else "",
        "tokens/s": f"{row['tokens/s']:,}" if rate else "",
        "s a trial": spread,
        "idle": f"{idle:.0%}" if idle is not None else "not known",
        "GiB each": str(row.get("GiB each", "")),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
