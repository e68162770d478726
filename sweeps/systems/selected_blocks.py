"""The places of the blocks that systems select from documents, where their trials kept them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rank_core.errors import BadInput
from rank_core.models.kept_files import SELECTED_BLOCKS
from rank_core.parsing import parsed_json
from sweeps.store.records import Records, State

TENTHS = 10


@dataclass(frozen=True)
class SelectedBlocks:
    """What the runs of a system selected from the test candidates."""

    whole: int  # documents of which all blocks were read
    documents: Mapping[int, int]  # {number of blocks: documents of that many, read in part}
    read: Mapping[int, tuple[int, ...]]  # {the same number: of how many each block was read}

    @property
    def tenths(self) -> tuple[float, ...]:
        """The share of the selected blocks in each tenth of their documents. A block that lies in
        several tenths counts in each by its part, so blocks selected by chance have equal shares;
        where nothing was selected all are 0."""
        share_T = np.zeros(TENTHS)
        for number, counts in self.read.items():
            # How many were selected before a place in the document: linear within a block.
            before = np.cumsum([0, *counts])
            edge_T = np.linspace(0, number, TENTHS + 1)
            share_T += np.diff(np.interp(edge_T, np.arange(number + 1), before))
        return tuple((share_T / max(share_T.sum(), 1)).tolist())


def selected_blocks(records: Records, states: Iterable[State]) -> dict[str, SelectedBlocks]:
    """{cell: what its finished trials selected} of the cells whose trials kept it. Raises
    `BadInput` for a file of another form."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for state in states:
        if state.status.used and SELECTED_BLOCKS in state.files:
            name = f"{state.name}/{SELECTED_BLOCKS}"
            content = parsed_json(records.read(state.name, SELECTED_BLOCKS), name)
            try:  # of a trial, or of each of its folds
                folds = [content] if "blocks" in content else [*content.values()]
                parts.setdefault(state.cell, []).extend(folds)
                summed(folds)
            except (AttributeError, KeyError, TypeError, ValueError):
                raise BadInput(
                    f"{name} must have `whole` and `blocks`, the counts of selected blocks"
                ) from None
    return {cell: summed(counts) for cell, counts in parts.items()}


def summed(parts: Iterable[Mapping[str, Any]]) -> SelectedBlocks:
    """The counts of several files."""
    whole, documents, read = 0, dict[int, int](), dict[int, tuple[int, ...]]()
    for part in parts:
        whole += part["whole"]
        for number, blocks in ((int(name), blocks) for name, blocks in part["blocks"].items()):
            documents[number] = documents.get(number, 0) + blocks["documents"]
            pairs = zip(read.get(number, (0,) * number), blocks["read"], strict=True)
            read[number] = tuple(a + b for a, b in pairs)
    return SelectedBlocks(whole, documents, read)
