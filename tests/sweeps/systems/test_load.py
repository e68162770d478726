"""A synthetic sweep on disk, and the rules a sweep folder must follow."""

import json
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rank_core.errors import BadInput
from rank_core.seeding import generator
from sweeps.store.lock import Driver
from sweeps.store.records import COSTS, Attempt, sealed
from sweeps.store.sweep_file import Cell, SweepFile, find_sweep, read_sweep_file, sweep_file
from sweeps.systems.load import keeps_chunk_scores, load_sweep

FIVE = [
    ("FirstP", 64, 64),
    ("MaxP", 64, 64),
    ("MaxP", 64, 48),
    ("MaxP", 128, 128),
    ("MaxP", 128, 64),
]
NAMES = [
    f"{group.lower()}-w{window}-s{stride}-{position:012x}"
    for position, (group, window, stride) in enumerate(FIVE)
]
"""The cells of `FIVE`."""
EIGHTEEN = [
    ("FirstP", 150, 150),
    *[
        ("MaxP", window, stride)
        for window in (50, 75, 100, 150, 200)
        for stride in (25, 50, 75, 100, 150, 200)
        if stride <= window
    ][:17],
]


def write_sweep(
    folder: Path,
    *,
    kinds: list[tuple[str, int, int]] = FIVE,
    seeds: tuple[int, ...] = (1, 2, 3),
    num_queries: int = 200,
    fates: Mapping[tuple[int, int], str] | None = None,  # {(cell position, seed): status}
    effect: float = 0.02,  # of each further cell over the baseline, in steps of a quarter
    seed_deviation: float = 0.004,
    log: bool = False,
    **changes: Any,
) -> Path:
    """A sweep whose scores look like nDCG@10: many zeros, few distinct values, hard queries."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = generator(7, "synthetic sweep")
    fates = fates or {}
    difficulty = rng.beta(1.2, 1.6, num_queries)
    cells, names = [], []
    shutil.rmtree(folder / "trials", ignore_errors=True)
    (folder / "trials").mkdir()
    for position, (group, window, stride) in enumerate(kinds):
        name = f"{group.lower()}-w{window}-s{stride}-{position:012x}"
        cells.append(_cell(name, group, window, stride))
        taste = rng.normal(0, 0.06, num_queries)
        for seed in seeds:
            status = fates.get((position, seed), "done")
            names.append(f"{name}-seed{seed}")
            costs = dict.fromkeys(COSTS, 0) | {
                "train_seconds": float(rng.uniform(300, 420)),
                "eval_seconds": float(rng.uniform(30, 50)),
                "peak_memory_bytes": int(rng.uniform(5e9, 6e9)),
                "encoder_tokens": int(rng.uniform(1e7, 2e7)),
            }
            lift = effect * position / 4 + rng.normal(0, seed_deviation)
            curve = _curve(names[-1], seed, status) if log else []
            rows = []
            if status in ("done", "collapsed"):
                rows = _scores(name, seed, difficulty + taste + lift, status == "collapsed", rng)
            _write_trial(folder / "trials" / names[-1], status, costs, curve, rows)
    described = _described(cells, seeds, num_queries)
    records = find_sweep(str(folder))
    sweep_file(**described | {"trials": tuple(names)} | changes).write(records)
    if "running" in fates.values():
        driver = Driver(socket.gethostname(), os.getpid(), "driver")
        records.write_file("driver.json", json.dumps(asdict(driver)).encode())
    return folder


def _write_trial(
    folder: Path,
    status: str,
    costs: dict[str, float],
    curve: list[dict[str, Any]],
    rows: list[tuple[str, int, str, str, str, float]],
) -> None:
    """The trial as its process and its driver leave it; a failed one after three attempts."""
    folder.mkdir()
    if rows:
        columns = ["cell", "seed", "split", "query_id", "measure", "value"]
        pd.DataFrame(rows, columns=columns).to_parquet(folder / "per_query.parquet", index=False)
        if curve:
            (folder / "history.jsonl").write_text("\n".join(map(json.dumps, curve)))
        facts = {"status": status, "best_step": 60, "versions": {}} | costs
        (folder / "result.json").write_text(json.dumps(facts))
        sealed(folder)
    elif curve:
        (folder / "progress.json").write_text(json.dumps(curve[-1] | {"time": 5}))
    number = 3 if status == "failed" else 1
    for attempt in range(1, number + 1):
        facts = {"kind": "device memory" if status == "failed" else "", "again": attempt < number}
        facts |= {"reason": REASONS.get(status, ""), "begun": attempt, "ended": attempt + 1}
        if status == "running":
            facts["ended"] = None
        ends = {"running": "", "planned": "interrupted"}.get(status, status)
        write_attempt(folder, attempt, status=ends, **facts)


def write_attempt(folder: Path, attempt: int, **facts: Any) -> None:
    """An attempt of a trial, of the driver that `write_sweep` leaves."""
    made = Attempt(attempt=attempt, sweep="", command="driver", **facts)
    (folder / f"attempt-{attempt}.json").write_text(json.dumps(asdict(made)))


def read_values(folder: Path) -> pd.DataFrame:
    """The per-query values of all trials."""
    files = sorted((folder / "trials").glob("*/per_query.parquet"))
    return pd.concat([pd.read_parquet(file) for file in files], ignore_index=True)


def write_values(folder: Path, table: pd.DataFrame) -> None:
    """Other values of the trials; those without any are removed."""
    values = dict(list(table.groupby(["cell", "seed"])))
    for file in sorted((folder / "trials").glob("*/per_query.parquet")):
        cell, _, seed = file.parent.name.rpartition("-seed")
        if (cell, int(seed)) not in values:
            shutil.rmtree(file.parent)
            continue
        values[cell, int(seed)].to_parquet(file, index=False)
        sealed(file.parent)


def redescribe(folder: Path, **facts: Any) -> None:
    """Other facts of a sweep, described as by a command."""
    replace(read_sweep_file(folder), **facts).write(find_sweep(str(folder)))


def _cell(name: str, group: str, window: int, stride: int) -> Cell:
    settings = {"chunking.window": window, "chunking.stride": stride, "model.name": group.lower()}
    label = group if group == "FirstP" else f"{group} {window}/{stride}"
    tokens = (window if group == "FirstP" else 512 * window / stride) + 12.3
    return Cell(name, label, group, settings, coverage=0.98, encoder_tokens_per_document=tokens)


def _described(cells: list[Cell], seeds: tuple[int, ...], num_queries: int) -> dict[str, Any]:
    queries = {"train": 1000, "dev": 100, "test": num_queries}
    return {
        "sweep": "window_stride",
        "question": "Which window and stride should a MaxP reranker read long documents with?",
        "split": "test",
        "measures": ("nDCG@10", "RR@10"),
        "primary": "nDCG@10",
        "baseline": cells[0].cell,
        "correction": "holm",
        "swept": ("chunking.window", "chunking.stride", "model.name"),
        "seeds": tuple(seeds),
        "collection": {"name": "python-docs", "content_hash": "0a1b2c3d4e5f", "num_documents": 3000}
        | {"num_queries": queries},
        "backbone": {"name": "tiny", "content_hash": "f5e4d3c2b1a0"},
        "cells": tuple(cells),
        "first_stage": {"nDCG@10": 0.31, "RR@10": 0.35},
        "versions": {"ranksweep": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
        "command": "python -m sweeps run window_stride --collection python-docs --seeds 1,2,3",
    }


REASONS = {
    "failed": "CUDA out of memory after 3 attempts",
    "diverged": "loss is NaN at step 120",
    "stopped": "by ASHA at step 20 of 60",
}


def _scores(
    name: str, seed: int, skill: np.ndarray, collapsed: bool, rng: np.random.Generator
) -> list[tuple[str, int, str, str, str, float]]:
    """Scores of one trial: discounted gains of a geometric rank, zero beyond rank 10."""
    noisy = np.clip(skill + rng.normal(0, 0.05, len(skill)), 0.0, 1.0)
    if collapsed:
        noisy = noisy * 0.1
    rank = np.floor(12 * (1 - noisy)) + 1
    found = rank <= 10
    rows = []
    for measure, value in (
        ("nDCG@10", np.where(found, 1 / np.log2(rank + 1), 0.0)),
        ("RR@10", np.where(found, 1 / rank, 0.0)),
    ):
        for split in ("dev", "test"):
            rows += [
                (name, seed, split, f"q{number}", measure, float(one))
                for number, one in enumerate(value)
            ]
    return rows


def _curve(trial: str, seed: int, status: str) -> list[dict[str, Any]]:
    """The reports of a trial: 60 steps of a falling loss, the dev measure every 20."""
    rng = generator(seed, trial.rpartition("-seed")[0])
    reports = []
    for step in range(1, 61):
        if status == "diverged" and step > 35:
            break
        loss = 1.0 if status == "collapsed" else 0.25 + 0.75 * float(np.exp(-step / 15))
        loss *= float(rng.uniform(0.8, 1.2))
        dev = None
        if step % 20 == 0:
            top = 0.05 if status == "collapsed" else 0.4 - 0.2 * float(np.exp(-step / 20))
            dev = {"nDCG@10": top + float(rng.normal(0, 0.004))}
        point = {"step": step, "loss": loss}
        reports.append({"step": step, "num_steps": 60, "curve": [point], "dev": dev})
    if status in ("done", "collapsed"):
        return reports
    whole = [point for report in reports for point in report["curve"]]
    return [reports[-1] | {"curve": whole}]


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"measures": ("nDCG@10", "AP")}, "AP on test"), ({"split": "dl19"}, "on dl19")],
)
def test_values_that_the_sweep_lacks_are_named(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadInput, match=named):
        load_sweep(write_sweep(tmp_path, num_queries=5, **changes))


def test_only_scores_of_used_trials_on_the_reported_split_are_kept(tmp_path: Path) -> None:
    fates = {(1, 2): "failed", (2, 1): "collapsed", (3, 1): "planned"}
    sweep = load_sweep(write_sweep(tmp_path, num_queries=5, fates=fates))
    assert set(sweep.scores["split"]) == {"test"}
    assert len(sweep.scores) == (5 * 3 - 2) * 5 * 2
    assert len(sweep.trials) == 15 and len(sweep.failures) == 3
    lost = sweep.trials[sweep.trials["status"] == "failed"].iloc[0]
    assert (lost["attempts"], lost["stop_reason"]) == (3, REASONS["failed"])


@pytest.mark.parametrize(
    ("change", "aggregates"),
    [
        ({}, True),
        ({"model.name": "sump"}, True),
        ({"model.name": "firstp"}, False),
        ({"model.name": "parade"}, False),
        ({"evaluation.keep_chunk_scores": False}, False),
        ({"training.num_epochs": 1}, False),
        ({"evaluation.folds": 3}, False),
    ],
)
@pytest.mark.parametrize("name", ["serving", "mine"])
def test_what_is_aggregated_is_decided_by_the_data_and_not_by_a_name(name, change, aggregates):
    config = {
        "model.name": "maxp",
        "evaluation.keep_chunk_scores": True,
        "training.num_epochs": 0,
        "evaluation.folds": 0,
    }
    cells = (Cell("a", config=config), Cell("b", config=config | change))
    file = SweepFile(name, "?", "test", ("P@5",), "P@5", "a", cells, deterministic=("a", "b"))
    assert keeps_chunk_scores(file) == aggregates
    assert not keeps_chunk_scores(replace(file, deterministic=("a",))), "several runs of a cell"
