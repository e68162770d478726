"""The plan as a person reads it, and as `sweep.json` keeps it for the report."""

import json
import math
import os
import shlex
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rank_core.data import Collection, Qrels
from rank_core.data.trec import write_qrels
from rank_core.models import model_class
from rank_core.ranking.scorer import evaluated_queries, first_stage_means
from rank_core.trial.cross_validation import parts_of
from sweeps.engine.progress import duration
from sweeps.forecast.estimate import Calibration, gpu_share, wall_seconds
from sweeps.forecast.measure import Forecast
from sweeps.plan.plan import Plan, Trial
from sweeps.plan.secrets import redact_text
from sweeps.search.search_text import search_lines

SPLITS = ("dev", "test")


def plan_text(plan: Plan, *, finished: int) -> str:
    """The plan: what runs, what each cell reads and sees, what was left out and why."""
    collection, base = plan.inputs.collection, plan.base
    queries = {name: len(split.queries) for name, split in collection.splits.items()}
    number = plan.num_trials
    once = sum(cell.deterministic for cell in plan.cells)
    evaluated = {name: len(_evaluated(plan, name)) for name in SPLITS}
    folds = f" over {base.evaluation.folds} folds" if base.evaluation.folds else ""
    width = max(24, *(len(cell.label) + 2 for cell in plan.cells))
    head = [
        plan.experiment.question,
        "",
        f"collection  {collection.name} ({collection.content_hash}): "
        f"{len(collection.documents):,} documents, queries "
        + ", ".join(f"{name} {count:,}" for name, count in queries.items())
        + f"; evaluated: dev {evaluated['dev']:,}, test {evaluated['test']:,}{folds}",
        f"backbone    {plan.inputs.backbone.name} ({plan.inputs.backbone.content_hash}), inputs of "
        f"up to {plan.inputs.backbone.max_input_tokens} tokens",
        *search_lines(plan),
        f"trials      {len(plan.cells)} cells x {len(plan.seeds)} seeds = {number}"
        + (f" ({once} that every seed would repeat run once)" if once else "")
        + (f", of which {finished} are done already" if finished else ""),
    ]
    lines = [
        *map(_wrapped, head),
        "",
        f"{'cell':<{width}}{'chunks':>8}{'(max)':>7}{'tokens/doc':>12}{'seen':>8}{'cost':>8}",
    ]
    # Costs are multiples of the baseline's, or of the first cell's that encodes anything.
    reference = next((cell.cost for cell in plan.cells if cell.cost), 1)
    for cell in plan.cells:
        chunks = cell.chunks
        lines.append(
            f"{cell.label:<{width}}{chunks.chunks_per_document:>8.1f}{chunks.max_chunks:>7}"
            f"{chunks.tokens_per_document:>12,.0f}{chunks.coverage:>8.0%}"
            f"{cell.cost / reference:>7.1f}x" + ("  (baseline)" if cell is plan.cells[0] else "")
        )
    lines += [_wrapped(f"left out    {item.label}: {item.reason}") for item in plan.removed]
    return "\n".join(lines)


def terminal_columns() -> int:
    """The terminal's width; a wide one where the output goes to a file."""
    return shutil.get_terminal_size((160, 24)).columns


def _wrapped(line: str) -> str:
    """A line within the terminal, its further lines below its text."""
    return textwrap.fill(
        line,
        max(60, terminal_columns()),
        subsequent_indent=" " * 12 if line[10:12] == "  " else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


def forecast_text(
    missing: Sequence[Trial], known: Forecast, calibration: Calibration, *, columns: int
) -> str:
    """What is still to run, by cell and in all; as wide as `columns` allow."""
    number = Counter(trial.cell.cell for trial in missing)
    whole = dict.fromkeys(number, 0.0)  # of trials that pause, the parts
    for trial in missing:
        whole[trial.cell.cell] += trial.share
    cells = list({trial.cell.cell: trial.cell for trial in missing}.values())
    room = max(12, columns - sum(WIDTHS))
    width = min(room, max(24, *(len(cell.label) + 2 for cell in cells)))
    hours = f"{known.unit}-hours"
    heads = ("trials", "tokens", "a trial (95 %)", hours, "memory")
    # Of a search that stops trials, the most that can run: who goes furthest is not known yet.
    title = "to run, at most" if any(trial.epochs for trial in missing) else "to run"
    lines = [title.ljust(width) + _row(heads)]
    for cell in cells:
        label = cell.label if len(cell.label) < width else cell.label[: width - 2] + "…"
        one, times = known.trials.get(cell.cell), str(number[cell.cell])
        cut = (times, "-", "not measured", "-", "-")  # a server does the work
        if one is not None:
            low, middle, high = calibration.interval(one.seconds)
            cut = (
                times,
                _count(whole[cell.cell] * one.tokens),
                f"{_clock(middle)} ({_clock(low)}-{_clock(high)})",
                f"{whole[cell.cell] * middle * known.units / 3600:.3g}",
                f"{one.peak_bytes / 2**20:,.0f} MiB",
            )
        lines.append(label.ljust(width) + _row(cut))
    return "\n".join([*lines, "", *_totals(missing, known, calibration)])


WIDTHS = (8, 9, 21, 12, 10)


def _row(cells: Sequence[str]) -> str:
    return "".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS, strict=True))


def _totals(missing: Sequence[Trial], known: Forecast, calibration: Calibration) -> list[str]:
    measured = [trial for trial in missing if trial.cell.cell in known.trials]
    trials = [known.trials[trial.cell.cell] for trial in measured]
    tokens = sum(one.tokens * trial.share for trial, one in zip(measured, trials, strict=True))
    seconds = [one.seconds * trial.share for trial, one in zip(measured, trials, strict=True)]
    wall = calibration.interval(wall_seconds(seconds, known.slots))
    low, middle, high = (amount + known.start_seconds for amount in wall)
    lows, hours, highs = (
        amount * known.units / 3600 for amount in calibration.interval(sum(seconds))
    )
    lines = [
        f"estimate    {duration(middle)} (95 %: {duration(low)} - {duration(high)}) "
        f"on {known.slots} slot(s)",
        f"            {hours:.3g} {known.unit}-hours ({lows:.3g}-{highs:.3g}), "
        f"{_count(tokens)} encoder tokens",
        f"measured    {known.num_speeds} kind(s) of trial for {duration(known.seconds)}, "
        f"{known.num_processes} process(es) side by side",
    ]
    if calibration.num_trials:
        ratio = math.exp(calibration.log_ratio)
        lines.append(
            f"calibrated  by {calibration.num_trials} finished trial(s): times {ratio:.2f}"
        )
    peak = max((trial.peak_bytes for trial in trials), default=0)
    share = gpu_share(peak, known.device_bytes)
    if share < 1:
        lines.append(
            f"GPU share   a trial needs {peak / 2**30:.1f} GiB of "
            f"{known.device_bytes / 2**30:.0f}: try --gpus-per-worker {share:.3g}"
        )
    return lines


def _clock(seconds: float) -> str:
    """`0:40`, `1h05`."""
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}h{whole % 3600 // 60:02}"


def _count(number: float) -> str:
    """`950 K`, `12.3 M`, `4.1 G`."""
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number / 1e3:,.0f} K"


def manifest(plan: Plan, argv: list[str]) -> dict[str, Any]:
    """What the report needs to know of the sweep beside its tables."""
    collection, backbone, base = plan.inputs.collection, plan.inputs.backbone, plan.base
    swept = plan.experiment.swept
    return {
        "schema_version": 1,
        "sweep": plan.experiment.name,
        "question": plan.experiment.question,
        "split": "test",
        "measures": list(base.evaluation.measures),
        "primary": base.evaluation.measures[0],
        "baseline": plan.cells[0].cell,
        "correction": None,  # the report decides by the number of comparisons
        "paired_seeds": base.training.paired_seeds,
        "swept": list(swept),
        "seeds": list(plan.seeds),
        "collection": {
            "name": collection.name,
            "content_hash": collection.content_hash,
            "num_documents": len(collection.documents),
            "num_queries": {name: len(split.queries) for name, split in collection.splits.items()},
        },
        "backbone": {"name": backbone.name, "content_hash": backbone.content_hash},
        **described_cells(plan),
        "first_stage": first_stage_means(_parts(plan), "test", base.evaluation),
        "command": redact_text(shlex.join(["python", f"sweeps/{plan.experiment.script}", *argv])),
        "profile": plan.experiment.profile,
        "confirms": plan.experiment.confirms,
    }


def described_cells(plan: Plan) -> dict[str, Any]:
    """What grows with a plan whose search proposes its cells."""
    swept = ("model.name", *plan.experiment.swept)
    cells = []
    for cell in plan.cells:
        settings = cell.config.settings()
        cells.append(
            {
                "cell": cell.cell,
                "label": cell.label,
                "group": model_class(cell.config.model.name).label,
                "settings": {name: settings[name] for name in swept},
                "coverage": cell.chunks.coverage,
                "encoder_tokens_per_document": cell.chunks.tokens_per_document,
            }
        )
    return {
        "baselines": own_baselines(plan),
        "deterministic": [cell.cell for cell in plan.cells if cell.deterministic],
        "cells": cells,
    }


def own_baselines(plan: Plan) -> dict[str, str]:
    """{cell: FirstP of the same backbone and collection}; empty where all have the same."""
    first = {
        (cell.config.model.backbone, cell.config.collection): cell.cell
        for cell in plan.cells
        if cell.config.model.name == "firstp"
    }
    if len(first) < 2:
        return {}
    own = {
        cell.cell: first.get((cell.config.model.backbone, cell.config.collection))
        for cell in plan.cells
    }
    return {cell: baseline for cell, baseline in own.items() if baseline and cell != baseline}


def write_description(folder: Path, plan: Plan, description: dict[str, Any]) -> None:
    """`sweep.json` and `qrels/<split>.qrels` of the queries that are evaluated."""
    write_json(folder / "sweep.json", description)
    (folder / "qrels").mkdir(exist_ok=True)
    for name in SPLITS:
        write_qrels(folder / "qrels" / f"{name}.qrels", _evaluated(plan, name))


def _evaluated(plan: Plan, split: str) -> Qrels:
    """The judgments of a split's evaluated queries; with folds, of those of every fold."""
    return {
        query_id: part.splits[split].qrels[query_id]
        for part in _parts(plan)
        for query_id in evaluated_queries(part, split, plan.base.evaluation)
    }


def _parts(plan: Plan) -> list[Collection]:
    """The collection, or its folds."""
    return [part.collection for part in parts_of(plan.base, plan.inputs)]


def note(folder: Path, **facts: Any) -> None:
    """Adds to `sweep.json`, or replaces, what was not known before the trials ran."""
    path = folder / "sweep.json"
    write_json(path, json.loads(path.read_text()) | facts)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """`content` at `path`, whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(json.dumps(content, indent=1))
    os.replace(unfinished, path)


def say(text: str) -> None:
    """A paragraph on standard output, at once."""
    print(text, file=sys.stdout, flush=True)
