"""Speed-up and efficiency over numbers of workers: the arithmetic, the table, the files."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from sweeps.plan.machines import BACKWARD, GPUS, kind_of
from sweeps.ray_engine.timing import PARTS, Timing
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
from sweeps.report.html import Section, render
from sweeps.report.table import Table, table, terminal_lines
from sweeps.store.records import Records
from sweeps.terminal.text import milliseconds, numbered

WEAK = ("weak_efficiency", "weak_low", "weak_high")
RATIOS = (
    *("training_speedup", "training_efficiency", "loss_difference"),  # of the same batch alone
    *("validation_speedup", "validation_efficiency"),
)
"""Columns of a row that compare it with one worker, but for the intervals."""
HALF = ("bfloat16", "float16")
ROUNDING = 1e-4
"""Difference of a step's loss that the order of additions explains, in float32."""
FILES = ("scaling.html", "scaling.csv", "scaling.png", "scaling.json")
QUESTION = "How much faster do training and validation run with more workers?"
READING = (
    "A rate is the geometric mean over processes of the median over epochs; a speed-up is relative "
    "to one worker, with a 95% interval over processes. An efficiency of 100% is ideal. The parts "
    "of a step are those of the last epoch. MFU is the share of a GPU's dense rate in half "
    "precision."
)
HOURS = {"gpu": "GPU-hours", "core": "core-hours"}
"""{device whose hours are counted, cores where there is no GPU: their name}."""
_CROWD = 8  # workers; with more, linear axes would crowd the first points


def scaling_rows(
    timings: Sequence[Timing],
    *,
    weak: Sequence[Timing] = (),
    operations: Callable[[float], float] | None = None,
    precision: str = "",
) -> pd.DataFrame:
    """A row for each number of workers, of the same global batch; `weak` are timings with the same
    batch for each worker. `operations` are those of a forward pass for a token, by the tokens of a
    row; with them and the rate of the device in half precision a row has its share (`mfu`). A rate
    is the geometric mean over processes of the median over the epochs of each; a speed-up is
    relative to the first number of workers, one, with a 95% interval (`low`, `high`; NaN for a
    single process) over processes. An efficiency of 1 is ideal; `loss_difference` is the largest
    of any step.
    `gpu_hours` or `core_hours` are the mean of those of all devices in the measured training."""
    groups = _by_workers(timings)
    single = next(iter(groups.values()))
    rows = pd.DataFrame({"num_workers": [*groups]})
    rows["processes"] = [len(own) for own in groups.values()]
    rows["nodes"] = [max(len({*one.nodes}) for one in own) for own in groups.values()]
    rows["devices"] = [
        ", ".join(sorted({name for one in own for name in one.devices})) for own in groups.values()
    ]
    for kind, rate in (("training", "steps_per_second"), ("validation", "documents_per_second")):
        logs = [
            [math.log(median(getattr(timing, rate))) for timing in own] for own in groups.values()
        ]
        rows[rate] = [math.exp(fmean(own)) for own in logs]
        rows[f"{kind}_speedup"] = rows[rate] / rows[rate].iloc[0]
        ends = np.exp([_interval(own, logs[0]) for own in logs])
        rows[f"{kind}_low"], rows[f"{kind}_high"] = ends.T
        rows[f"{kind}_efficiency"] = rows[f"{kind}_speedup"] / rows["num_workers"]
    rows["loss_difference"] = [
        max(
            abs(first - other)
            for one in own
            for first, other in zip(single[0].losses, one.losses, strict=True)
        )
        for own in groups.values()
    ]
    rows["tokens_per_second"] = [_rate(own, "tokens_per_second") for own in groups.values()]
    rows["mfu"] = [_mfu(own, operations, precision) for own in groups.values()]
    for unit in HOURS:
        rows[f"{unit}_hours"] = [_hours(own, f"{unit}s") for own in groups.values()]
    for at, part in enumerate(PARTS):
        of_groups = ([one.parts[at] for one in own if one.parts] for own in groups.values())
        rows[f"{part}_seconds"] = [fmean(own) if own else math.nan for own in of_groups]
    return rows if not weak else rows.merge(_weak_rows(single, weak), how="left")


def _rate(own: Sequence[Timing], rate: str) -> float:
    """The geometric mean over processes of the median of each; NaN where one has none."""
    values = [getattr(one, rate) for one in own]
    return math.exp(fmean(math.log(median(each)) for each in values)) if all(values) else math.nan


def _hours(own: Sequence[Timing], devices: str) -> float:
    """The mean over groups of the hours of all their `devices`; NaN where they have none."""
    hours = [one.seconds * getattr(one, devices) / 3600 for one in own]
    return fmean(hours) if all(hours) else math.nan


def _mfu(
    own: Sequence[Timing], operations: Callable[[float], float] | None, precision: str
) -> float:
    """The share of the devices' dense rate in half precision that the encoder's operations have;
    NaN where one of them is unknown."""
    names = {name for one in own for name in one.devices}
    kinds = {kind for name in names if (kind := kind_of(name))}
    known = len(names) == len(kinds) == 1 and precision in HALF
    if not (operations and known):
        return math.nan
    passes = fmean(1 + BACKWARD * one.learned for one in own)
    each = operations(fmean(one.row for one in own)) * passes
    return _rate(own, "tokens_per_second") * each / (own[0].num_workers * GPUS[kinds.pop()].rate)


def _weak_rows(single: Sequence[Timing], weak: Sequence[Timing]) -> pd.DataFrame:
    """The efficiency with a batch for each worker: 1 where a step takes as long as that of one."""
    alone = [math.log(median(one.steps_per_second)) for one in single]
    found = []
    for number, own in _by_workers(weak).items():
        logs = [math.log(median(one.steps_per_second)) for one in own]
        low, high = np.exp(_interval(logs, alone))
        found.append((number, math.exp(fmean(logs) - fmean(alone)), low, high))
    return pd.DataFrame(found, columns=["num_workers", *WEAK])


def group_values(
    timing: Timing,
    single: Timing | None,
    *,
    operations: Callable[[float], float] | None = None,
    precision: str = "",
) -> dict[str, float]:
    """The numbers of one group that are known, beside those of one worker in the same repeat;
    without that no ratios."""
    timings = [single, timing] if single and timing.num_workers > 1 else [timing]
    row = scaling_rows(timings, operations=operations, precision=precision).iloc[-1]
    values = {name: float(value) for name, value in row.items() if not isinstance(value, str)}
    weak = single is not None and timing.batch_size != single.batch_size
    if weak:
        values["weak_efficiency"] = values["training_speedup"]
    for name in RATIOS if single is None else RATIOS[:3] if weak else ():
        del values[name]
    return {str(name): value for name, value in values.items() if math.isfinite(value)}


def _by_workers(timings: Sequence[Timing]) -> dict[int, list[Timing]]:
    """{number of workers: the timings of its processes}."""
    groups: dict[int, list[Timing]] = {}
    for timing in timings:
        groups.setdefault(timing.num_workers, []).append(timing)
    return groups


def _interval(own: Sequence[float], single: Sequence[float]) -> tuple[float, float]:
    """The ends of Welch's 95% interval of a difference of means; NaN below two values each."""
    if own is single or min(len(own), len(single)) < 2:
        return math.nan, math.nan
    found = ttest_ind(own, single, equal_var=False).confidence_interval(0.95)
    return float(found.low), float(found.high)


def tables(rows: pd.DataFrame) -> list[Table]:
    """Training and validation; then what a step is made of, and what the devices do in it, unless
    nothing was measured of it."""
    ratios = ("speed-up", "efficiency")
    heading = ("workers", "nodes", "steps/s", *ratios, "documents/s", *ratios)
    lines = [
        [
            f"{row.num_workers}",
            f"{row.nodes or '—'}",
            f"{row.steps_per_second:.3g}",
            _speedup(row.training_speedup, row.training_low, row.training_high),
            f"{row.training_efficiency:.0%}",
            f"{row.documents_per_second:,.0f}",
            _speedup(row.validation_speedup, row.validation_low, row.validation_high),
            f"{row.validation_efficiency:.0%}",
        ]
        for row in rows.itertuples()
    ]
    speeds = table(heading, lines, "r" * len(heading), title="Training and validation")
    return [speeds] if rows["data_seconds"].isna().all() else [speeds, _parts(rows)]


def tables_text(rows: pd.DataFrame) -> str:
    """The printed tables."""
    return "\n\n".join("\n".join(terminal_lines(one)) for one in tables(rows))


def _speedup(value: float, low: float, high: float) -> str:
    return f"{value:.2f}" if math.isnan(low) else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _parts(rows: pd.DataFrame) -> Table:
    weak = "weak_efficiency" in rows
    unit = next((unit for unit in HOURS if rows[f"{unit}_hours"].notna().any()), "")
    heading = ["workers", "tokens/s", "MFU", "a step", "data", "compute", "all-reduce", "waiting"]
    lines = []
    for row in rows.to_dict("records"):
        seconds = [row[f"{part}_seconds"] for part in PARTS]
        whole = sum(seconds)
        line = [
            f"{row['num_workers']}",
            _known(row["tokens_per_second"], ",.0f"),
            _known(row["mfu"], ".0%"),
            "—" if math.isnan(whole) else f"{milliseconds(1000 * whole)} ms",
            *(_known(one / whole, ".0%") for one in seconds),
        ]
        if unit:
            line.append(_known(row[f"{unit}_hours"], ".3g"))
        if weak:
            line.append(_known_interval(*(row[name] for name in WEAK)))
        lines.append(line)
    heading += [HOURS[unit]] if unit else []
    heading += ["weak scaling"] if weak else []
    return table(heading, lines, "r" * len(heading), title="What a step is made of")


def _known(value: float, form: str) -> str:
    return "—" if math.isnan(value) else f"{value:{form}}"


def _known_interval(value: float, low: float, high: float) -> str:
    """An efficiency, with its interval where there is one."""
    text = _known(value, ".0%")
    return text if math.isnan(low) else f"{text} [{low:.0%}, {high:.0%}]"


def advice(rows: pd.DataFrame) -> str:
    """The number of workers that end a trial first, and its price beside as many trials at once. A
    speed-up without an interval, or one that may be 1 by it, is none."""
    if len(rows) == 1:
        return "one worker alone: nothing to advise"
    if rows["training_low"].isna().all():
        return "nothing to advise: an interval needs two repeats of each number of workers"
    faster = rows[(rows["num_workers"] == 1) | (rows["training_low"] > 1)]
    best = faster.loc[faster["training_speedup"].idxmax()]
    n, speedup = best["num_workers"], best["training_speedup"]
    if n > 1:
        return (
            f"{n} workers for a single trial: {speedup:.2f} times as fast as one, for "
            f"{n / speedup:.2f} times its device time; for several, {n} at once on a worker each, "
            "unless they slow each other down"
        )
    if rows["training_speedup"].max() > 1:
        return "one worker a trial: more are not shown to be faster; measure again on idle machines"
    return "one worker a trial: more are not faster"


def mixed_devices(rows: pd.DataFrame) -> str:
    """A warning where the workers had devices of several kinds, whose speeds are mixed then; else
    ""."""
    kinds = sorted({kind for own in rows["devices"] for kind in own.split(", ") if kind})
    if len(kinds) < 2:
        return ""
    return f"workers had {' and '.join(kinds)}: the speed-ups mix their speeds"


def same_losses(rows: pd.DataFrame) -> bool:
    """True if every number of workers has the loss curve of one, within rounding."""
    return bool((rows["loss_difference"] <= ROUNDING).all())


def losses_text(rows: pd.DataFrame, *, unjudged: str) -> str:
    """The check that n workers train like one; `unjudged` is a reason why they may differ, if there
    is one."""
    if len(rows) == 1:
        return "one worker alone: nothing to compare"
    worst = rows.loc[rows["loss_difference"][1:].idxmax()]
    check = "equal those of one worker" if same_losses(rows) else "DIFFER from those of one worker"
    return (
        f"{f'not judged: {unjudged}' if unjudged else check} (at most "
        f"{worst['loss_difference']:.1e} apart in any step, with {worst['num_workers']:.0f} "
        f"workers; float32 rounds to {ROUNDING:g})"
    )


def write_scaling(
    records: Records,
    timings: Sequence[Timing],
    weak: Sequence[Timing],
    rows: pd.DataFrame,
    facts: Mapping[str, Any],
    sentences: Mapping[str, str],
) -> None:
    """The files of `FILES`, each whole or not at all, `scaling.json` last; the page has the
    `sentences`, {name: text}."""
    plot = scaling_plot(timings, rows)
    table_csv = rows.to_csv(index=False, lineterminator="\n")
    # JSON has no NaN.
    known = rows.astype(object).where(rows.notna(), None)
    listed = {"rows": known.to_dict("records")}
    listed["timings"] = [asdict(own) for own in [*timings, *weak]]
    contents = (
        _page(rows, [*timings, *weak], plot, facts, sentences).encode(),
        table_csv.encode(),
        plot.png,
        json.dumps({**facts, "law": sentences["losses"], **listed}, indent=1).encode(),
    )
    for file, content in zip(FILES, contents, strict=True):
        records.write_file(file, content)


def places(timings: Sequence[Timing]) -> Table:
    """The hosts and devices of groups; equal ones are a row."""
    groups: Counter[tuple[str, ...]] = Counter()
    for one in timings:
        nodes = sorted(Counter(one.nodes).items())
        hosts = ", ".join(f"{workers} on {node}" for node, workers in nodes)
        devices = ", ".join(sorted({*one.devices}))
        groups[f"{one.num_workers}", f"{one.batch_size or '—'}", hosts, devices] += 1
    lines = [(*row[:2], f"{number}", *row[2:]) for row, number in groups.items()]
    return table(("workers", "groups a step", "processes", "hosts", "devices"), lines, "rrrll")


def _page(
    rows: pd.DataFrame,
    timings: Sequence[Timing],
    plot: Drawing,
    facts: Mapping[str, Any],
    sentences: Mapping[str, str],
) -> str:
    """The page of a measurement."""
    settings = facts["settings"]
    devices = sorted({kind for own in rows["devices"] for kind in own.split(", ") if kind})
    least, most = rows["processes"].min(), rows["processes"].max()
    fewest = f"{least}-" if least < most else ""
    shown = [
        f"{facts['label']} on {settings['collection']}, {settings['model.backbone']}",
        f"{settings['training.batch_size']} groups a step",
        *([" and ".join(devices)] if devices else []),
        facts["precision"],
        f"{fewest}{numbered(most, 'repeat')} for each number of workers",
    ]
    answer = sentences["use"]
    steps = numbered(timings[0].num_steps, "step")
    hours = (
        f"GPU-hours, or core-hours, are those of the measured training: {steps} with the "
        "validations, without the start of the processes."
    )
    notes = [f"{name.capitalize()}: {text}." for name, text in sentences.items() if name != "use"]
    versions = [(name, str(version)) for name, version in facts["versions"].items()]
    return render(
        "page.html",
        title=QUESTION,
        answer=f"{answer[0].upper()}{answer[1:]}.",
        notes=notes,
        facts=shown,
        sections=[
            Section(figures=[plot]),
            Section("Numbers", tables=tables(rows), note=f"{READING} {hours}"),
            Section("Where the workers were", tables=[places(timings)]),
            Section("Versions", values=versions, is_folded=True),
        ],
    )


@style()
def scaling_plot(timings: Sequence[Timing], rows: pd.DataFrame) -> Drawing:
    """The speed-ups of the table with the ideal line; bars span the epochs of all processes."""
    groups = _by_workers(timings)
    numbers = [*groups]
    figure = new_figure(WIDTH, 3.3)
    axes = figure.add_subplot()
    axes.plot(numbers, numbers, "--", color=GREY, lw=1, label="ideal")
    for label, colour, rate, kind, thick in (
        ("training (steps/s)", BLUE, "steps_per_second", "training", 3),
        ("validation (documents/s)", ORANGE, "documents_per_second", "validation", 1),
    ):
        middle = rows[f"{kind}_speedup"]
        each = [[r for one in own for r in getattr(one, rate)] for own in groups.values()]
        spans = np.array([(min(own), max(own)) for own in each]) / rows[rate].iloc[0]
        ends = (middle - spans[:, 0]).clip(lower=0), (spans[:, 1] - middle).clip(lower=0)
        axes.errorbar(numbers, middle, ends, fmt="o-", color=colour,
                      ms=4, lw=1.4, elinewidth=thick, label=label)  # fmt: skip
    if numbers[-1] > _CROWD:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(numbers, [str(n) for n in numbers])
    axes.minorticks_off()
    axes.set_xlabel("workers, same global batch")
    axes.set_ylabel("speed-up")
    grid(axes)
    legend(figure, 3)
    return draw(
        figure,
        "scaling",
        "speed-up over workers",
        heading="Speed-up over workers",
        caption="Bars span the epochs of all processes; the intervals of the table are over "
        "processes.",
    )
