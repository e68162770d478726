"""The twin of a reference: the same cells, in minutes and without a download."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from rank_core.data.transforms.expression import base_of
from rank_core.encoders.shipped import SETTINGS, TRAINED, UNTRAINED
from sweeps.plan.experiment import Experiment, Grid
from sweeps.plan.reference import TWIN, Reference

COLLECTION = "python-docs"
SHORTEST, LONGEST, QUERY = 32, 112, 16  # tokens: of the windows, of a query
SMALL = {
    **SETTINGS,
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
WINDOW, STRIDE = "chunking.window", "chunking.stride"
AGGREGATOR = "model.aggregator"
LENGTHS = (WINDOW, STRIDE, "chunking.max_document_tokens")
TEST_SETS = (
    "python-docs-passages",
    "python-docs-passages:dev",
    "python-docs-passages|far-relevant(max_queries=20)",
)
"""The test sets of a twin, as many as its reference has or all of them."""


def twin(experiment: Experiment) -> tuple[Experiment, dict[str, Any]]:
    """The twin and its flags: `python-docs`, two seeds, few steps and queries. The first backbone
    is `tiny-docs`, the others `tiny-docs-untrained`; lengths are divided by one factor, so that the
    shortest window has 32 tokens, and no input exceeds the backbone's."""
    reference, settings = experiment.reference or Reference(), experiment.settings
    grid = experiment.grid(None, None)  # type: ignore[arg-type]  # that of a file is fixed
    every = [settings, grid.baseline, *grid.points]
    name = "model.backbone"
    names = dict.fromkeys(own[name] for own in every if name in own)
    backbones = dict(zip_longest(names, (TRAINED, UNTRAINED)[: len(names)], fillvalue=UNTRAINED))
    windows = [own[WINDOW] for own in every if WINDOW in own]
    factor = min(windows) / SHORTEST

    def small(own: Mapping[str, Any]) -> dict[str, Any]:
        lengths = {n: round(own[n] / factor) for n in LENGTHS if n in own}
        cut = {n: min(LONGEST, size) for n, size in lengths.items() if own[n] <= max(windows)}
        if own.get(WINDOW) == max(windows) > min(windows):  # as in the reference it may be whole
            cut |= {n: LONGEST for n in (WINDOW, STRIDE) if own.get(n) == own[WINDOW]}
        encoders = {name: backbones[own[name]]} if name in own else {}
        if own.get(AGGREGATOR):
            encoders[AGGREGATOR] = TRAINED
        return {**own, **lengths, **cut, **encoders}

    named = settings.get("collection", "")
    collection = f"{COLLECTION}{named.removeprefix(base_of(named))}"  # its transforms stay
    changes: dict[str, Any] = (
        SMALL
        | {"collection": collection}
        | (SHORT if settings.get("training.num_epochs", 1) else {})
    )
    changes = {n: value for n, value in changes.items() if n not in experiment.swept}
    if "evaluation.test_on" in settings:
        changes["evaluation.test_on"] = TEST_SETS[: len(settings["evaluation.test_on"])]
    cells = [*map(small, (grid.baseline, *grid.points))]
    # Encoders that are all the small one make equal cells.
    distinct = tuple(cell for at, cell in enumerate(cells) if cell not in cells[:at])
    points = Grid(distinct[1:], distinct[0])
    published = (
        replace(own, collection=collection, settings=small(own.settings), differs="a twin")
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
