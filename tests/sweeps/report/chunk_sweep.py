"""A finished sweep whose trials kept planted chunk scores; no model is trained."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rank_core.chunking.chunks import document_spans
from rank_core.data.trec import write_qrels, write_run
from rank_core.evaluate import per_query
from rank_core.models.kept_files import CHUNK_SCORES
from rank_core.ranking.chunk_scores import derived_run, read_chunks
from rank_core.ranking.rerank import ordered
from rank_core.records import Qrels, Run
from rank_core.seeding import generator
from rank_core.settings.config import TrialConfig
from sweeps.store.records import COSTS
from sweeps.store.sweep_file import Cell, find_sweep, sweep_file

MEASURES = ("nDCG@10", "RR@10")
SPLITS = ("dev", "test")
LENGTHS = {f"d{number}": 40 + 30 * number for number in range(10)}
"""{document: its tokens}, 40 to 310."""


def write_chunk_sweep(
    folder: Path,
    *,
    kinds: Sequence[tuple[str, int, int]],
    seeds: Sequence[int] = (1,),
    num_queries: int = 20,
    trained: bool = True,
    **changes: Any,
) -> Path:
    """`kinds` are (model, window, stride), the first one the baseline. A query's relevant document
    has high scores in the chunks around one place; the first stage sees other evidence. Where the
    model is not `trained`, the description says so of each cell."""
    rng = generator(6, "chunk sweep")
    qrels: dict[str, Qrels] = {
        split: {
            f"{split}-{q}": {str(d): 1 for d in rng.choice([*LENGTHS], 2)} for q in range(count)
        }
        for split, count in zip(SPLITS, (num_queries, num_queries), strict=True)
    }
    place = {q: float(rng.uniform()) for judged in qrels.values() for q in judged}
    for name in ("qrels", "first_stage", "trials"):
        (folder / name).mkdir(parents=True)
    for split, judged in qrels.items():
        write_qrels(folder / "qrels" / f"{split}.qrels", judged)
        run: Run = {
            q: ordered({d: float(np.round(rng.normal() + (d in judged[q]), 4)) for d in LENGTHS})
            for q in judged
        }
        write_run(folder / "first_stage" / f"{split}.run.gz", run, "bm25")
    records, cells, names = find_sweep(str(folder)), [], []
    for number, (model, window, stride) in enumerate(kinds):
        swept = {"model.name": model, "chunking.window": window, "chunking.stride": stride}
        config = TrialConfig().override(
            {**swept, "chunking.max_document_tokens": 320, "evaluation.keep_chunk_scores": True}
        )
        cell = f"{model}-w{window}-s{stride}-{number}"
        shown = {"firstp": "FirstP", "maxp": "MaxP"}[model]
        label = f"{shown} {window}" if model == "firstp" else f"{shown} {window}/{stride}"
        as_it_is = {"training.num_epochs": 0, "evaluation.folds": 0}
        told = {} if trained else config.override(as_it_is).settings()
        cells.append(Cell(cell, label, shown, swept, config=told))
        for seed in seeds:
            names.append(f"{cell}-seed{seed}")
            work = folder / "work" / names[-1]
            _write_trial(work, cell, config.override({"seed": seed}), qrels, place, rng)
            records.publish(work.name, work)
    shutil.rmtree(folder / "work")
    described: dict[str, Any] = {
        "sweep": "window_stride",
        "question": "Which?",
        "split": "test",
        "measures": MEASURES,
        "primary": MEASURES[0],
        "baseline": cells[0].cell,
        "seeds": tuple(seeds),
        "trials": tuple(names),
        "cells": tuple(cells),
        "deterministic": () if trained else tuple(cell.cell for cell in cells),
        "collection": {"name": "woods", "content_hash": 16 * "a", "first_stage": "BM25"},
        "backbone": {"name": "tiny", "content_hash": 16 * "b", "tokenizer_hash": 16 * "c"},
    }
    sweep_file(**described | changes).write(records)
    return folder


def _write_trial(
    work: Path,
    cell: str,
    config: TrialConfig,
    qrels: Mapping[str, Qrels],
    place: Mapping[str, float],
    rng: np.random.Generator,
) -> None:
    work.mkdir(parents=True)
    rows = []
    for split, judged in qrels.items():
        for query, grades in judged.items():
            for doc_id, tokens in LENGTHS.items():
                spans = document_spans(doc_id, tokens, config.chunking)
                for chunk, (start, end) in enumerate(spans[: 1 if _first(config) else None]):
                    found = doc_id in grades and start <= place[query] * tokens < end
                    score = np.round(rng.normal() - 1 + 3 * found, 4)
                    rows.append((split, query, doc_id, chunk, start, end, tokens, score))
    columns = "split query_id doc_id chunk start end document_tokens score".split()
    table = pd.DataFrame(rows, columns=columns)
    coded = dict.fromkeys(["split", "query_id", "doc_id"], "category")
    table.astype({**coded, "score": "float32"}).to_parquet(work / CHUNK_SCORES, index=False)
    tables = []
    for split, judged in qrels.items():
        run = derived_run(read_chunks(work, split), config)
        write_run(work / f"{split}.run.gz", run, tag=cell)
        tables.append(per_query(judged, run, MEASURES).assign(split=split))
    values = pd.concat(tables, ignore_index=True).assign(cell=cell, seed=config.seed)
    values = values[["cell", "seed", "split", "query_id", "measure", "value"]]
    values.to_parquet(work / "per_query.parquet", index=False)
    (work / "config.json").write_text(json.dumps(config.settings()))
    tokens_read = sum(end - start + 10 for _, _, _, _, start, end, _, _ in rows)
    facts = {"cell": cell, "seed": config.seed, "status": "done", "versions": {}}
    facts |= dict.fromkeys(COSTS, 1) | {"encoder_tokens": tokens_read, "eval_seconds": 2.0}
    (work / "result.json").write_text(json.dumps(facts))


def _first(config: TrialConfig) -> bool:
    return config.model.name == "firstp"
