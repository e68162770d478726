"""Speed-up and efficiency over numbers of workers: the arithmetic, the table, the files."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from rank_core.files import atomic_write, write_json
from sweeps.report.drawing import (
    BLUE,
    GREY,
    ORANGE,
    WIDTH,
    Drawing,
    draw,
    grid,
    legend,
    new_figure,
    style,
)
from sweeps.report.table import table, terminal_lines

ROUNDING = 1e-4
"""Difference of a step's loss that the order of additions explains, in float32."""
_CROWD = 8  # workers; with more, linear axes would crowd the first points


@dataclass(frozen=True)
class Timing:
    """The same epochs on `num_workers` workers; rates of the repeats, losses of all steps."""

    num_workers: int
    losses: tuple[float, ...]  # means over the global batch
    steps_per_second: tuple[float, ...]  # training, optimiser steps
    documents_per_second: tuple[float, ...]  # validation


@dataclass(frozen=True)
class Speedup:
    """Median rates on `num_workers` workers, relative to one worker; an efficiency of 1 is
    ideal."""

    num_workers: int
    steps_per_second: float
    training_speedup: float
    training_efficiency: float
    documents_per_second: float
    validation_speedup: float
    validation_efficiency: float
    loss_difference: float  # largest of any step


def scaling_rows(timings: Sequence[Timing]) -> list[Speedup]:
    """A row for each number of workers; the first timing must be that of one worker."""
    single = timings[0]
    assert single.num_workers == 1
    steps_1, documents_1 = median(single.steps_per_second), median(single.documents_per_second)
    rows = []
    for timing in timings:
        n = timing.num_workers
        steps, documents = median(timing.steps_per_second), median(timing.documents_per_second)
        training, validation = steps / steps_1, documents / documents_1
        pairs = zip(single.losses, timing.losses, strict=True)
        worst = max(abs(first - other) for first, other in pairs)
        rates = steps, training, training / n, documents, validation, validation / n
        rows.append(Speedup(n, *rates, loss_difference=worst))
    return rows


def table_text(rows: Sequence[Speedup]) -> str:
    """The printed table: training, then validation."""
    ratios = ("speed-up", "efficiency")
    heading = ("workers", "steps/s", *ratios, "documents/s", *ratios)
    lines = [
        (
            str(row.num_workers),
            f"{row.steps_per_second:.3g}",
            f"{row.training_speedup:.2f}",
            f"{row.training_efficiency:.0%}",
            f"{row.documents_per_second:,.0f}",
            f"{row.validation_speedup:.2f}",
            f"{row.validation_efficiency:.0%}",
        )
        for row in rows
    ]
    return "\n".join(terminal_lines(table(heading, lines, "r" * len(heading))))


def same_losses(rows: Sequence[Speedup]) -> bool:
    """True if every number of workers has the loss curve of one, within rounding."""
    return all(row.loss_difference <= ROUNDING for row in rows)


def law_text(rows: Sequence[Speedup], *, unjudged: str) -> str:
    """The check that n workers train like one; `unjudged` is a reason why they may differ, if there
    is one."""
    if len(rows) == 1:
        return "losses      one worker alone: nothing to compare"
    worst = max(rows[1:], key=lambda row: row.loss_difference)
    check = "equal those of one worker" if same_losses(rows) else "DIFFER from those of one worker"
    return (
        f"losses      {f'not judged: {unjudged}' if unjudged else check}\n"
        f"            (at most {worst.loss_difference:.1e} apart in any step, with "
        f"{worst.num_workers} workers; float32 rounds to {ROUNDING:g})"
    )


def write_scaling(
    folder: Path, timings: Sequence[Timing], rows: Sequence[Speedup], facts: Mapping[str, Any]
) -> None:
    """`scaling.csv`, `scaling.png` and, last, `scaling.json`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / "scaling.csv") as unfinished:
        pd.DataFrame(rows).to_csv(unfinished, index=False, lineterminator="\n")
    with atomic_write(folder / "scaling.png") as unfinished:
        unfinished.write_bytes(scaling_plot(timings).png)
    listed = {"rows": [asdict(row) for row in rows], "timings": [asdict(own) for own in timings]}
    write_json(folder / "scaling.json", {**facts, **listed})


@style()
def scaling_plot(timings: Sequence[Timing]) -> Drawing:
    """Speed-up with the ideal line; bars span the repeats."""
    numbers = [timing.num_workers for timing in timings]
    figure = new_figure(WIDTH, 3.3)
    axes = figure.add_subplot()
    axes.plot(numbers, numbers, "--", color=GREY, lw=1, label="ideal")
    for label, colour, rates in (
        ("training (steps/s)", BLUE, [t.steps_per_second for t in timings]),
        ("validation (documents/s)", ORANGE, [t.documents_per_second for t in timings]),
    ):
        relative = [[rate / median(rates[0]) for rate in series] for series in rates]
        middle = [median(values) for values in relative]
        ends = [(m - min(v), max(v) - m) for m, v in zip(middle, relative, strict=True)]
        axes.errorbar(numbers, middle, list(zip(*ends, strict=True)), fmt="o-", color=colour,
                      ms=4, lw=1.4, elinewidth=1, label=label)  # fmt: skip
    if numbers[-1] > _CROWD:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(numbers, [str(n) for n in numbers])
    axes.minorticks_off()
    axes.set_xlabel("workers, same global batch")
    axes.set_ylabel("speed-up, median and range")
    grid(axes)
    legend(figure, 3)
    return draw(figure, "scaling", "speed-up over workers")
