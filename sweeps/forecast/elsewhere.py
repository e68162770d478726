"""The time of a plan on GPUs that are not here: the operations of its encoders at the share of a
GPU's rate that `sweeps.plan.machines` states. Nothing is measured."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from torch import nn

from rank_core.encoders.checkpoint import open_config, without_memory
from rank_core.errors import BadInput
from rank_core.models import model_class
from sweeps.forecast.forecast import Calibration, Forecast, TrialEstimate
from sweeps.plan.machines import GPUS, KNOWN_BY, Machines
from sweeps.plan.options import Options, range_text
from sweeps.plan.plan import Plan, PlannedCell, Trial
from sweeps.plan.resources import Resources, resources_of
from sweeps.plan.trial_cost import Tokens, planned_tokens, unread_tokens
from sweeps.store.prepared import preparation
from sweeps.terminal.text import columns, count, duration, shortened, wrapped
from sweeps.terminal.text import terminal_columns as width

MODELLED = 80e6  # parameters of an encoder, of BERT-base, for which the shares are known


class EncoderShape(NamedTuple):
    """What the operations of an encoder follow from."""

    layers: int
    width: int
    parameters: float  # without the embeddings

    def operations(self, row: float) -> float:
        """The operations of a forward pass for a token, in rows of so many tokens."""
        return 2 * self.parameters + 4 * self.layers * self.width * row


@lru_cache(maxsize=8)
def shape_of(folder: Path) -> EncoderShape | None:
    """The shape of the encoder in a folder; None where transformers does not have it."""
    from transformers import AutoModel

    try:
        config = open_config(folder.name, folder)
        model = without_memory(AutoModel, config)
        layers, size = int(config.num_hidden_layers), int(config.hidden_size)
    except Exception:  # of any kind: code of its own, a library's model
        return None
    tables = sum(
        weight.numel()
        for module in model.modules()
        if isinstance(module, nn.Embedding)
        for weight in module.parameters()
    )
    return EncoderShape(layers, size, float(sum(p.numel() for p in model.parameters()) - tables))


def modelled(plan: Plan, machines: Machines, options: Options, num_ended: int = 0) -> Forecast:
    """The forecast of a plan, of which so many trials have ended, on these GPUs; no estimate for
    cells without an encoder."""
    unread = unread_tokens((c.cell, c.config, c.inputs) for c in plan.cells)
    resources = _resources(machines, options, plan.max_trials - num_ended)
    workers = resources.num_workers
    trials = {
        cell.cell: estimate
        for cell in plan.cells
        if (estimate := _estimate(cell, machines, workers, unread.get(cell.cell)))
    }
    return Forecast(
        trials=trials,
        slots=resources.slots,
        num_workers=workers,
        units=workers * resources.gpus,
        unit=machines.gpu,
        start_seconds=0.0,
        group_seconds=0.0,
        num_kinds=0,
        num_measured=0,
        seconds=0.0,
        device="",
        threads=options.cpus_per_worker,
        group=range_text(options),
    )


def _resources(machines: Machines, options: Options, num_trials: int) -> Resources:
    """The resources that so many trials are estimated with on GPUs whose node has the cores."""
    each = options.gpus_per_worker or 1.0
    cores = options.cpus_per_worker * math.ceil(machines.number / each)
    node = {"CPU": float(cores), "GPU": float(machines.number)}
    own = replace(options, gpus_per_worker=each, accelerator=None)
    try:
        return resources_of(own, [node], place=machines.name).estimated([node], num_trials)
    except BadInput:
        least = options.min_workers or options.num_workers
        raise BadInput(
            f"a trial needs {least * each:g} GPUs by --num-workers and --gpus-per-worker, and "
            f"--for names {machines.name}"
        ) from None


def _estimate(
    cell: PlannedCell, machines: Machines, workers: int, unread: int | None
) -> TrialEstimate | None:
    kind, shape = model_class(cell.config.model.name), shape_of(cell.inputs.backbone.folder)
    if not (kind.trains or kind.retrieves) or shape is None:
        return None
    tokens = planned_tokens(cell.config, cell.inputs, cell.chunks)
    tokens = tokens if unread is None else Tokens(0.0, float(unread))
    each = shape.operations(_row(cell))
    seconds = GPUS[machines.gpu].seconds(tokens.scored * each, tokens.trained * each)
    seconds /= workers
    return TrialEstimate(seconds, tokens.scored + tokens.trained, 0, tokens.trained)


def _row(cell: PlannedCell) -> float:
    """The tokens of a mean row of the encoder."""
    return cell.chunks.tokens_per_document / max(1.0, cell.chunks.chunks_per_document)


def elsewhere_text(
    plan: Plan,
    missing: Sequence[Trial],
    forecasts: Sequence[tuple[Machines, Forecast]],
    calibration: Calibration,
) -> str:
    """The trials still to run, with the hours of each kind of GPU, and the time and money of all
    of them on the GPUs that were named."""
    number = Counter(trial.cell.cell for trial in missing)
    kinds = {machines.gpu: forecast for machines, forecast in forecasts}
    rows = [("to run", "trials", "tokens", *(f"{gpu}-hours" for gpu in kinds))]
    for cell in {trial.cell.cell: trial.cell for trial in missing}.values():
        estimates = [own.trials.get(cell.cell) for own in kinds.values()]
        hours = [
            f"{number[cell.cell] * one.seconds * own.units / 3600:.3g}" if one else "-"
            for one, own in zip(estimates, kinds.values(), strict=True)
        ]
        tokens = count(number[cell.cell] * estimates[0].tokens) if estimates[0] else "-"
        label = shortened(cell.label, width() - 30 - 12 * len(kinds))
        rows.append((label, str(number[cell.cell]), tokens, *hours))
    ends = [_total(missing, *one, calibration) for one in forecasts]
    notes = _notes(plan, list(kinds))
    return "\n".join([*columns(rows, "lrr" + "r" * len(kinds)), "", *map(wrapped, [*ends, *notes])])


def _total(
    missing: Sequence[Trial], machines: Machines, forecast: Forecast, calibration: Calibration
) -> str:
    """The time of all trials on some GPUs, and the money where a price is known."""
    estimates = (forecast.trials.get(trial.cell.cell) for trial in missing)
    seconds = [one.seconds for one in estimates if one]
    begins = preparation().there
    wall = (begins + end for end in forecast.wall(missing, calibration))
    hours = [s * forecast.units / 3600 for s in calibration.interval(sum(seconds))]
    low, middle, high = map(duration, wall)
    text = (
        f"{machines.name:<11} {middle} (95%: {low} - {high}) on "
        f"{forecast.slots_text}, {hours[1]:.3g} {machines.gpu}-hours "
        f"({hours[0]:.3g}-{hours[2]:.3g})"
    )
    if machines.price is None:
        return text
    paid = [machines.price * own for own in hours]
    return f"{text}; at {machines.price:g} an hour {paid[1]:,.2f} ({paid[0]:,.2f}-{paid[2]:,.2f})"


def _notes(plan: Plan, kinds: Sequence[str]) -> Iterator[str]:
    shares = "; ".join(f"{k} {GPUS[k].scoring:.0%}, {GPUS[k].training:.0%}" for k in kinds)
    yield (
        f"modelled    encoder operations at a share of the dense bf16 rate, in scoring and in "
        f"training: {shares} (`{KNOWN_BY}`). Starts of trials, data and idle GPUs come on top"
    )
    if prepared := preparation().text:
        yield f"prepared    {prepared}; the times above have both"
    shapes = {shape_of(cell.inputs.backbone.folder) for cell in plan.cells}
    small = min((shape.parameters for shape in shapes if shape), default=MODELLED)
    if small < MODELLED:
        yield (
            f"            the encoder has {small / 1e6:,.1f} M parameters besides its embeddings: "
            f"below {MODELLED / 1e6:.0f} M a GPU waits for its host, and hours are lower bounds"
        )
