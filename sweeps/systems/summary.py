"""The means and fates of the seeds of each cell, and the cells that form grids."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rank_core.stats.matrix import queries_per_set, query_set_of
from sweeps.systems.load import Sweep
from sweeps.systems.system import Kind, System

WINDOW, STRIDE = "chunking.window", "chunking.stride"
_MOST_SETS = 20
"""With more prefixes than this, a slash in query ids does not name a set."""


def fate_word(sweep: Sweep) -> str:
    """The word of a table for an eliminated cell, shorter than "eliminated"."""
    return "stopped" if sweep.about.search.get("name") == "asha" else "out"


def cells_of(sweep: Sweep) -> list[System]:
    """A system for each declared cell, in the order the sweep declares them."""
    kind = Kind.EXTERNAL if sweep.third_party else Kind.TRAINED
    kind = Kind.AGGREGATION if sweep.serving else kind
    keys = ["measure", "cell", "seed"]
    means = sweep.scores.groupby(keys, sort=True, observed=True)["value"].mean()
    values: dict[tuple[str, str], dict[int, float]] = {}
    for (measure, cell, seed), value in means.items():
        values.setdefault((measure, cell), {})[int(seed)] = float(value)
    for mean, columns in sweep.means.items():
        for cell in {cell for _, cell in values}:
            parts = [values.get((column, cell), {}) for column in columns]
            if cell in sweep.separate_runs:  # no run spans the collections
                # There is no k-th run over all collections: the mean over runs of each stands for
                # all.
                parts = [{0: float(np.mean([*one.values()]))} for one in parts if one]
            values[mean, cell] = {
                seed: float(np.mean([one[seed] for one in parts])) for seed in parts[0]
            }
    return [
        System(
            cell=cell,
            seed_means={name: values.get((name, cell.cell), {}) for name in sweep.measures},
            statuses=_statuses(sweep, cell.cell),
            kind=kind,
            deterministic=cell.cell in sweep.deterministic,
        )
        for cell in sweep.cells
    ]


def _statuses(sweep: Sweep, cell: str) -> dict[int, str]:
    trials = sweep.trials[sweep.trials["cell"] == cell]
    statuses = {int(s): str(fate) for s, fate in zip(trials["seed"], trials["status"], strict=True)}
    # A deterministic cell declares its first seed alone.
    declared = sweep.about.seeds[:1] if cell in sweep.deterministic else sweep.about.seeds
    if cell in sweep.about.eliminated:  # fewer seeds by design: none is missing
        declared, statuses = (), {s: fate for s, fate in statuses.items() if fate != "planned"}
    return {seed: statuses.get(seed, "planned") for seed in sorted({*statuses, *declared})}


def query_sets(sweep: Sweep) -> dict[str, int]:
    """{query set: its queries} where every query of the split names its set, as `dl19/1037`;
    empty unless there are two sets or more."""
    primary = sweep.scores["measure"] == sweep.primary
    sizes = queries_per_set(sweep.scores.loc[primary, "query_id"].unique())
    return sizes if 2 <= len(sizes) <= _MOST_SETS else {}


def query_set_means(sweep: Sweep) -> dict[str, dict[str, float]]:
    """{cell: {query set: mean of the primary measure over seeds and its queries}}; empty unless
    there are two sets or more."""
    if not query_sets(sweep):
        return {}
    primary = sweep.scores[sweep.scores["measure"] == sweep.primary]
    sets = [query_set_of(query) for query in primary["query_id"]]
    means = primary.assign(set=sets).groupby(["cell", "set"], sort=False, observed=True)["value"]
    by_cell: dict[str, dict[str, float]] = {}
    for (cell, name), value in means.mean().items():
        by_cell.setdefault(str(cell), {})[str(name)] = float(value)
    return by_cell


_FATES = {
    "failed": "failed",
    "diverged": "diverged",
    "collapsed": "collapsed",
    "running": "still running",
    "planned": "not started",
}
"""{status in which seeds failed or are missing: its words}; collapsed ones count in the means."""


def lost_seeds(cells: list[System]) -> dict[str, dict[str, list[int]]]:
    """{words of a status in which seeds failed or are missing: {label: its seeds}}."""
    found = {
        words: {row.label: seeds for row in cells if (seeds := row.seeds(status))}
        for status, words in _FATES.items()
    }
    return {words: lost for words, lost in found.items() if lost}


@dataclass(frozen=True)
class CrossedGrid:
    """The cells that differ in window and stride only, by (window, stride) in tokens."""

    title: str
    cells: Mapping[tuple[int, int], System]

    @property
    def windows(self) -> list[int]:
        """Each window once, ascending."""
        return sorted({window for window, _ in self.cells})

    @property
    def strides(self) -> list[int]:
        """Each stride once, ascending."""
        return sorted({stride for _, stride in self.cells})


def crossed_grids(sweep: Sweep, cells: list[System]) -> list[CrossedGrid]:
    """The grids in which window and stride vary independently, which are drawn and tested by
    factor: one for each combination of the other settings."""
    if not {WINDOW, STRIDE} <= set(sweep.about.swept):
        return []
    grids: dict[tuple[str, ...], dict[tuple[int, int], System]] = {}
    for system in cells:
        settings = dict(system.cell.settings)
        place = settings.pop(WINDOW, None), settings.pop(STRIDE, None)
        # FirstP reads the first chunk alone: stride has no effect.
        name = str(settings.get("model.name", system.cell.group)).lower()
        if None in place or name == "firstp":
            continue
        key = (system.cell.group, *(f"{k}={v}" for k, v in sorted(settings.items())))
        # Two cells may differ in a setting that `settings` lacks.
        while place in grids.get(key, {}):
            key = (*key, system.label)
        grids.setdefault(key, {})[place] = system
    groups = [key[0] for key in grids]
    titled = [
        CrossedGrid(one if one and groups.count(one) == 1 else ", ".join(filter(None, key)), cells)
        for key, cells in grids.items()
        for one in key[:1]
    ]
    return [g for g in titled if len(g.cells) > max(len(g.windows), len(g.strides)) > 1]
