"""The plan and the forecast as text."""

import math
from collections import Counter
from collections.abc import Sequence

from rank_core.encoders import tiny
from sweeps.forecast.forecast import Calibration, Forecast, gpu_share, wall_seconds
from sweeps.plan.plan import Plan, Trial
from sweeps.plan.terminal import (
    clock,
    columns,
    count,
    duration,
    numbered,
    shortened,
    terminal_columns,
    wrapped,
)
from sweeps.plan.trial_cost import MORE_STEPS, few_steps
from sweeps.search.search import search_class
from sweeps.store.plan_description import SPLITS, evaluated_qrels

CAPTION = (
    "chunks, tokens/doc: means of a document (encoder tokens); max: its most chunks",
    "read: share of the documents' tokens in some chunk; cost: encoder tokens",
)


def plan_text(plan: Plan, *, finished: int) -> str:
    """The plan: cells and trials, the chunks and costs of each cell, and the excluded cells."""
    collection, base = plan.inputs.collection, plan.base
    queries = {name: len(split.queries) for name, split in collection.splits.items()}
    number = plan.num_trials
    once = sum(cell.deterministic for cell in plan.cells)
    evaluated = {name: len(evaluated_qrels(plan, name)) for name in SPLITS}
    folds = f" over {base.evaluation.folds} folds" if base.evaluation.folds else ""
    few = next(filter(None, (few_steps(cell.config, cell.inputs) for cell in plan.cells)), "")
    head = [
        plan.experiment.question,
        "",
        f"collection  {collection.name} ({collection.content_hash}): "
        f"{len(collection.documents):,} documents, queries "
        + ", ".join(f"{name} {count:,}" for name, count in queries.items())
        + f"; evaluated: dev {evaluated['dev']:,}, test {evaluated['test']:,}{folds}",
        f"backbone    {plan.inputs.backbone.name} ({plan.inputs.backbone.content_hash}), inputs of "
        f"up to {plan.inputs.backbone.max_input_tokens} tokens" + _backbone_settings(plan),
        *([f"smoke test  {plan.reduced}"] if plan.reduced else []),
        *([f"training    {few}: {MORE_STEPS}"] if few and not plan.reduced else []),
        *search_class(plan.search.name).plan_lines(plan),
        f"trials      {numbered(len(plan.cells), 'cell')} x {numbered(len(plan.seeds), 'seed')}"
        f" = {number}"
        + (f" ({once} without randomness run once)" if once else "")
        + (f", {finished} of them done" if finished else ""),
    ]
    lines = [*map(wrapped, head), "", *_cell_lines(plan)]
    lines += CAPTION
    lines += [wrapped(f"excluded    {item.label}: {item.reason}") for item in plan.removed]
    return "\n".join(lines)


def _backbone_settings(plan: Plan) -> str:
    """The settings of the plan's base that an embedded backbone sets in place of the defaults."""
    base = plan.base.settings()
    own = tiny.SETTINGS if base["model.backbone"] in tiny.EMBEDDED else {}
    named = [f"{name}={value:g}" for name, value in own.items() if base[name] == value]
    return "; its own defaults: " + ", ".join(named) if named else ""


def _cell_lines(plan: Plan) -> list[str]:
    # Costs are multiples of the baseline's, or of the first cell's with an encoder.
    reference = next((cell.cost for cell in plan.cells if cell.cost), 1)
    rows: list[tuple[str, ...]] = [("cell", "chunks", "max", "tokens/doc", "read", "cost", "")]
    for cell in plan.cells:
        chunks = cell.chunks
        rows.append(
            (
                shortened(cell.label, terminal_columns() - 50),
                f"{chunks.chunks_per_document:.1f}",
                str(chunks.max_chunks),
                f"{chunks.tokens_per_document:,.0f}",
                f"{chunks.coverage:.0%}",
                f"{cell.cost / reference:.1f}x",
                "baseline" if cell is plan.cells[0] else "",
            )
        )
    return columns(rows, "lrrrrrl")


def forecast_text(missing: Sequence[Trial], forecast: Forecast, calibration: Calibration) -> str:
    """The trials still to run, by cell and in total."""
    number = Counter(trial.cell.cell for trial in missing)
    trials_of = dict.fromkeys(number, 0.0)  # of trials that pause, the parts
    for trial in missing:
        trials_of[trial.cell.cell] += trial.share
    # Of a search that stops trials, the most that can run; eliminations are not known yet.
    title = "to run, at most" if any(trial.epochs for trial in missing) else "to run"
    rows = [(title, "trials", "tokens", "a trial (95%)", f"{forecast.unit}-hours", "memory")]
    for cell in {trial.cell.cell: trial.cell for trial in missing}.values():
        label = shortened(cell.label, terminal_columns() - 60)
        measured, times = forecast.trials.get(cell.cell), str(number[cell.cell])
        if measured is None:  # a server does the work
            rows.append((label, times, "-", "not measured", "-", "-"))
            continue
        low, middle, high = calibration.interval(measured.seconds)
        rows.append(
            (
                label,
                times,
                count(trials_of[cell.cell] * measured.tokens),
                f"{clock(middle)} ({clock(low)}-{clock(high)})",
                f"{trials_of[cell.cell] * middle * forecast.units / 3600:.3g}",
                f"{measured.peak_bytes / 2**20:,.0f} MiB",
            )
        )
    return "\n".join([*columns(rows, "lrrrrr"), "", *_totals(missing, forecast, calibration)])


MUCH = 0.2  # of the time, for validation
FEWER = "(evaluation.max_dev_queries or training.validate_every lowers it)"


def _totals(missing: Sequence[Trial], forecast: Forecast, calibration: Calibration) -> list[str]:
    measured = [trial for trial in missing if trial.cell.cell in forecast.trials]
    trials = [forecast.trials[trial.cell.cell] for trial in measured]
    tokens = sum(
        estimate.tokens * trial.share for trial, estimate in zip(measured, trials, strict=True)
    )
    seconds = [
        estimate.seconds * trial.share for trial, estimate in zip(measured, trials, strict=True)
    ]
    wall = calibration.interval(wall_seconds(seconds, forecast.slots))
    low, middle, high = (amount + forecast.start_seconds for amount in wall)
    lows, hours, highs = (
        amount * forecast.units / 3600 for amount in calibration.interval(sum(seconds))
    )
    lines = [
        f"estimate    {duration(middle)} (95%: {duration(low)} - {duration(high)}) "
        f"on {numbered(forecast.slots, 'slot')}",
        f"            {hours:.3g} {forecast.unit}-hours ({lows:.3g}-{highs:.3g}), "
        f"{count(tokens)} encoder tokens",
        f"measured    {forecast.num_measured} of {numbered(forecast.num_kinds, 'kind')} of trial, "
        f"a batch of each, in {duration(forecast.seconds)}",
    ]
    validation = sum(e.validation * t.share for t, e in zip(measured, trials, strict=True))
    if validation:
        lines.append(f"validation  {validation / sum(seconds):.0%} of the time, on dev")
        if validation > MUCH * sum(seconds):
            lines.append(f"            {FEWER}")
    if calibration.num_trials:
        by = numbered(calibration.num_trials, "finished trial")
        lines.append(f"calibrated  by {by}: times {math.exp(calibration.log_ratio):.2f}")
    peak = max((trial.peak_bytes for trial in trials), default=0)
    share = gpu_share(peak, forecast.device_bytes)
    if share < min(1.0, forecast.units):
        gpus = math.floor(share * 1e4) / 1e4  # which is as fine as Ray counts
        lines += [
            f"GPU share   a trial needs at least {peak / 2**30:.1f} GiB of "
            f"{forecast.device_bytes / 2**30:.0f}: --gpus-per-worker {gpus:g} runs",
            f"            {round(1 / share)} on a GPU, faster only if one leaves it idle",
        ]
    return lines
