"""What the trials of a sweep over chunk sizes kept of their indexes: costs, and how much of the
relevant text a reader gets."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rank_core.models.kept_files import EVIDENCE, INDEX
from rank_core.parsing import parsed_json
from rank_core.retrieval.cuts import overlap_tokens
from sweeps.store.records import Records, State
from sweeps.store.sweep_file import Cell

USUAL = ((512, 0.0), (256, 0.5))
"""Windows and overlaps in common use."""
OF_FORM = ("model.truncate_dim", "model.stored")
"""The settings of the form in which vectors are stored."""


def usual_label(window: int, overlap: float) -> str:
    """`256/50%`: the label of windows that end anywhere, without titles."""
    return f"{window}/{100 * overlap:g}%"


@dataclass(frozen=True)
class IndexFacts:
    """The index of a cell: its settings, its figures (of `index.json`), and the share of the
    relevant text that a reader gets, {budget in tokens: {query_id: share}}."""

    settings: Mapping[str, Any]
    figures: Mapping[str, Any]
    evidence: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    @property
    def window(self) -> int | None:
        """The tokens of a chunk; None where documents are cut at the model's limit."""
        cuts = "chunking.window" in {*self.settings} - {*self.settings["ignored"]}
        return int(self.settings["chunking.window"]) if cuts else None

    @property
    def overlap(self) -> float:
        """The share of a chunk that the next one repeats."""
        return float(self.settings.get("chunking.overlap", 0.0))

    @property
    def overlap_tokens(self) -> int:
        """The same in tokens."""
        return overlap_tokens(self.window or 0, self.overlap)

    @property
    def is_plain(self) -> bool:
        """Windows end anywhere and have no title."""
        ends = ("chunking.snap", "chunking.title")
        return not any(self.settings.get(name) for name in ends)

    @property
    def stored(self) -> str:
        """The precision of the vectors."""
        return str(self.figures.get("stored", "fp32"))  # sweeps of 0.4 do not say it

    @property
    def form(self) -> tuple[int, str]:
        """The dimensions and the precision of a vector."""
        return int(self.figures["dimensions"]), self.stored

    @property
    def of_its_chunks(self) -> dict[str, Any]:
        """The settings without those of the stored form: equal for indexes of the same vectors."""
        return {name: v for name, v in self.settings.items() if name not in OF_FORM}


def index_facts(
    records: Records, cells: Iterable[Cell], states: Iterable[State]
) -> dict[str, IndexFacts]:
    """{cell: its index} of the finished trials; empty where some cell is not an index of a whole
    collection."""
    known = {cell.cell: cell for cell in cells}
    if not all(cell.retrieves for cell in known.values()):
        return {}
    found = {}
    for state in states:
        if state.status.used:
            cell = known[state.cell]
            kept = records.result(state.name).files
            shares = _read(records, state.name, EVIDENCE) if EVIDENCE in kept else {}
            found[state.cell] = IndexFacts(
                settings={**cell.config, **cell.settings, "ignored": tuple(cell.ignored)},
                figures=_read(records, state.name, INDEX),
                evidence={int(budget): values for budget, values in shares.items()},
            )
    return found


def _read(records: Records, name: str, file: str) -> dict[str, Any]:
    content: dict[str, Any] = parsed_json(records.read(name, file), f"{name}/{file}")
    return content
