"""The cells of a sweep that form a grid of window and stride."""

from dataclasses import dataclass, field

from sweeps.report.load import Sweep
from sweeps.report.summary import CellSummary
from sweeps.store.sweep_file import Cell

WINDOW, STRIDE = "chunking.window", "chunking.stride"


@dataclass
class CrossedGrid:
    """The cells that differ in window and stride only, by (window, stride) in tokens."""

    title: str
    cells: dict[tuple[int, int], CellSummary] = field(default_factory=dict)

    @property
    def windows(self) -> list[int]:
        """Each window once, ascending."""
        return sorted({window for window, _ in self.cells})

    @property
    def strides(self) -> list[int]:
        """Each stride once, ascending."""
        return sorted({stride for _, stride in self.cells})


def crossed_grids(sweep: Sweep, cells: list[CellSummary]) -> list[CrossedGrid]:
    """The grids in which window and stride vary independently, which are drawn and tested by
    factor."""
    return [
        grid
        for grid in grids_of(sweep, cells)
        if len(grid.cells) > max(len(grid.windows), len(grid.strides)) > 1
    ]


def reads_one_chunk(cell: Cell) -> bool:
    """FirstP reads only the first chunk: stride has no effect."""
    return str(cell.settings.get("model.name", cell.group)).lower() == "firstp"


def grids_of(sweep: Sweep, cells: list[CellSummary]) -> list[CrossedGrid]:
    """One grid per combination of the other settings; none if window and stride are not swept."""
    if not {WINDOW, STRIDE} <= set(sweep.swept):
        return []
    grids: dict[tuple[object, ...], CrossedGrid] = {}
    for system in cells:
        settings = dict(system.cell.settings)
        place = settings.pop(WINDOW, None), settings.pop(STRIDE, None)
        if None in place or reads_one_chunk(system.cell):
            continue
        key: tuple[object, ...] = (
            system.cell.group,
            *(f"{k}={v}" for k, v in sorted(settings.items())),
        )
        # Two cells may differ in a setting that `settings` lacks.
        while key in grids and place in grids[key].cells:
            key = (*key, system.cell.label)
        title = system.cell.group or ", ".join(map(str, key[1:]))
        grids.setdefault(key, CrossedGrid(title)).cells[place] = system
    titles = [grid.title for grid in grids.values()]
    for key, grid in grids.items():
        if titles.count(grid.title) > 1:
            grid.title = ", ".join(part for part in map(str, key) if part)
    return list(grids.values())
