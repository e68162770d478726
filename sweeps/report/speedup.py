"""Speed-up and efficiency over numbers of workers: the arithmetic, the table, the files."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes

from rank_core.files import atomic_write, write_json
from sweeps.report.figures.figure import BLUE, GREY, ORANGE, Drawing, draw, new_figure, style

ROUNDING = 1e-4
"""Difference of a step's loss that the order of additions explains, in float32."""

_CROWD = 8  # workers; with more, linear axes would crowd the first points

_COLUMNS = ("workers", "steps/s", "speed-up", "efficiency", "documents/s", "speed-up", "efficiency")


@dataclass(frozen=True)
class Timing:
    """The same epochs on `num_workers` workers; rates of the repeats, losses of all steps."""

    num_workers: int
    losses: tuple[float, ...]  # means over the global batch
    steps_per_second: tuple[float, ...]  # training, optimiser steps
    documents_per_second: tuple[float, ...]  # validation


@dataclass(frozen=True)
class Row:
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


def scaling_rows(timings: Sequence[Timing]) -> list[Row]:
    """A row for each number of workers; the first timing must be that of one worker."""
    single = timings[0]
    assert single.num_workers == 1
    steps_1, documents_1 = median(single.steps_per_second), median(single.documents_per_second)
    rows = []
    for timing in timings:
        n = timing.num_workers
        steps, documents = median(timing.steps_per_second), median(timing.documents_per_second)
        pairs = zip(single.losses, timing.losses, strict=True)
        rows.append(
            Row(
                num_workers=n,
                steps_per_second=steps,
                training_speedup=steps / steps_1,
                training_efficiency=steps / steps_1 / n,
                documents_per_second=documents,
                validation_speedup=documents / documents_1,
                validation_efficiency=documents / documents_1 / n,
                loss_difference=max(abs(first - other) for first, other in pairs),
            )
        )
    return rows


def table_text(rows: Sequence[Row]) -> str:
    """The printed table: training, then validation."""
    lines = [f"{'':>7}  {'training':-^31}  {'validation':-^34}"]
    lines.append("{:>7}  {:>9}  {:>8}  {:>10}  {:>12}  {:>8}  {:>10}".format(*_COLUMNS))
    for row in rows:
        lines.append(
            f"{row.num_workers:>7}  {row.steps_per_second:>9.3g}  {row.training_speedup:>8.2f}  "
            f"{row.training_efficiency:>10.0%}  {row.documents_per_second:>12,.0f}  "
            f"{row.validation_speedup:>8.2f}  {row.validation_efficiency:>10.0%}"
        )
    return "\n".join(lines)


def same_losses(rows: Sequence[Row]) -> bool:
    """True if every number of workers has the loss curve of one, within rounding."""
    return all(row.loss_difference <= ROUNDING for row in rows)


def law_text(rows: Sequence[Row], *, unjudged: str) -> str:
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
    folder: Path, timings: Sequence[Timing], rows: Sequence[Row], facts: Mapping[str, Any]
) -> None:
    """`scaling.csv`, `scaling.png` and, last, `scaling.json`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        atomic_write(folder / "scaling.csv") as unfinished,
        unfinished.open("w", newline="", encoding="utf-8") as file,
    ):
        table = csv.DictWriter(file, [field.name for field in fields(Row)])
        table.writeheader()
        table.writerows(asdict(row) for row in rows)
    with atomic_write(folder / "scaling.png") as unfinished:
        unfinished.write_bytes(scaling_plot(timings, rows).png)
    content = {
        **facts,
        "rows": [asdict(row) for row in rows],
        "timings": [asdict(timing) for timing in timings],
    }
    write_json(folder / "scaling.json", content)


def scaling_plot(timings: Sequence[Timing], rows: Sequence[Row]) -> Drawing:
    """Speed-up with the ideal line, and efficiency; bars span the repeats."""
    numbers = [row.num_workers for row in rows]
    with style():
        figure = new_figure(7.4, 3.3)
        speedup, efficiency = figure.subplots(1, 2)
        speedup.plot(numbers, numbers, "--", color=GREY, lw=1, label="ideal")
        efficiency.axhline(1, ls="--", color=GREY, lw=1)
        for label, colour, shift, rates in (
            ("training (steps/s)", BLUE, -1, [t.steps_per_second for t in timings]),
            ("validation (documents/s)", ORANGE, 1, [t.documents_per_second for t in timings]),
        ):
            relative = [[rate / median(rates[0]) for rate in series] for series in rates]
            _line(speedup, numbers, relative, colour, shift, label)
            shares = [[x / n for x in series] for series, n in zip(relative, numbers, strict=True)]
            _line(efficiency, numbers, shares, colour, shift, label)
        efficiency.set_ylim(bottom=0)
        if numbers[-1] > _CROWD:
            speedup.set_yscale("log", base=2)
            speedup.yaxis.set_major_formatter("{x:g}")
        else:
            speedup.set_ylim(bottom=0)
        for axes, name in ((speedup, "speed-up"), (efficiency, "efficiency")):
            _worker_axis(axes, numbers)
            axes.set_ylabel(f"{name}, median and range")
            axes.grid(color="#e6e6e6", linewidth=0.7)
            axes.set_axisbelow(True)
        efficiency.yaxis.set_major_formatter("{x:.0%}")
        handles, words = speedup.get_legend_handles_labels()
        figure.legend(handles, words, loc="outside upper left", ncols=3, frameon=False, fontsize=8)
        return draw(figure, name="scaling", description="speed-up and efficiency over workers")


def _worker_axis(axes: Axes, numbers: Sequence[int]) -> None:
    if numbers[-1] > _CROWD:
        axes.set_xscale("log", base=2)
        axes.set_xlim(0.8, 1.25 * numbers[-1])
    else:
        axes.set_xlim(1 - 0.1 * numbers[-1], 1.1 * numbers[-1])
    axes.set_xticks(numbers, [str(n) for n in numbers])
    axes.minorticks_off()
    axes.set_xlabel("workers, same global batch")


def _line(
    axes: Axes,
    numbers: Sequence[int],
    repeats: Sequence[Sequence[float]],
    colour: str,
    shift: int,
    label: str,
) -> None:
    """Medians, and bars from the least to the most, slightly apart."""
    at = [n * 1.015**shift for n in numbers]
    middle = [median(values) for values in repeats]
    below = [m - min(values) for m, values in zip(middle, repeats, strict=True)]
    above = [max(values) - m for m, values in zip(middle, repeats, strict=True)]
    axes.errorbar(
        at, middle, [below, above], fmt="o-", color=colour, ms=4, lw=1.4, elinewidth=1, label=label
    )
