"""Launches of one scoring call and of one training step on a GPU, counted on one that computes
nothing: over padded rows, as transformers reads, and over a flat row of tokens.

A call has all the tokens that `--tokens` says, in rows of 161 (a query of 8, a window of 150); a
step is a pass forward and backward, its update is counted apart. Copies from the host are no
launches and have a column of their own. What torch compiles on a GPU is counted as it is written,
so a GPU makes fewer. Needs g++. Run: python -m tests.benchmarks.launches [--models maxp,cedr-knrm]
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.workload import SIZES, random_backbone, show
from tests.contracts.fake_cuda.library import compile_library, lines_of

MODELS = ("maxp", "parade-transformer", "cedr-knrm")


def main(argv: Sequence[str]) -> None:
    """Counts and prints."""
    flags = parser(__doc__ or "")
    flags.add_argument("--models", default=",".join(MODELS))
    flags.add_argument("--tokens", type=int, default=4096)
    options = flags.parse_args(argv)
    rows = []
    for line in kernels(options.size, options.models.split(","), [options.tokens]):
        row = {"model": line["model"], "rows": "flat" if line["flat"] else "padded"}
        row |= {phase: str(number(steps)) for phase, steps in line["kernels"].items()}
        copies = len(line["kernels"]["scoring"]) - number(line["kernels"]["scoring"])
        rows.append(row | {"copies from the host": str(copies)})
    show(rows, options.json)


def parser(description: str) -> argparse.ArgumentParser:
    """The flags of benchmarks on a fake GPU."""
    flags = argparse.ArgumentParser(description=description, allow_abbrev=False)
    flags.add_argument("--size", choices=SIZES, default="bert-base")
    flags.add_argument("--json", type=Path, help="write the figures here")
    return flags


def kernels(size: str, models: Sequence[str], tokens: Sequence[int]) -> list[dict[str, Any]]:
    """What `tests.contracts.fake_cuda.trace` prints of BERT of a size."""
    with tempfile.TemporaryDirectory(prefix="ranksweep-launches-") as name:
        folder = Path(name)
        backbone = random_backbone(folder / "backbone", ["one word and another"], size)
        words = (str(backbone), *models, "--", *map(str, tokens))
        return lines_of(compile_library(folder), "tests.contracts.fake_cuda.trace", *words)


def number(steps: Sequence[Sequence[Any]]) -> int:
    """Launches among them."""
    return sum(kind != "copy" for _, kind, _, _ in steps)


if __name__ == "__main__":
    main(sys.argv[1:])
