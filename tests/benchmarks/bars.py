"""Tables of a benchmark and the promises they are held to, as Markdown and JSON."""

import argparse
import json
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy

from rank_core.seeding import generator


@dataclass(frozen=True)
class Bar:
    """A promise of the statistics and whether this run of the benchmark keeps it."""

    law: str
    found: str
    ok: bool


@dataclass(frozen=True)
class Section:
    """One table of the benchmark with its bars."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str | int | float]]
    bars: Sequence[Bar]

    def markdown(self) -> str:
        """The title, the table, and a line per bar that starts with `ok` or `FAIL`."""
        lines = [self.columns, ["---"] * len(self.columns)]
        lines += [[_shown(value) for value in row] for row in self.rows]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        verdicts = [
            f"- {'ok' if bar.ok else 'FAIL'}: {bar.law} (found {bar.found})" for bar in self.bars
        ]
        return "\n\n".join([f"## {self.title}", table, "\n".join(verdicts)]) + "\n"


Draw = Callable[[np.random.Generator, int], Section]
"""A section from its random stream and how much to simulate."""


def simulate(
    argv: Sequence[str],
    sections: Mapping[str, Draw],
    *,
    title: str,
    option: str,
    default: int,
    unit: str,
    rate: float,
) -> int:
    """A benchmark's command line: run the sections and print them; 1 if a bar fails.

    `--OPTION` is how many `unit` to simulate; `rate` is one whose standard error is told.
    """
    parser = argparse.ArgumentParser(description=f"{title}.", allow_abbrev=False)
    parser.add_argument(f"--{option}", type=int, default=default, help=f"{unit} ({default})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    parser.add_argument("--only", choices=sections, nargs="+", help="these sections instead of all")
    args = parser.parse_args(argv)
    num, seed = getattr(args, option), args.seed
    if num < 1:
        parser.error(f"--{option} must be at least 1")
    print(
        f"# {title} ({num} {unit}, seed {seed}; a rate of {rate:.2f} has a standard error of "
        f"{math.sqrt(rate * (1 - rate) / num):.4f})\n"
    )
    names = args.only or list(sections)
    # A stream of its own for each section: one alone gives the numbers it gives among all.
    done = []
    for name in names:
        done.append(sections[name](generator(seed, name), num))
        print(done[-1].markdown(), flush=True)
    bars = [bar for section in done for bar in section.bars]
    failed = sum(not bar.ok for bar in bars)
    print(f"{len(bars) - failed} of {len(bars)} bars ok" + (f", {failed} FAIL" if failed else ""))
    if args.json is not None:
        versions = {"python": platform.python_version()}
        versions |= {"numpy": np.__version__, "scipy": scipy.__version__}
        found = {"settings": {option: num, "seed": seed}, "versions": versions, "failed": failed}
        found["sections"] = [asdict(section) for section in done]
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


def _shown(value: str | int | float) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:.1f}"
    return str(value)
