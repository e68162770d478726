"""The twin of a reference: the same cells, in minutes and without a download."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rank_core.encoders.shipped import SETTINGS, TRAINED, UNTRAINED
from sweeps.plan.experiment import Experiment, Grid
from sweeps.plan.reference import TWIN, Reference

COLLECTION = "python-docs"
SHORTEST, LONGEST, QUERY = 32, 112, 16  # tokens: of the windows, of a query
SMALL = {
    **SETTINGS,
    "collection": COLLECTION,
    "chunking.max_query_tokens": QUERY,
    "evaluation.folds": 0,
    "evaluation.folds_file": "",
    "evaluation.depth": 10,
    "evaluation.max_dev_queries": 10,
    "evaluation.max_test_queries": 20,
}
SHORT = {
    "training.num_epochs": 1,
    "training.epoch_steps": 0,
    "training.max_steps": 8,
    "training.batch_size": 8,
    "training.validate_every": 0,
    "training.depth": 0,
}
WINDOW = "chunking.window"
LENGTHS = (WINDOW, "chunking.stride", "chunking.max_document_tokens")


def twin(experiment: Experiment) -> tuple[Experiment, dict[str, Any]]:
    """The twin and its flags: `python-docs`, two seeds, few steps and queries. The first backbone
    is `tiny-docs`, the second `tiny-docs-untrained`; lengths are divided by one factor, so that the
    shortest window has 32 tokens, and no input exceeds the backbone's."""
    reference, settings = experiment.reference or Reference(), experiment.settings
    grid = experiment.grid(None, None)  # type: ignore[arg-type]  # that of a file is fixed
    every = [settings, grid.baseline, *grid.points]
    name = "model.backbone"
    names = dict.fromkeys(own[name] for own in every if name in own)
    backbones = dict(zip(names, (TRAINED, UNTRAINED), strict=False))
    windows = [own[WINDOW] for own in every if WINDOW in own]
    factor = min(windows) / SHORTEST

    def small(own: Mapping[str, Any]) -> dict[str, Any]:
        lengths = {n: round(own[n] / factor) for n in LENGTHS if n in own}
        cut = {n: min(LONGEST, size) for n, size in lengths.items() if own[n] <= max(windows)}
        return {**own, **lengths, **cut, **({name: backbones[own[name]]} if name in own else {})}

    changes = SMALL | (SHORT if settings.get("training.num_epochs", 1) else {})
    changes = {n: value for n, value in changes.items() if n not in experiment.swept}
    points = Grid(tuple(map(small, grid.points)), small(grid.baseline))
    published = (
        replace(own, collection=COLLECTION, settings=small(own.settings), differs="a twin")
        for own in reference.published
    )
    return replace(
        experiment,
        typed=frozenset(),  # its settings are changed
        name=f"{experiment.name}-{TWIN}",
        question=f"Twin, a small copy that answers nothing: {experiment.question}",
        grid=lambda base, backbone: points,
        settings=small(settings) | changes,
        reference=Reference(published=tuple(published)),
    ), {"num_seeds": 2}
