"""Learning curves of the trials, from the outbox that the sweep wrote while it ran."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.report.load import Sweep
from sweeps.tracking.names import metric_name
from sweeps.tracking.trial_file import read_lines


@dataclass
class Curve:
    """One training run: loss of its batches and its development measure, by optimiser step."""

    cell: str
    seed: int
    loss: dict[int, float] = field(default_factory=dict)
    dev: dict[int, float] = field(default_factory=dict)
    best_step: int | None = None  # of the checkpoint that was kept


def learning_curves(sweep: Sweep) -> list[Curve]:
    """The curves in the order of the cells; empty where the folder has no outbox."""
    order = {one.cell: position for position, one in enumerate(sweep.cells)}
    found = [
        curve
        for path in sorted((sweep.folder / "outbox").glob("*.jsonl"))
        for curve in _curve(path, f"dev/{metric_name(sweep.primary)}")
        if curve.cell in order and (curve.loss or curve.dev)
    ]
    return sorted(found, key=lambda one: (order[one.cell], one.seed))


def _curve(path: Path, dev_name: str) -> Iterator[Curve]:
    """The curve of one file; a repeated step of a later attempt replaces the earlier one."""
    curve: Curve | None = None
    for line in read_lines(path):
        record = line.record or {}
        kind = record.get("kind")
        if kind == "trial":
            cell, _, seed = str(record.get("trial_key")).rpartition("/")[2].rpartition("-seed")
            if curve is None and seed.isdigit():
                curve = Curve(cell, int(seed))
        elif curve is not None and kind == "metrics":
            values = record.get("values", {})
            if "train/loss" in values:
                curve.loss[int(record["step"])] = float(values["train/loss"])
            if dev_name in values:
                curve.dev[int(record["step"])] = float(values[dev_name])
        elif curve is not None and kind == "finish":
            step = record.get("metrics", {}).get("best/step")
            curve.best_step = None if step is None else int(step)
    if curve is not None:
        yield curve
