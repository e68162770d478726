"""What a use of each system costs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.store.trial_costs import COST_UNITS, TOKENS

if TYPE_CHECKING:
    from sweeps.systems.load import Sweep

PER_DOCUMENT, PER_QUERY = "encoder tokens per document", "encoder tokens per query"
VECTORS, BYTES = "vectors per document", "bytes per document"
OF_INDEX = {VECTORS: "vectors", BYTES: "bytes"}
"""{unit of an index: what it counts}."""


@dataclass(frozen=True)
class UseCosts:
    """{system: its cost} in one unit; some may be unknown. The first stage costs nothing, a row
    with it what its model does. Milliseconds are those of the trial's machine."""

    unit: str
    of: Mapping[str, float]
    milliseconds: Mapping[str, float]  # per query


def costs_of(sweep: "Sweep") -> UseCosts:
    """The vectors of an index, or their bytes where they are stored in several forms; for chunks
    that are put together the encoder tokens of a query; else the encoder tokens of a document."""
    milliseconds: dict[str, float] = {}
    if sweep.indexes:
        figures = {cell: own.figures for cell, own in sweep.indexes.items()}
        unit, known = VECTORS, {c: float(own["vectors_per_document"]) for c, own in figures.items()}
        if len({index.form for index in sweep.indexes.values()}) > 1:
            unit, known = BYTES, {c: own["bytes"] / own["documents"] for c, own in figures.items()}
        milliseconds = {cell: float(own["ms_per_query"]) for cell, own in figures.items()}
    elif sweep.serving:
        rows = dict(zip(sweep.serving.of, sweep.serving.rows, strict=True))
        unit = PER_QUERY
        known = {name: float(row["tokens_per_query"]) for name, row in rows.items()}
        milliseconds = {n: 1000 * float(row["seconds_per_query"]) for n, row in rows.items()}
    else:
        unit = PER_DOCUMENT
        tokens = {cell.cell: cell.encoder_tokens_per_document for cell in sweep.cells}
        known = {name: float(count) for name, count in tokens.items() if count is not None}
    models = {row.name: row.of for row in sweep.mixed}
    every = {name: known[of] for name, of in models.items() if of in known}
    times = {name: milliseconds[of] for name, of in models.items() if of in milliseconds}
    return UseCosts(unit, {FIRST_STAGE: 0.0, **known, **every}, {**milliseconds, **times})


def named_costs(sweep: "Sweep") -> dict[str, dict[str, float]]:
    """{cost: {system: what it costs}} of the costs that the sweep's flags name. The first stage
    costs nothing, a row with it what its model does; a cost that is not known is infinite."""
    about, of_cells = sweep.about, dict[str, dict[str, float]]()
    named = {*about.objectives[1:], *about.at_most, *about.cost_weights}
    for cost in (name for name in COST_UNITS if name in named):
        own = sweep.measured.get(cost, {})
        if cost == TOKENS:
            tokens = {cell.cell: cell.encoder_tokens_per_document for cell in sweep.cells}
            own = {name: float(count) for name, count in tokens.items() if count is not None}
        of_cells[cost] = {cell.cell: own.get(cell.cell, math.inf) for cell in sweep.cells}
    models = {row.name: row.of for row in (*sweep.mixed, *sweep.interpolated)}
    return {
        cost: {FIRST_STAGE: 0.0, **own, **{name: own[of] for name, of in models.items()}}
        for cost, own in of_cells.items()
    }
