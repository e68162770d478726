"""A small finished sweep with the runs of its trials, their first stage and judgments."""

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rank_core.data.trec import write_qrels, write_run
from rank_core.evaluate import per_query
from rank_core.ranking.rerank import ordered
from rank_core.records import Qrels, Run
from rank_core.seeding import generator
from sweeps.store.records import COSTS, Records
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import Cell, find_sweep, sweep_file

MEASURES = ("nDCG@10", "RR@10")
CELLS = (("firstp-w40-s40-0", "FirstP 40", "firstp"), ("maxp-w40-s20-1", "MaxP 40/20", "maxp"))
SEEDS = (1, 2, 3)


def write_ranked_sweep(
    folder: Path,
    *,
    cells: tuple[tuple[str, str, str], ...] = CELLS,
    num_queries: int = 30,
    first_stage: bool = True,
    folds: int = 0,
    strengths: tuple[float, ...] = (0.4, 0.9, 1.4, 1.9),
    **changes: Any,
) -> Path:
    """The first cell ranks by weak evidence, each further one by better; the first stage's evidence
    is another one. With `folds`, the queries of dev are those of test and each is of a fold."""
    rng = generator(5, "ranked sweep")
    doc_ids = [f"d{i}" for i in range(12)]
    qrels: dict[str, Qrels] = {}
    candidates: dict[str, Run] = {}
    for split in ("dev", "test"):
        names = [f"{'pool' if folds else split}-{i}" for i in range(num_queries)]
        qrels[split] = {q: {str(d): 1 for d in rng.choice(doc_ids, 2)} for q in names}
        if folds and split == "test":
            qrels["test"] = qrels["dev"]
        candidates[split] = _evidence(rng, qrels[split], doc_ids, 1.0)
    for name in ("qrels", "first_stage", "trials"):
        (folder / name).mkdir(parents=True)
    records = find_sweep(str(folder))
    for split in qrels:
        write_qrels(folder / "qrels" / f"{split}.qrels", qrels[split])
        if first_stage:
            write_run(folder / "first_stage" / f"{split}.run.gz", candidates[split], "bm25")
    if not first_stage:
        (folder / "first_stage").rmdir()
    for position, (cell, _, _) in enumerate(cells):
        for seed in SEEDS:
            runs = {
                split: _evidence(rng, qrels[split], doc_ids, strengths[position]) for split in qrels
            }
            work = folder / "work" / f"{cell}-seed{seed}"
            _write_trial(work, cell, seed, runs, qrels, folds)
            records.publish(work.name, work)
    shutil.rmtree(folder / "work")
    described = {
        "sweep": "window_stride",
        "question": "Which?",
        "split": "test",
        "measures": MEASURES,
        "primary": MEASURES[0],
        "baseline": cells[0][0],
        "seeds": SEEDS,
        "trials": tuple(f"{cell}-seed{seed}" for cell, _, _ in cells for seed in SEEDS),
        "cells": tuple(
            Cell(cell, label, label.split()[0], {"model.name": model})
            for cell, label, model in cells
        ),
        "collection": {"name": "woods", "first_stage": "BM25"},
        "command": "python sweeps/window_stride.py",
    }
    sweep_file(**described | changes).write(records)
    return folder


def as_remote(folder: Path) -> Records:
    """A sweep whose folder has its trials, in memory as a sweep of a storage."""
    remote = Records(Storage(f"memory://{uuid.uuid4().hex}"), "window_stride/woods")
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        remote.storage.write(name if name.startswith("trials/") else remote.path(name), path)
    return remote


def _evidence(rng: np.random.Generator, qrels: Qrels, doc_ids: list[str], strength: float) -> Run:
    return {
        q: ordered({d: float(rng.normal() + strength * (d in grades)) for d in doc_ids})
        for q, grades in qrels.items()
    }


def _write_trial(
    folder: Path, cell: str, seed: int, runs: dict[str, Run], qrels: dict[str, Qrels], folds: int
) -> None:
    folder.mkdir(parents=True)
    tables = []
    for split, run in runs.items():
        write_run(folder / f"{split}.run.gz", run, tag=cell)
        tables.append(per_query(qrels[split], run, MEASURES).assign(split=split))
    table = pd.concat(tables, ignore_index=True).assign(cell=cell, seed=seed)
    table = table[["cell", "seed", "split", "query_id", "measure", "value"]]
    table.to_parquet(folder / "per_query.parquet", index=False)
    if folds:
        number = table["query_id"].str.rpartition("-")[2].astype(int)
        of_dev = (table["split"] == "dev").astype(int)
        fold = (number + of_dev) % folds + 1  # dev is the next fold
        table.assign(fold=fold, best_step=1).to_parquet(folder / "folds.parquet", index=False)
    (folder / "config.json").write_text(json.dumps({"model.name": cell.partition("-")[0]}))
    facts = {"cell": cell, "seed": seed, "status": "done", "versions": {}} | dict.fromkeys(COSTS, 1)
    facts |= {"train_seconds": 1.0, "eval_seconds": 2.0}
    (folder / "result.json").write_text(json.dumps(facts))
