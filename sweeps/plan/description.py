"""The description of a plan in `sweep.json`, and the judgments of its collection."""

import os
import shlex
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from subprocess import SubprocessError
from tempfile import TemporaryDirectory
from typing import Any

from rank_core.children import run
from rank_core.chunking.inputs import contents_of
from rank_core.data.trec import write_qrels, write_run
from rank_core.encoders.backbones import tokenizer_hash
from rank_core.files import file_sha256
from rank_core.models import model_class
from rank_core.models.reading import ignored_settings
from rank_core.ranking.scorer import evaluated_queries, first_stage_means
from rank_core.records import Collection, Qrels, Run, evaluated_splits
from rank_core.retrieval.positions import evidence_positions
from rank_core.settings.config import NUMERICS_VERSION
from rank_core.trial.cross_validation import parts_of
from sweeps.plan.head_line import unused_head
from sweeps.plan.next_command import Asked
from sweeps.plan.plan import Plan
from sweeps.store.queries import QUERIES, QueryFacts, text_key
from sweeps.store.records import Records
from sweeps.store.sweep_file import FIRST_STAGE, Cell, SweepFile
from sweeps.store.test_options import USUAL, TestOptions
from sweeps.terminal.command_line import typed_command

SPLIT = "test"
"""The split that sweeps report."""


def description_of(
    plan: Plan, argv: list[str], asked: Asked | None = None, tests: TestOptions = USUAL
) -> SweepFile:
    """The description of a sweep for its report, which it `tests` so; `asked` are the flags and
    settings of `argv`."""
    collection, backbone, base = plan.inputs.collection, plan.inputs.backbone, plan.base
    swept, confirms = plan.experiment.swept, plan.experiment.confirms or {}
    queries = sum(len(part.splits["test"].queries) for part in _parts(plan))
    num_evaluated = len(evaluated_qrels(plan, "test"))
    reference, kind = plan.experiment.reference, plan.experiment.kind or plan.experiment.name
    typed = typed_command(plan.experiment.file or kind, argv)
    asked = asked or Asked()
    return SweepFile(
        sweep=plan.experiment.name,
        question=plan.experiment.question,
        split=SPLIT,
        measures=tuple(base.evaluation.measures),
        primary=base.evaluation.measures[0],
        baseline=plan.cells[0].cell,
        tests=replace(tests, paired_seeds=base.training.paired_seeds),
        swept=tuple(swept),
        seeds=tuple(plan.seeds),
        trials=tuple(trial.name for trial in plan.trials()),
        collection={
            "name": plan.experiment.test_set or collection.name,
            "content_hash": collection.content_hash,
            "num_documents": len(collection.documents),
            "num_queries": {name: len(split.queries) for name, split in collection.splits.items()},
            **({"sampled_from": queries} if num_evaluated < queries else {}),
            **({"first_stage": collection.first_stage} if collection.first_stage else {}),
        },
        backbone={
            "name": backbone.name,
            "content_hash": backbone.content_hash,
            "tokenizer_hash": tokenizer_hash(backbone),
            **({"head": head} if (head := unused_head(plan)) else {}),
        },
        first_stage=first_stage_means(_parts(plan), "test", base.evaluation),
        first_stage_dev=first_stage_means(_parts(plan), "dev", base.evaluation)
        if "dev" in evaluated(plan)
        else {},
        kind=kind,
        command=shlex.join(typed),
        start=tuple(typed[: len(typed) - len(argv)]),
        flags=asked.flags,
        settings=asked.settings,
        smoke_test=bool(plan.reduced),
        fixed=fixed_settings(plan),
        directory=os.getcwd(),
        profile=plan.experiment.profile or "",
        confirms=confirms,
        published=tuple(map(asdict, reference.published)) if reference else (),
        tags=source_tags(plan.experiment.source),
        objectives=plan.search.objectives,
        at_most=plan.search.at_most,
        cost_weights=plan.search.cost_weights,
        excluded=tuple(f"{item.label}: {item.reason}" for item in plan.removed),
        **described_cells(plan),
    )


def described_cells(plan: Plan) -> dict[str, Any]:
    """The fields of the description that change when a search proposes cells."""
    swept = ("model.name", *plan.experiment.swept)
    cells = []
    for cell in plan.cells:
        settings, ignored = cell.config.settings(), ignored_settings(cell.config)
        without = (*ignored, "seed")
        effective = {name: value for name, value in settings.items() if name not in without}
        cells.append(
            Cell(
                cell=cell.cell,
                label=cell.label,
                group=model_class(cell.config.model.name).label,
                settings={name: settings[name] for name in swept},
                ignored=tuple(name for name in swept if name in ignored),
                not_interpolated=model_class(cell.config.model.name).not_interpolated,
                retrieves=model_class(cell.config.model.name).retrieves,
                coverage=cell.chunks.coverage,
                encoder_tokens_per_document=cell.chunks.tokens_per_document,
                config=effective,
            )
        )
    return {
        "baselines": own_baselines(plan),
        "deterministic": tuple(cell.cell for cell in plan.cells if cell.deterministic),
        "cells": tuple(cells),
    }


def fixed_settings(plan: Plan) -> dict[str, Any]:
    """{setting: value, or hash of the contents that it names} of what is not swept and has an
    effect on some cell: the meaning of the sweep beside its cells."""
    base, swept = plan.base, plan.experiment.swept
    read = {name for cell in described_cells(plan)["cells"] for name in cell.config}
    values = base.meaning() | {
        **contents_of(base),
        "collection": plan.inputs.collection.content_hash,
        "model.backbone": plan.inputs.backbone.content_hash,
    }
    fixed = {name: value for name, value in values.items() if name in read and name not in swept}
    return fixed | {"numerics": NUMERICS_VERSION}


def own_baselines(plan: Plan) -> dict[str, str]:
    """{cell: FirstP of the same backbone and collection}; empty where all have the same."""
    inputs = {
        cell.cell: (cell.config.model.backbone, cell.config.collection) for cell in plan.cells
    }
    firstp = [cell.cell for cell in plan.cells if cell.config.model.name == "firstp"]
    first = {inputs[cell]: cell for cell in reversed(firstp)}  # the plan's first of each
    own = {cell: first[of] for cell, of in inputs.items() if first.get(of, cell) != cell}
    return own if len(first) > 1 else {}


def write_description(
    records: Records, plan: Plan, description: SweepFile, facts: QueryFacts | None = None
) -> None:
    """For the evaluated queries `qrels/<split>.qrels` and `first_stage/<split>.run.gz` with the
    reranked candidates, the `facts` of the reported ones, then `sweep.json` with their hashes."""
    hashes = {}
    with TemporaryDirectory() as folder:
        if facts:
            known, name = Path(folder, "queries"), f"{QUERIES}/{description.split}.jsonl"
            known.write_text(facts.lines(), encoding="utf-8")
            hashes[name] = file_sha256(known)
            records.storage.write(records.path(name), known)
        for split in evaluated(plan):
            qrels, run = Path(folder, f"{split}.qrels"), Path(folder, f"{split}.run.gz")
            write_qrels(qrels, evaluated_qrels(plan, split))
            write_run(run, _candidates(plan, split), FIRST_STAGE)
            for name, path in ((f"qrels/{qrels.name}", qrels), (f"{FIRST_STAGE}/{run.name}", run)):
                hashes[name] = file_sha256(path)
                records.storage.write(records.path(name), path)
    replace(description, files=hashes).write(records)


def evaluated(plan: Plan) -> tuple[str, ...]:
    """The splits that the plan's trials rank."""
    return evaluated_splits(_parts(plan)[0])


def evaluated_qrels(plan: Plan, split: str) -> Qrels:
    """The judgments of a split's evaluated queries; with folds, of those of every fold."""
    return {
        query_id: part.splits[split].qrels[query_id]
        for part in _parts(plan)
        for query_id in evaluated_queries(part, split, plan.base.evaluation)
    }


def query_facts(plan: Plan, split: str) -> QueryFacts:
    """The hashes of the texts of a split's evaluated queries, their groups, and where their
    relevant text begins."""
    texts, groups = dict[str, str](), dict[str, str]()
    for part in _parts(plan):
        own = part.splits[split]
        for query_id in evaluated_queries(part, split, plan.base.evaluation):
            texts[query_id] = text_key(own.queries[query_id])
            if query_id in own.groups:
                groups[query_id] = own.groups[query_id]
    places = evidence_positions(plan.base.collection, plan.inputs, texts)
    return QueryFacts(texts, groups, position={name: str(at) for name, at in places.items()})


def _candidates(plan: Plan, split: str) -> Run:
    """The first stage's scores of the documents that any cell reranks."""
    depth = max(cell.config.evaluation.depth for cell in plan.cells)
    return {
        query_id: dict(list(part.splits[split].candidates.get(query_id, {}).items())[:depth])
        for part in _parts(plan)
        for query_id in evaluated_queries(part, split, plan.base.evaluation)
    }


def _parts(plan: Plan) -> list[Collection]:
    """The collection, or its folds."""
    return [part.collection for part in parts_of(plan.base, plan.inputs)]


def source_tags(file: str) -> dict[str, str]:
    """Commit and cleanliness of this package, and a sweep's file under MLflow's own names, with the
    commit of its checkout; the first alone for ""."""
    tags = dict[str, str]()
    if own := git_state(__file__):
        tags |= {"git.sha": own[0], "git.dirty": own[1]}
    if file:
        tags |= {"mlflow.source.name": file, "mlflow.source.type": "LOCAL"}
        if state := git_state(file):
            tags |= {"mlflow.source.git.commit": state[0], "source.git.dirty": state[1]}
    return tags


@cache
def git_state(file: str) -> tuple[str, str] | None:
    """Commit of the checkout that a file belongs to, and "True" where that has changes; None
    outside of one, as in an environment that the checkout ignores."""
    folder, name = os.path.split(os.path.abspath(file))

    def git(*words: str, check: bool = True) -> str:
        # A repository may name a program that `git status` starts; it is somebody's folder.
        command = ["git", "-c", "core.fsmonitor=false", "-C", folder, *words]
        result = run(command, capture_output=True, text=True, check=check, timeout=10)
        return str(result.stdout).strip()

    with suppress(OSError, SubprocessError):
        if not git("check-ignore", name, check=False):
            return git("rev-parse", "HEAD"), str(bool(git("status", "--porcelain")))
    return None
