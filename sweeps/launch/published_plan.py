"""The plan of a reference before its data are there: from published sizes alone.

Documents and queries are counted at the lengths at which the settings cut them, so tokens and hours
are upper bounds. Hours are modelled: products of the encoder at the share of an H100's dense bf16
rate that `tests.benchmarks.modelled_mfu` gives for 65,536 tokens a call.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from rank_core.chunking.chunks import span_counts
from rank_core.data.load import is_prepared
from rank_core.data.transforms.expression import base_of
from rank_core.models import model_class
from rank_core.settings.config import TrialConfig
from sweeps.plan.experiment import Experiment
from sweeps.plan.machines import GPUS
from sweeps.plan.make_plan import base_config, search_space
from sweeps.plan.options import Options, split_of
from sweeps.plan.profiles import suited_to_model
from sweeps.plan.reference import Encoder, Reference, Size, values_text
from sweeps.plan.trial_cost import num_pairs
from sweeps.terminal.text import (
    clock,
    columns,
    count,
    duration,
    numbered,
    shortened,
    terminal_columns,
    wrapped,
)

H100 = GPUS["H100"]
SPECIAL = 3  # tokens of a row beside query and text


def published_plan(experiment: Experiment, options: Options) -> str | None:
    """The plan as text; None where the collection is prepared or has no published size."""
    reference = experiment.reference or Reference()
    experiment = replace(experiment, profile=options.profile)
    base = base_config(experiment, options)
    size = reference.collections.get(base.collection)
    if size is None or is_prepared(base_of(base.collection)):
        return None
    grid = experiment.grid(base, None)  # type: ignore[arg-type]  # that of a file is fixed
    points = [grid.baseline, *search_space(grid.points, experiment, options).points]
    configs = [base.override(point) for point in points]
    encoders = {config.model.backbone: None for config in configs}
    if not set(encoders) <= set(reference.encoders):
        return None
    tested = [split_of(text) for text in base.evaluation.test_on]
    if not {name for name, _ in tested} <= set(reference.collections):
        return None
    further = sum(
        getattr(own, split or "test") * _depth(base, own)
        for name, split in tested
        for own in [reference.collections[name]]
    )
    rows = [("to run", "trials", "chunks", "tokens", "a trial", "H100-hours")]
    costs = []
    works = list[tuple[int, float, float]]()  # trials, and the operations of one
    for config, point in zip(configs, points, strict=True):
        fixed = {*experiment.settings, *options.settings, *point}
        own = config.override(suited_to_model(experiment.profile, config, fixed))
        label = experiment.label_of(own)
        label += f" {Path(own.model.backbone).name}" if len(encoders) > 1 else ""
        label = shortened(label, terminal_columns() - 50)
        chunks, tokens, work = _cost(own, size, reference.encoders[own.model.backbone], further)
        seconds = H100.seconds(*work)
        trials = len(options.seeds) if own.training.num_epochs else 1
        costs.append((trials, trials * tokens, trials * seconds))
        works.append((trials, *work))
        numbers = count(trials * tokens), clock(seconds), f"{trials * seconds / 3600:.3g}"
        rows.append((label, str(trials), str(chunks), *numbers))
    trials, tokens, seconds = (sum(numbers) for numbers in zip(*costs, strict=True))
    head = [experiment.question, "", *_head(reference, base, list(encoders), size), ""]
    end = (
        f"at most     {seconds / 3600:.3g} H100-hours, {count(tokens)} encoder tokens, "
        f"{numbered(trials, 'trial')}; documents and queries are counted at the lengths at which "
        f"they are cut, and hours modelled at {H100.scoring:.0%} of an H100's bf16 rate in "
        f"scoring and {H100.training:.0%} in training. Once --prepare has the data, --dry-run "
        "counts and measures"
    )
    lines = [*map(wrapped, head), *columns(rows, "lrrrrr"), "", wrapped(end)]
    for machines in options.machines:
        gpu = GPUS[machines.gpu]
        hours = sum(number * gpu.seconds(*work) for number, *work in works) / 3600
        paid = "" if machines.price is None else f", {machines.price * hours:,.2f} in money"
        lines.append(
            f"{machines.name:<11} at most {hours:.3g} {machines.gpu}-hours{paid}; "
            f"{duration(3600 * hours / machines.number)} while all of them work"
        )
    return "\n".join(lines)


def _cost(
    config: TrialConfig, size: Size, encoder: Encoder, further: int = 0
) -> tuple[int, float, tuple[float, float]]:
    """The chunks of a document, and the tokens and the operations of a trial, in scoring and in
    forward passes of training; `further` documents of test sets are scored."""
    cut, kind = config.chunking, model_class(config.model.name)
    one = kind.trains and kind.first_chunk_only
    longest = np.array([cut.max_document_tokens])
    spans = span_counts(longest, replace(cut, max_chunks=1) if one else cut)
    chunks, beside = int(spans.chunks[0]), cut.max_query_tokens + SPECIAL
    pair = float(spans.tokens[0]) + chunks * beside
    groups, scored = _pairs(config, size)
    scored += further
    documents = groups * (1 + config.training.negatives) * config.training.share_read(chunks)
    row = min(cut.window, cut.max_document_tokens) + beside
    each = 2 * encoder.parameters + 4 * encoder.layers * encoder.width * row
    return chunks, (documents + scored) * pair, (scored * pair * each, documents * pair * each)


def _pairs(config: TrialConfig, size: Size) -> tuple[int, int]:
    """The training groups and the scored documents of a trial, over all its folds."""
    evaluation, folds = config.evaluation, config.evaluation.folds
    train, dev, test = size.train, size.dev, size.test
    if folds:
        dev = test = -(-(train + dev + test) // folds)
        train = (folds - 2) * test
    depth, parts = _depth(config, size), max(1, folds)
    limits = evaluation.max_dev_queries, evaluation.max_test_queries
    dev, test = (
        min(own, -(-limit // parts)) if limit else own
        for own, limit in zip((dev, test), limits, strict=True)
    )
    groups, scored = num_pairs(config, train, dev * depth, test * depth)
    return parts * groups, parts * scored


def _depth(config: TrialConfig, size: Size) -> int:
    """The documents that are scored for a query."""
    return min(config.evaluation.depth, size.documents or config.evaluation.depth)


def _head(
    reference: Reference, base: TrialConfig, encoders: list[str], size: Size
) -> Iterator[str]:
    numbers = {name: getattr(size, name) for name in ("train", "dev", "test")}
    queries = ", ".join(f"{name} {number:,}" for name, number in numbers.items() if number)
    folds = f", over {base.evaluation.folds} folds" if base.evaluation.folds else ""
    yield (
        f"collection  {base.collection}, not here yet; published: {size.documents:,} documents, "
        f"queries {queries}{folds}"
    )
    for text in base.evaluation.test_on:
        name, split = split_of(text)
        further = reference.collections[name]
        queries = getattr(further, split or "test")
        over = f" over {further.documents:,} documents" if further.documents else ""
        yield f"test set    {text}: {queries:,} queries{over}"
    yield f"backbone    {', '.join(encoders)}"
    for name in ("licence", "data", "disk", "meaning"):
        if text := getattr(reference, name):
            yield f"{name:<12}{text}"
    for own in reference.published:
        if own.collection == base.collection:
            cell = ", ".join(str(setting) for setting in own.settings.values())
            differs = f"; not comparable: {own.differs}" if own.differs else ""
            yield f"published   {cell}: {own.measure} {values_text(own)} ({own.source}){differs}"
