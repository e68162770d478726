"""A synthetic sweep on disk, and the rules a sweep folder must follow."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rank_core.errors import BadInput
from rank_core.seeding import generator
from sweeps.report.load import load_sweep
from sweeps.store.checksums import COSTS, seal
from sweeps.store.scores import write_dataset
from tests.sweeps.made_log import MadeLog

FIVE = [
    ("FirstP", 64, 64),
    ("MaxP", 64, 64),
    ("MaxP", 64, 48),
    ("MaxP", 128, 128),
    ("MaxP", 128, 64),
]
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
    optional: bool = True,
    log: bool = False,
    **changes: Any,
) -> Path:
    """A sweep whose scores look like nDCG@10: many zeros, few distinct values, hard queries."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = generator(7, "synthetic sweep")
    fates = fates or {}
    difficulty = rng.beta(1.2, 1.6, num_queries)
    cells, trials, rows = [], [], []
    made = MadeLog(folder) if log else None
    for position, (group, window, stride) in enumerate(kinds):
        name = f"{group.lower()}-w{window}-s{stride}-{position:012x}"
        cells.append(_cell(name, group, window, stride, optional=optional))
        taste = rng.normal(0, 0.06, num_queries)
        for seed in seeds:
            status = fates.get((position, seed), "done")
            trials.append(_trial(name, window, stride, seed, status, rng))
            lift = effect * position / 4 + rng.normal(0, seed_deviation)
            if log and status != "planned":
                _write_curve(made, f"{name}-seed{seed}", seed, status)
            if status in ("done", "collapsed"):
                rows += _scores(name, seed, difficulty + taste + lift, status == "collapsed", rng)
    described = _described(cells, seeds, num_queries, optional=optional) | changes
    (folder / "sweep.json").write_text(json.dumps(described))
    pd.DataFrame(trials).to_parquet(folder / "trials.parquet")
    columns = ["cell", "seed", "split", "query_id", "measure", "value"]
    pd.DataFrame(rows, columns=columns).to_parquet(folder / "per_query.parquet")
    return folder


def _cell(name: str, group: str, window: int, stride: int, *, optional: bool) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell": name,
        "label": group if group == "FirstP" else f"{group} {window}/{stride}",
        "group": group,
        "settings": {
            "chunking.window": window,
            "chunking.stride": stride,
            "model.name": group.lower(),
        },
    }
    if optional:
        tokens = window if group == "FirstP" else 512 * window / stride
        cell |= {"coverage": 0.98, "encoder_tokens_per_document": tokens + 12.3}
    return cell


def _described(
    cells: list[dict[str, Any]], seeds: tuple[int, ...], num_queries: int, *, optional: bool
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "sweep": "window_stride",
        "question": "Which window and stride should a MaxP reranker read long documents with?",
        "split": "test",
        "measures": ["nDCG@10", "RR@10"],
        "primary": "nDCG@10",
        "baseline": cells[0]["cell"],
        "alpha": 0.05,
        "correction": "holm",
        "paired_seeds": False,
        "swept": ["chunking.window", "chunking.stride", "model.name"],
        "seeds": list(seeds),
        "collection": {
            "name": "python-docs",
            "content_hash": "0a1b2c3d4e5f",
            "num_documents": 3000,
            "num_queries": {"train": 1000, "dev": 100, "test": num_queries},
        },
        "backbone": {"name": "tiny", "content_hash": "f5e4d3c2b1a0"},
        "cells": cells,
    }
    if optional:
        described |= {
            "first_stage": {"nDCG@10": 0.31, "RR@10": 0.35},
            "versions": {"ranksweep": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
            "command": "python -m sweeps run window_stride --collection python-docs --seeds 1,2,3",
        }
    return described


def _trial(
    name: str, window: int, stride: int, seed: int, status: str, rng: np.random.Generator
) -> dict[str, Any]:
    reasons = {
        "failed": "CUDA out of memory after 3 attempts",
        "diverged": "loss is NaN at step 120",
        "collapsed": "dev nDCG@10 below the first stage",
    }
    return {
        "cell": name,
        "seed": seed,
        "status": status,
        "stop_reason": reasons.get(status),
        "attempts": 3 if status == "failed" else 1,
        "chunking.window": window,
        "chunking.stride": stride,
        "train_seconds": float(rng.uniform(300, 420)),
        "eval_seconds": float(rng.uniform(30, 50)),
        "peak_memory_bytes": int(rng.uniform(5e9, 6e9)),
        "encoder_tokens": int(rng.uniform(1e7, 2e7)),
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


def _write_curve(log: MadeLog, trial: str, seed: int, status: str) -> None:
    """One trial of the log: 60 steps of a falling loss, the dev measure every 20."""
    rng = generator(seed, trial.rpartition("-seed")[0])
    log.start(trial)
    for step in range(1, 61):
        if status == "diverged" and step > 35:
            break
        loss = 1.0 if status == "collapsed" else 0.25 + 0.75 * float(np.exp(-step / 15))
        loss *= float(rng.uniform(0.8, 1.2))
        dev = None
        if step % 20 == 0:
            top = 0.05 if status == "collapsed" else 0.4 - 0.2 * float(np.exp(-step / 20))
            dev = {"nDCG@10": top + float(rng.normal(0, 0.004))}
        log.report(trial, step, dev, loss=loss)
    if status in ("done", "collapsed"):
        log.end(trial, status, best_step=60)


def test_a_folder_without_a_sweep_is_refused_with_the_missing_files(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"which holds sweep\.json; found none in "):
        load_sweep(tmp_path)


def test_broken_json_is_refused_with_file_and_line(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, num_queries=5)
    (folder / "sweep.json").write_text('{\n"sweep": oops}')
    with pytest.raises(BadInput, match=r"sweep\.json:2: not valid JSON"):
        load_sweep(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": ""}, "missing: question"),
        ({"primary": "AP"}, r"primary must be one of measures \(nDCG@10, RR@10\), got 'AP'"),
        ({"alpha": 5}, "0 < alpha < 1 must hold, got alpha=5"),
        ({"baseline": "bm25"}, "baseline must be one of cells, got 'bm25'; known: firstp-w64"),
        ({"measures": ["nDCG@10", "AP"]}, "must have AP on test; firstp-w64-.* seed 1 has none"),
        ({"split": "dl19"}, "must hold the split 'dl19'; found: dev, test"),
    ],
)
def test_a_rule_broken_by_the_sweep_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = write_sweep(tmp_path, num_queries=5, **changes)
    with pytest.raises(BadInput, match=message):
        load_sweep(folder)


def test_an_unknown_status_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, num_queries=5, fates={(1, 2): "lost"})
    with pytest.raises(BadInput, match="unknown status 'lost'; known: done, collapsed, failed"):
        load_sweep(folder)


def test_a_trial_in_two_rows_is_refused(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, num_queries=5)
    trials = pd.read_parquet(folder / "trials.parquet")
    pd.concat([trials, trials.tail(1)]).to_parquet(folder / "trials.parquet")
    with pytest.raises(BadInput, match=r"must have one row; maxp-w128-s64-.* seed 3 has more"):
        load_sweep(folder)


def test_optional_keys_may_be_missing(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep(tmp_path, num_queries=5, optional=False))
    assert sweep.cells[0].coverage is None
    assert sweep.first_stage == {} and sweep.versions == {} and sweep.command == ""


def test_only_scores_of_used_trials_on_the_reported_split_are_kept(tmp_path: Path) -> None:
    fates = {(1, 2): "failed", (2, 1): "collapsed"}
    sweep = load_sweep(write_sweep(tmp_path, num_queries=5, fates=fates))
    assert set(sweep.scores["split"]) == {"test"}
    assert len(sweep.scores) == (5 * 3 - 1) * 5 * 2


def as_dataset(folder: Path) -> Path:
    """The sweep with its per-query values as a folder with a file per trial, as sweeps have them;
    its own folder has them as version 0.1 had."""
    table = pd.read_parquet(folder / "per_query.parquet")
    names = []
    for (cell, seed), rows in table.groupby(["cell", "seed"], sort=False):
        names.append(f"{cell}-seed{seed}")
        trial = folder / "runs" / names[-1]
        trial.mkdir(parents=True)
        rows.to_parquet(trial / "per_query.parquet", index=False)
        costs = dict.fromkeys(COSTS, 1)
        (trial / "result.json").write_text(json.dumps({"status": "done", **costs}))
        seal(trial)
    write_dataset(folder, sorted(names))
    return folder
