"""What a sweep left on disk, read and checked: its description, its trials, its scores."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from rank_core.errors import BadInput
from rank_core.stats.baselines import Slot
from sweeps.store.trial_status import USED, TrialStatus

FAILURES = "failures.parquet"  # of attempts; a sweep in which none failed has no such file
FILES = ("sweep.json", "trials.parquet", "per_query.parquet")
REQUIRED = ("sweep", "question", "split", "measures", "primary", "baseline", "cells")
CONFIRMS = ("sweep", "cell", "label", "dev_mean", "num_candidates", "naive_gain")
TRIAL_COLUMNS = ("cell", "seed", "status")
SCORE_COLUMNS = ("cell", "seed", "split", "query_id", "measure", "value")
FAILURE_COLUMNS = "cell", "seed", "attempt", "time", "node", "kind", "reason", "again", "excluded"
SCREENING = 20
"""From so many comparisons on, a sweep that declares nothing else is exploratory."""
ROPE = 0.01
"""A difference of a measure that practice does not notice, unless the sweep names another."""


@dataclass(frozen=True)
class Cell:
    """One configuration over its seeds, as the sweep declared it."""

    cell: str
    label: str
    group: str
    settings: Mapping[str, Any]
    coverage: float | None  # share of the document tokens that some chunk shows to the encoder
    encoder_tokens_per_document: float | None


@dataclass(frozen=True)
class Sweep:
    """Systems over their seeds: a sweep on disk, or runs of anybody. `scores` holds the reported
    split and used trials only; `dev_scores` the primary measure of these trials on split `dev`,
    empty where there is none."""

    folder: Path
    name: str
    question: str
    split: str
    measures: tuple[str, ...]
    primary: str
    slots: tuple[Slot, ...]  # a baseline for all, then such as {cell: its own, the FirstP of it}
    deterministic: tuple[str, ...]  # cells whose one run is the only one there is
    alpha: float
    correction: str
    rope: float  # differences up to this size are called practically equal
    cells: tuple[Cell, ...]
    collections: Mapping[str, tuple[str, ...]]  # {collection: its measures}; "" for the only one
    trials: pd.DataFrame
    scores: pd.DataFrame
    dev_scores: pd.DataFrame = field(default_factory=pd.DataFrame)
    failures: pd.DataFrame = field(default_factory=pd.DataFrame)  # attempts without a result
    paired_seeds: bool = False
    swept: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    collection: Mapping[str, Any] = field(default_factory=dict)
    backbone: Mapping[str, Any] = field(default_factory=dict)
    first_stage: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    confirms: Mapping[str, Any] | None = None  # the choice of another sweep, tested anew here
    search: Mapping[str, Any] = field(default_factory=dict)
    """How the cells were chosen, and which were eliminated; may be empty."""
    stopped: str = ""  # why it ended before all was run; empty where it did not
    third_party: bool = False  # runs of which nobody here knows how many were launched

    @property
    def baseline(self) -> str:
        """The cell that all others are compared with; "" where each has its own only."""
        return self.slots[0] if isinstance(self.slots[0], str) else ""

    def label(self, cell: str) -> str:
        """The name of a cell in tables and plots."""
        return next(one.label for one in self.cells if one.cell == cell)


def load_sweep(folder: Path) -> Sweep:
    """The sweep in `folder`, or a `BadInput` that names the file and the rule it breaks."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise BadInput(
            f"a sweep folder holds {', '.join(FILES)}; {folder} has no {', '.join(missing)}"
        )
    described = _description(folder / "sweep.json")
    cells = _cells(folder / "sweep.json", described)
    trials = _trials(folder / "trials.parquet", cells, described.get("seeds"))
    measures = tuple(described["measures"])
    table = _table(folder / "per_query.parquet", SCORE_COLUMNS)
    scores = _scores(
        folder / "per_query.parquet", table, trials, split=described["split"], measures=measures
    )
    return Sweep(
        folder=folder,
        name=described["sweep"],
        question=described["question"],
        split=described["split"],
        measures=measures,
        primary=described["primary"],
        slots=_slots(folder / "sweep.json", described, cells),
        deterministic=tuple(described.get("deterministic") or ()),
        alpha=float(described.get("alpha", 0.05)),
        correction=described.get("correction") or _correction(len(cells) - 1),
        rope=float(described.get("rope", ROPE)),
        paired_seeds=bool(described.get("paired_seeds", False)),
        swept=tuple(described.get("swept") or ()),
        seeds=tuple(described.get("seeds") or sorted(int(seed) for seed in set(trials["seed"]))),
        cells=cells,
        collection=described.get("collection") or {},
        backbone=described.get("backbone") or {},
        first_stage=described.get("first_stage") or {},
        versions=described.get("versions") or {},
        command=described.get("command") or "",
        confirms=described.get("confirms"),
        search=described.get("search") or {},
        stopped=described.get("stopped") or "",
        trials=trials,
        failures=_failures(folder / FAILURES, trials),
        scores=scores,
        dev_scores=_dev_scores(table, trials, described["primary"]),
        collections={"": measures},
    )


def _description(path: Path) -> dict[str, Any]:
    """`sweep.json` with its required keys present and its names known."""
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    if not isinstance(described, dict):
        raise BadInput(f"{path}: must hold one JSON object, got {type(described).__name__}")
    missing = [key for key in REQUIRED if not described.get(key)]
    if missing:
        raise BadInput(f"{path}: must name {', '.join(REQUIRED)}; missing: {', '.join(missing)}")
    if described["primary"] not in described["measures"]:
        raise BadInput(
            f"{path}: primary must be one of measures ({', '.join(described['measures'])}), "
            f"got {described['primary']!r}"
        )
    alpha = described.get("alpha", 0.05)
    if not 0 < alpha < 1:
        raise BadInput(f"{path}: 0 < alpha < 1 must hold, got alpha={alpha}")
    if not described.get("rope", ROPE) > 0:
        raise BadInput(f"{path}: rope > 0 must hold, got rope={described['rope']}")
    unknown = [key for key in CONFIRMS if key not in (described.get("confirms") or CONFIRMS)]
    if unknown:
        raise BadInput(
            f"{path}: confirms must name {', '.join(CONFIRMS)}; missing: {', '.join(unknown)}"
        )
    return described


def _cells(path: Path, described: Mapping[str, Any]) -> tuple[Cell, ...]:
    labels = [one.get("label") or one["cell"] for one in described["cells"]]
    cells = tuple(
        Cell(
            cell=one["cell"],
            # Two cells under one label would be one line to a reader: the cell's name tells them
            # apart, because a finished sweep is no moment to refuse.
            label=label if labels.count(label) == 1 else f"{label} ({one['cell']})",
            group=one.get("group") or "",
            settings=one.get("settings") or {},
            coverage=one.get("coverage"),
            encoder_tokens_per_document=one.get("encoder_tokens_per_document"),
        )
        for one, label in zip(described["cells"], labels, strict=True)
    )
    names = [one.cell for one in cells]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInput(f"{path}: each cell must appear once, found twice: {', '.join(twice)}")
    if described["baseline"] not in names:
        raise BadInput(
            f"{path}: baseline must be one of cells, got {described['baseline']!r}; "
            f"known: {', '.join(names)}"
        )
    return cells


def _slots(path: Path, described: Mapping[str, Any], cells: tuple[Cell, ...]) -> tuple[Slot, ...]:
    """The baseline of all and, where the sweep declares such, each cell's own."""
    names = {one.cell for one in cells}
    declared = described.get("baselines") or {}
    for cell, baseline in declared.items():
        for name in (cell, baseline):
            if name not in names:
                raise BadInput(
                    f"{path}: baselines must map cells to cells, got {name!r}; "
                    f"known: {', '.join(sorted(names))}"
                )
    own = {cell: baseline for cell, baseline in declared.items() if cell != baseline}
    return (described["baseline"], own) if own else (described["baseline"],)


def _table(path: Path, required: tuple[str, ...]) -> pd.DataFrame:
    table = pd.read_parquet(path)
    missing = [name for name in required if name not in table.columns]
    if missing:
        raise BadInput(
            f"{path}: must have the columns {', '.join(required)}; missing: {', '.join(missing)}; "
            f"found: {', '.join(map(str, table.columns))}"
        )
    return table


def _trials(path: Path, cells: tuple[Cell, ...], seeds: list[int] | None) -> pd.DataFrame:
    """One row per launched or planned trial, in the order of the cells, then of the seeds."""
    trials = _table(path, TRIAL_COLUMNS)
    order = {one.cell: position for position, one in enumerate(cells)}
    # A folder keeps the trials of every plan that ran in it; `sweep.json` describes the latest.
    trials = trials[trials["cell"].isin(list(order))]
    if seeds:
        trials = trials[trials["seed"].isin(seeds)]
    strange = sorted({str(value) for value in trials["status"]} - set(TrialStatus))
    if strange:
        raise BadInput(f"{path}: unknown status {strange[0]!r}; known: {', '.join(TrialStatus)}")
    twice = trials[trials.duplicated(["cell", "seed"])]
    if len(twice):
        raise BadInput(
            f"{path}: a trial (cell, seed) must have one row; "
            f"{twice['cell'].iloc[0]} seed {twice['seed'].iloc[0]} has more"
        )
    ranked = trials.assign(_position=trials["cell"].map(order)).sort_values(["_position", "seed"])
    return ranked.drop(columns="_position").reset_index(drop=True)


def _failures(path: Path, trials: pd.DataFrame) -> pd.DataFrame:
    """The failed attempts of these trials, in the order they happened."""
    if not path.is_file():
        return pd.DataFrame(columns=list(FAILURE_COLUMNS))
    table = _table(path, FAILURE_COLUMNS[:-1])
    table = table.reindex(columns=list(FAILURE_COLUMNS)).fillna({"excluded": ""})
    planned = pd.MultiIndex.from_frame(trials[["cell", "seed"]])
    return table[pd.MultiIndex.from_frame(table[["cell", "seed"]]).isin(planned)]


def _scores(
    path: Path, table: pd.DataFrame, trials: pd.DataFrame, *, split: str, measures: tuple[str, ...]
) -> pd.DataFrame:
    """The per-query scores of the used trials; every used trial must have every measure."""
    used = trials[trials["status"].isin(USED)]
    if len(used) and split not in set(table["split"]):
        found = ", ".join(sorted({str(one) for one in table["split"]})) or "no rows"
        raise BadInput(f"{path}: must hold the split {split!r}; found: {found}")
    trial_keys = pd.MultiIndex.from_frame(used[["cell", "seed"]])
    chosen = table[
        (table["split"] == split)
        & table["measure"].isin(measures)
        & pd.MultiIndex.from_frame(table[["cell", "seed"]]).isin(trial_keys)
    ]
    kinds = chosen[["cell", "seed", "measure"]].drop_duplicates()
    present = set(kinds.itertuples(index=False, name=None))
    for cell, seed in trial_keys:
        for measure in measures:
            if (cell, seed, measure) not in present:
                raise BadInput(
                    f"{path}: every done or collapsed trial must have {measure} on {split}; "
                    f"{cell} seed {seed} has none"
                )
    return chosen[list(SCORE_COLUMNS)].reset_index(drop=True)


def _dev_scores(table: pd.DataFrame, trials: pd.DataFrame, primary: str) -> pd.DataFrame:
    """The development scores of the used trials: what a choice of a cell may look at."""
    used = pd.MultiIndex.from_frame(trials.loc[trials["status"].isin(USED), ["cell", "seed"]])
    chosen = table[
        (table["split"] == "dev")
        & (table["measure"] == primary)
        & pd.MultiIndex.from_frame(table[["cell", "seed"]]).isin(used)
    ]
    return chosen[list(SCORE_COLUMNS)].reset_index(drop=True)


def _correction(num_comparisons: int) -> str:
    """What a sweep that declares no correction gets: many comparisons are a screening."""
    return "bh" if num_comparisons >= SCREENING else "holm"
