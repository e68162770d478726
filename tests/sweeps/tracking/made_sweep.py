"""A made sweep of two configurations in a storage, whose trials begin, report and end as told."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sweeps.store.records import COSTS, Records
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import Cell, sweep_file

EXPERIMENT = "team/ws-woods-0a1b2c"
SHOWN = "team/ws-woods"
CELLS = ("c1", "c2")
BEGAN = 1_700_000_000  # of every trial, in seconds since the epoch


class MadeSweep:
    """The sweep ws/woods in a folder; `c1-seed1` is a trial of it."""

    def __init__(self, folder: Path, seeds: Sequence[int] = (1, 2), **facts: Any) -> None:
        storage = Storage(str(folder / "results"))
        storage.open()
        self.records = Records(storage, "ws/woods", command="driver")
        self.seeds, self.work, self.facts = seeds, folder / "work", facts
        self.describe()

    @property
    def reader(self) -> Records:
        """The records as another command reads them."""
        return Records(Storage(self.records.storage.uri), self.records.sweep)

    def describe(self, **facts: Any) -> None:
        """Writes `sweep.json`, with other facts than before."""
        self.facts |= facts
        cells = [
            Cell(
                cell,
                label,
                group="MaxP",
                settings={"model.name": "maxp", "chunking.window": window},
                config={
                    "model.name": "maxp",
                    "chunking.window": window,
                    "evaluation.measures": ["P@5"],
                    "training.batch_size": 8,
                    "collection": "woods",
                },
            )
            for cell, label, window in zip(
                CELLS, ("FirstP 48", "MaxP 48/32"), (48, 96), strict=True
            )
        ]
        described = {
            "sweep": "ws",
            "question": "Which window?",
            "split": "test",
            "measures": ("P@5",),
            "primary": "P@5",
            "baseline": "c1",
            "cells": tuple(cells),
            "swept": ("chunking.window",),
            "trials": tuple(f"{cell}-seed{seed}" for cell in CELLS for seed in self.seeds),
            "collection": {
                "name": "woods",
                "content_hash": "a" * 16,
                "num_documents": 9,
                "num_queries": {"train": 4, "dev": 2, "test": 3},
            },
            "experiment": EXPERIMENT,
            "tags": {"mlflow.source.name": "/here/ws.py", "git.sha": "0123"},
        }
        sweep_file(**described | self.facts).write(self.records)

    def begin(self, name: str = "c1-seed1") -> str:
        """An attempt of a trial begins."""
        self.records.begin(name)
        return name

    def end(self, name: str = "c1-seed1", status: str = "failed", **facts: Any) -> None:
        """An attempt ends without a result."""
        self.records.end(name, status, host="node-1", reason="the reason", **facts)

    def publish(
        self, name: str = "c1-seed1", steps: int = 3, reports: Sequence[Any] = (), **result: Any
    ) -> None:
        """An attempt ends with a result, after some steps."""
        folder = self.work / name
        folder.mkdir(parents=True, exist_ok=True)
        reports = reports or [report(step, steps) for step in range(1, steps + 1)]
        (folder / "history.jsonl").write_text("\n".join(map(json.dumps, reports)))
        (folder / "config.json").write_text("{}")
        rows = [("test", "q1", "P@5", 0.5), ("dev", "q2", "P@5", 0.4)]
        values = pd.DataFrame(rows, columns=["split", "query_id", "measure", "value"])
        values.to_parquet(folder / "per_query.parquet")
        facts = {"status": "done", "test": {"P@5": 0.5}, "dev": {"P@5": 0.4}, "best_step": 2}
        facts |= dict.fromkeys(COSTS, 2.0) | {"versions": {"torch": "2", "device": "cpu"}} | result
        (folder / "result.json").write_text(json.dumps(facts))
        self.records.publish(name, folder)
        self.end(name, facts["status"])

    def whole(self, *names: str, **facts: Any) -> None:
        """Trials from their begin to their result."""
        for name in names:
            self.publish(self.begin(name), **facts)


def report(
    step: int, num_steps: int = 100, dev: Mapping[str, float] | None = None, **point: float
) -> dict[str, Any]:
    """A progress report of one step, as a trial makes it."""
    point = point or {"loss": 1 / step}
    curve = [{"step": step, "seconds": BEGAN + step / 1000} | point]
    return {"step": step, "num_steps": num_steps, "curve": curve, "dev": dev}
