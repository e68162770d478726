"""A sweep on disk, read and checked: its description, its trials, its scores."""

import io
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from rank_core.errors import BadInput
from rank_core.records import Qrels
from rank_core.stats.baselines import Slot
from sweeps.report.notation import TIE_POLICY
from sweeps.store.checksums import REMEDY, SCORES, damage
from sweeps.store.scores import SCORE_COLUMNS, as_categories, read_dataset
from sweeps.store.sweep_file import FIRST_STAGE, Cell, SweepFile, read_sweep_file
from sweeps.store.trial_status import USED, TrialStatus
from sweeps.store.trial_store import HISTORY

FAILURES = "failures.parquet"  # of attempts; missing where none failed
FILES = ("sweep.json", "trials.parquet", SCORES)
TRIAL_COLUMNS = ("cell", "seed", "status")
FAILURE_COLUMNS = "cell", "seed", "attempt", "time", "node", "kind", "reason", "again"
_KINDS = {"seed": "iu", "value": "f", "attempt": "iu"}
COUNTS = "Num"
"""Of measures that are no share, the beginning of the name: NumRet, NumRel."""
MOST_NAMED = 5  # damaged trials in one message
SCREENING = 20
"""With so many comparisons or more, a sweep without a declared correction is exploratory."""


@dataclass(frozen=True)
class Interpolated:
    """The trials of a cell interpolated with the first stage: a system with the cell's seeds."""

    cell: str  # its own name beside those of cells
    of: str
    label: str
    normalise: str
    alphas: Mapping[int, tuple[float, ...]]  # {seed: alpha, or those of its folds}
    scores: pd.DataFrame  # of the reported split; one seed where it is deterministic
    deterministic: bool  # the cell is, or all alphas are 0

    @property
    def alphas_text(self) -> str:
        """`0.6, 0.7, 0.6`, seed by seed; those of folds as `0.6/0.7`."""
        return ", ".join("/".join(f"{alpha:g}" for alpha in own) for own in self.alphas.values())


ListReader = Callable[[Collection[str]], dict[str, list[str]]]
"""A function from queries to {query_id: doc_ids, best first} of those that a run ranks."""


@dataclass(frozen=True)
class Sweep:
    """Systems over their seeds: a sweep on disk, or a third party's runs. `scores` holds the
    reported split and used trials only; `dev_scores` the primary measure of these trials on split
    `dev`, empty where there is none."""

    folder: Path
    name: str
    question: str
    split: str
    measures: tuple[str, ...]
    primary: str
    slots: tuple[Slot, ...]  # the common baseline, then {cell: its own, such as its FirstP}
    deterministic: tuple[str, ...]  # cells that have a single possible run
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
    confirms: Mapping[str, Any] | None = None  # the choice of another sweep, tested again here
    search: Mapping[str, Any] = field(default_factory=dict)
    """The record of the search and of what it eliminated; may be empty."""
    stopped: str = ""  # why it ended early; empty where it did not
    third_party: bool = False  # runs whose number of launched trials is not known
    tie_policy: str = TIE_POLICY  # how equal scores of a run are ranked
    interpolate: str = "none"  # the cells with a row "+BM25": of `INTERPOLATE`
    interpolated: tuple[Interpolated, ...] = ()
    not_interpolated: str = ""  # why such rows are missing
    first_stage_scores: pd.DataFrame = field(default_factory=pd.DataFrame)
    """Per query, of the candidates in the first stage's order; empty where it has no row."""
    digits: int = 3  # decimals of means and differences in tables
    lists: Mapping[tuple[str, int], ListReader] = field(default_factory=dict)
    """{(cell, seed): its ranked lists} of a third party; a sweep has them in its folder."""
    notes: tuple[str, ...] = ()  # on a third party's runs, such as queries counted as 0
    qrels: Qrels | None = None  # of a third party, likewise

    @property
    def baseline(self) -> str:
        """The cell that all others are compared with; "" where each has a baseline of its own."""
        return self.slots[0] if isinstance(self.slots[0], str) else ""

    @property
    def smoke_test(self) -> bool:
        """True if it tests the installation, not the question."""
        return "--smoke-test" in shlex.split(self.command)

    @property
    def split_text(self) -> str:
        """`test`, or `test, a sample of its 59 queries`."""
        total = self.collection.get("sampled_from")
        return f"{self.split}, a sample of its {total} queries" if total else self.split

    def count_text(self, number: int) -> str:
        """`test, 12 queries`, or `test, 12 sampled from its 59 queries`."""
        total = self.collection.get("sampled_from")
        return f"{self.split}, {number} {f'sampled from its {total} ' if total else ''}queries"

    def label(self, cell: str) -> str:
        """The name of a cell in tables and plots."""
        labels = {system.cell: system.label for system in self.cells}
        labels |= {system.cell: system.label for system in self.interpolated}
        return (labels | {FIRST_STAGE: self.first_stage_name})[cell]

    @property
    def first_stage_name(self) -> str:
        """`BM25`, or `first stage` where its name is not known."""
        return str(self.collection.get("first_stage") or "first stage")


def load_sweep(folder: Path, values: pd.DataFrame | None = None) -> Sweep:
    """The sweep in `folder`, or a `BadInput` with the file and the broken rule. `values` replace
    the per-query values on disk; the trials are then not checked."""
    file = read_sweep_file(folder)
    missing = [name for name in FILES if not (folder / name).exists()]
    if missing:
        raise BadInput(
            f"a sweep's folder holds {', '.join(FILES)}; {folder} has no {', '.join(missing)}, "
            "which the sweep's command writes when it ends"
            f"{f': {file.command}' if file.command else ''}"
        )
    trials = read_trials(folder / "trials.parquet", file)
    if values is None:
        _check_trials(folder, trials)
    table = score_table(folder, trials, file) if values is None else values
    scores = _scores(folder / SCORES, table, trials, split=file.split, measures=file.measures)
    own = {cell: baseline for cell, baseline in file.baselines.items() if cell != baseline}
    return Sweep(
        folder=folder,
        name=file.sweep,
        question=f"{file.question} (smoke test)" if file.is_smoke_test else file.question,
        split=file.split,
        measures=file.measures,
        primary=file.primary,
        slots=(file.baseline, own) if own else (file.baseline,),
        deterministic=file.deterministic,
        alpha=float(file.alpha),
        correction=file.correction or _correction(len(file.cells) - 1),
        rope=float(file.rope),
        paired_seeds=file.paired_seeds,
        swept=file.swept,
        seeds=file.seeds or tuple(sorted(int(seed) for seed in set(trials["seed"]))),
        cells=_distinct(file.cells),
        collection=file.collection,
        backbone=file.backbone,
        first_stage=file.first_stage,
        versions=file.versions,
        command=file.command,
        confirms=file.confirms or None,
        search=file.search,
        stopped=file.stopped,
        interpolate=file.interpolate,
        trials=trials,
        failures=_failures(folder / FAILURES, trials, file.command),
        scores=scores,
        dev_scores=_dev_scores(table, file.primary),
        collections={"": file.measures},
    )


def _distinct(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """The cells with distinct labels: the cell's name is added to a label that occurs twice."""
    labels = [cell.label or cell.cell for cell in cells]
    return tuple(
        replace(cell, label=label if labels.count(label) == 1 else f"{label} ({cell.cell})")
        for cell, label in zip(cells, labels, strict=True)
    )


def _check_trials(folder: Path, trials: pd.DataFrame) -> None:
    """Refuse a sweep with a damaged trial. A report does not need the folders of trials, which a
    mirror lacks."""
    used = trials[trials["status"].isin(USED)]
    names = [f"{cell}-seed{seed}" for cell, seed in zip(used["cell"], used["seed"], strict=True)]
    folders = [folder / "runs" / name for name in names if _is_here(folder / "runs" / name)]
    damaged = {path.name: reason for path in folders if (reason := damage(path, thorough=False))}
    if damaged:
        listed = [f"runs/{name}/{reason}" for name, reason in damaged.items()]
        more = f" and {len(damaged) - MOST_NAMED} more" if len(damaged) > MOST_NAMED else ""
        raise BadInput(f"{folder}: {'; '.join(listed[:MOST_NAMED])}{more}; {REMEDY}")


def _is_here(trial: Path) -> bool:
    """True if a trial is in the folder; a mirror may have its history alone."""
    return trial.is_dir() and any(path.name != HISTORY for path in trial.iterdir())


def _remedy(command: str) -> str:
    return f"the sweep's command writes it again{f': {command}' if command else ''}"


def score_table(folder: Path, trials: pd.DataFrame, file: SweepFile) -> pd.DataFrame:
    """The per-query scores of the used trials: of the dataset, or of version 0.1's one table."""
    used = trials[trials["status"].isin(USED)]
    if (folder / SCORES).is_dir():
        names = map("{}-seed{}".format, used["cell"], used["seed"])
        return read_dataset(folder, list(names), _remedy(file.command))
    table = _table(folder / SCORES, SCORE_COLUMNS, file.command)
    keys = pd.MultiIndex.from_frame(used[["cell", "seed"]])
    return as_categories(table[pd.MultiIndex.from_frame(table[["cell", "seed"]]).isin(keys)])


def _table(path: Path, required: tuple[str, ...], command: str) -> pd.DataFrame:
    """A table of the sweep, which `command` writes again."""
    remedy = _remedy(command)
    content = path.read_bytes()
    try:
        table = pd.read_parquet(io.BytesIO(content), page_checksum_verification=True)
    except Exception:  # pyarrow has many kinds
        raise BadInput(
            f"{path} must be a table as the sweep wrote it, got {len(content)} bytes that are "
            f"none (Parquet); {remedy}"
        ) from None
    missing = [name for name in required if name not in table.columns]
    if missing:
        raise BadInput(
            f"{path}: must have the columns {', '.join(required)}; missing: {', '.join(missing)}; "
            f"found: {', '.join(map(str, table.columns))}; {remedy}"
        )
    for name, kind in _KINDS.items():
        # The columns of an empty table have no type.
        if name in required and len(table) and table[name].dtype.kind not in kind:
            raise BadInput(
                f"{path}: {name} must be a column of numbers, got {table[name].dtype}; {remedy}"
            )
    return table


def read_trials(path: Path, file: SweepFile) -> pd.DataFrame:
    """One row per launched or planned trial, in the order of the cells, then of the seeds."""
    trials, seeds = _table(path, TRIAL_COLUMNS, file.command), file.seeds
    order = {cell.cell: position for position, cell in enumerate(file.cells)}
    # A folder has the trials of every plan that ran in it; `sweep.json` describes the latest.
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


def _failures(path: Path, trials: pd.DataFrame, command: str) -> pd.DataFrame:
    """The failed attempts of these trials, in the order they happened."""
    if not path.is_file():
        return pd.DataFrame(columns=list(FAILURE_COLUMNS))
    table = _table(path, FAILURE_COLUMNS, command)[list(FAILURE_COLUMNS)]
    planned = pd.MultiIndex.from_frame(trials[["cell", "seed"]])
    return table[pd.MultiIndex.from_frame(table[["cell", "seed"]]).isin(planned)]


def _scores(
    path: Path, table: pd.DataFrame, trials: pd.DataFrame, *, split: str, measures: tuple[str, ...]
) -> pd.DataFrame:
    """The per-query scores of the used trials; every used trial must have every measure."""
    used = trials[trials["status"].isin(USED)]
    splits = table["split"].unique()
    if len(used) and split not in splits:
        names = ", ".join(sorted(map(str, splits))) or "no rows"
        raise BadInput(f"{path}: must hold the split {split!r}; found: {names}")
    chosen = table[(table["split"] == split) & table["measure"].isin(measures)]
    outside = chosen[~chosen["value"].between(0, 1)]
    strange = outside[~outside["measure"].astype(str).str.startswith(COUNTS)]
    if len(strange):
        row = strange.iloc[0]
        raise BadInput(
            f"{path}: {row['measure']} must be from 0 to 1, got {row['value']} for {row['cell']} "
            f"seed {row['seed']}, query {row['query_id']}; the sweep's command writes it again"
        )
    present = set(chosen.groupby(["cell", "seed", "measure"], observed=True).size().index)
    for cell, seed in zip(used["cell"], used["seed"], strict=True):
        for measure in measures:
            if (cell, seed, measure) not in present:
                raise BadInput(
                    f"{path}: every done or collapsed trial must have {measure} on {split}; "
                    f"{cell} seed {seed} has none"
                )
    return chosen[list(SCORE_COLUMNS)].reset_index(drop=True)


def _dev_scores(table: pd.DataFrame, primary: str) -> pd.DataFrame:
    """The dev scores of the used trials, the only ones that may choose a cell."""
    chosen = table[(table["split"] == "dev") & (table["measure"] == primary)]
    return chosen[list(SCORE_COLUMNS)].reset_index(drop=True)


def _correction(num_comparisons: int) -> str:
    """The correction of a sweep that declares none; many comparisons are a screening."""
    return "bh" if num_comparisons >= SCREENING else "holm"
