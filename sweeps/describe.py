"""The plan as a person reads it, and as `sweep.json` keeps it for the report."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from rank_core.cross_validation import parts_of
from rank_core.data import Collection, Qrels
from rank_core.data.trec import write_qrels
from rank_core.models import model_class
from rank_core.scorer import evaluated_queries, first_stage_means
from sweeps.monitor import duration
from sweeps.plan import Plan
from sweeps.tracking.redact import redact_text

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
    lines = [
        plan.experiment.question,
        "",
        f"collection  {collection.name} ({collection.content_hash}): "
        f"{len(collection.documents):,} documents, queries "
        + ", ".join(f"{name} {count:,}" for name, count in queries.items())
        + f"; evaluated: dev {evaluated['dev']:,}, test {evaluated['test']:,}{folds}",
        f"backbone    {plan.inputs.backbone.name} ({plan.inputs.backbone.content_hash}), inputs of "
        f"up to {plan.inputs.backbone.max_input_tokens} tokens",
        f"trials      {len(plan.cells)} cells x {len(plan.seeds)} seeds = {number}"
        + (f" ({once} that every seed would repeat run once)" if once else "")
        + (f", of which {finished} are done already" if finished else ""),
        "",
        f"{'cell':<{width}}{'chunks':>8}{'(max)':>7}{'tokens/doc':>12}{'seen':>8}{'cost':>8}",
    ]
    for cell in plan.cells:
        chunks = cell.chunks
        lines.append(
            f"{cell.label:<{width}}{chunks.chunks_per_document:>8.1f}{chunks.max_chunks:>7}"
            f"{chunks.tokens_per_document:>12,.0f}{chunks.coverage:>8.0%}"
            f"{cell.cost / (plan.cells[0].cost or 1):>7.1f}x"
            + ("  (baseline)" if cell is plan.cells[0] else "")
        )
    lines += [f"left out    {item.label}: {item.reason}" for item in plan.removed]
    return "\n".join(lines)


def estimate_text(missing_cost: float, speed: float, slots: int) -> str:
    """The time a plan will take at a measured speed."""
    seconds = missing_cost / speed / slots
    return (
        f"estimate    {missing_cost / 1e6:,.1f} M encoder tokens (a training token counts 3) at "
        f"{speed:,.0f} tokens/s on {slots} slot(s) of this machine: about {duration(seconds)}"
    )


def manifest(plan: Plan, argv: list[str]) -> dict[str, Any]:
    """What the report needs to know of the sweep beside its tables."""
    collection, backbone, base = plan.inputs.collection, plan.inputs.backbone, plan.base
    swept = plan.experiment.swept
    cells = []
    for cell in plan.cells:
        settings = cell.config.settings()
        cells.append(
            {
                "cell": cell.cell,
                "label": cell.label,
                "group": model_class(cell.config.model.name).label,
                "settings": {name: settings[name] for name in ("model.name", *swept)},
                "coverage": cell.chunks.coverage,
                "encoder_tokens_per_document": cell.chunks.tokens_per_document,
            }
        )
    return {
        "schema_version": 1,
        "sweep": plan.experiment.name,
        "question": plan.experiment.question,
        "split": "test",
        "measures": list(base.evaluation.measures),
        "primary": base.evaluation.measures[0],
        "baseline": plan.cells[0].cell,
        "baselines": own_baselines(plan),
        "deterministic": [cell.cell for cell in plan.cells if cell.deterministic],
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
        "cells": cells,
        "first_stage": first_stage_means(_parts(plan), "test", base.evaluation),
        "command": redact_text(shlex.join(["python", f"sweeps/{plan.experiment.script}", *argv])),
        "profile": plan.experiment.profile,
        "confirms": plan.experiment.confirms,
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


def write_json(path: Path, content: dict[str, Any]) -> None:
    """`content` at `path`, whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(json.dumps(content, indent=1))
    os.replace(unfinished, path)


def say(text: str) -> None:
    """A paragraph on standard output, at once."""
    print(text, file=sys.stdout, flush=True)
