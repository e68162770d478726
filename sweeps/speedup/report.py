"""Speed-up and efficiency over numbers of workers: the arithmetic, the table, the files."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import pandas as pd

from sweeps.ray_engine.timing import Timing
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
from sweeps.store.records import Records

ROUNDING = 1e-4
"""Difference of a step's loss that the order of additions explains, in float32."""
_CROWD = 8  # workers; with more, linear axes would crowd the first points


def scaling_rows(timings: Sequence[Timing]) -> pd.DataFrame:
    """A row for each number of workers, with median rates relative to those of one worker, whose
    timing is the first; an efficiency of 1 is ideal, `loss_difference` is the largest of any
    step."""
    single = timings[0]
    assert single.num_workers == 1
    rows = pd.DataFrame({"num_workers": [timing.num_workers for timing in timings]})
    for kind, rate in (("training", "steps_per_second"), ("validation", "documents_per_second")):
        rows[rate] = [median(getattr(timing, rate)) for timing in timings]
        rows[f"{kind}_speedup"] = rows[rate] / rows[rate].iloc[0]
        rows[f"{kind}_efficiency"] = rows[f"{kind}_speedup"] / rows["num_workers"]
    rows["loss_difference"] = [
        max(abs(first - other) for first, other in zip(single.losses, timing.losses, strict=True))
        for timing in timings
    ]
    return rows


def table_text(rows: pd.DataFrame) -> str:
    """The printed table: training, then validation."""
    ratios = ("speed-up", "efficiency")
    heading = ("workers", "steps/s", *ratios, "documents/s", *ratios)
    forms = ("{:.0f}", "{:.3g}", "{:.2f}", "{:.0%}", "{:,.0f}", "{:.2f}", "{:.0%}")
    shown = rows.drop(columns="loss_difference").to_numpy()
    lines = [[form.format(value) for form, value in zip(forms, row, strict=True)] for row in shown]
    return "\n".join(terminal_lines(table(heading, lines, "r" * len(heading))))


def same_losses(rows: pd.DataFrame) -> bool:
    """True if every number of workers has the loss curve of one, within rounding."""
    return bool((rows["loss_difference"] <= ROUNDING).all())


def law_text(rows: pd.DataFrame, *, unjudged: str) -> str:
    """The check that n workers train like one; `unjudged` is a reason why they may differ, if there
    is one."""
    if len(rows) == 1:
        return "losses      one worker alone: nothing to compare"
    worst = rows.loc[rows["loss_difference"][1:].idxmax()]
    check = "equal those of one worker" if same_losses(rows) else "DIFFER from those of one worker"
    return (
        f"losses      {f'not judged: {unjudged}' if unjudged else check}\n"
        f"            (at most {worst['loss_difference']:.1e} apart in any step, with "
        f"{worst['num_workers']:.0f} workers; float32 rounds to {ROUNDING:g})"
    )


def write_scaling(
    records: Records, timings: Sequence[Timing], rows: pd.DataFrame, facts: Mapping[str, Any]
) -> None:
    """`scaling.csv`, `scaling.png` and, last, `scaling.json`, each whole or not at all."""
    table_csv = rows.to_csv(index=False, lineterminator="\n")
    records.write_file("scaling.csv", table_csv.encode())
    records.write_file("scaling.png", scaling_plot(timings).png)
    listed = {"rows": rows.to_dict("records"), "timings": [asdict(own) for own in timings]}
    records.write_file("scaling.json", json.dumps({**facts, **listed}, indent=1).encode())


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
