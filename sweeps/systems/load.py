"""A sweep on disk, read and checked: its description, its trials, its scores."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from rank_core.errors import BadInput
from rank_core.files import read_file
from rank_core.models import MODELS, model_class
from rank_core.parsing import parsed_json
from rank_core.records import Qrels
from rank_core.settings.config import TrialConfig
from rank_core.stats.clusters import clustered
from rank_core.stats.compare import Slot
from rank_core.stats.looks import level_of_look
from rank_core.stats.matrix import ScoreMatrix
from sweeps.store.lock import follow_driver
from sweeps.store.records import COSTS, REMEDY, Records, State, trial_name
from sweeps.store.scores import SCORE_COLUMNS, read_scores
from sweeps.store.sweep_file import (
    FIRST_STAGE,
    Cell,
    SweepFile,
    find_sweep,
    read_sweep_file,
    written_again,
)
from sweeps.store.test_options import TestOptions
from sweeps.store.trial_costs import MEASURED, measured_costs
from sweeps.store.trial_status import USED
from sweeps.systems.access_log import ACCESS_FILE, number_of_look, read_accesses
from sweeps.systems.chunk_sizes import IndexFacts, index_facts
from sweeps.systems.clusters import (
    NONE,
    ClusterOf,
    Clusters,
    check_clusters,
    clusters_from,
    queries_of_sweep,
)
from sweeps.systems.machines import Machines, hours_on, machines_of, mean_workers
from sweeps.systems.selected_blocks import SelectedBlocks, selected_blocks
from sweeps.systems.system import ListReader, System
from sweeps.terminal.notation import TIE_POLICY, names_text

TRIAL_COLUMNS = ("cell", "seed", "status", "stop_reason", "attempts")
FAILURE_COLUMNS = ("cell", "seed", "attempt", "time", "node", "kind", "reason", "again")


_EXCLUDED = 5  # points that notes name


@dataclass(frozen=True)
class Serving:
    """The systems of a sweep over windows and aggregations of a model as it is."""

    rows: tuple[Mapping[str, Any], ...]  # the numbers of every system
    of: Mapping[str, tuple[str, Mapping[str, Any]]]  # {system: (cell of its trial, its settings)}
    read_tokens: int  # of the encoder
    separate_tokens: int  # a run for each system would have read
    file: str = ""  # serving.json, which states the choice; "" where that is the first stage
    setting: Mapping[str, Any] = field(default_factory=dict)  # its content

    @property
    def cost(self) -> str:
        """The encoder tokens, beside those of a run for each system."""
        ratio = self.separate_tokens / self.read_tokens
        return (
            f"{len(self.rows)} systems from {self.read_tokens / 1e6:,.1f} million encoder tokens; "
            f"a run for each would have read {self.separate_tokens / 1e6:,.1f} million, "
            f"{ratio:.1f} x as many."
        )


@dataclass(frozen=True)
class Sweep:
    """Systems over their seeds: a sweep on disk, or a third party's runs. `scores` holds the
    reported split and used trials only; `dev_scores` the primary measure of these trials on split
    `dev`, empty where there is none."""

    about: SweepFile
    records: Records | None  # None: runs of a third party, whose number of trials is not known
    slots: tuple[Slot, ...]  # the common baseline, then {cell: its own, such as its FirstP}
    deterministic: tuple[str, ...]  # cells that have a single possible run
    cells: tuple[Cell, ...]
    collections: Mapping[str, tuple[str, ...]]  # {collection: its measures}; "" for the only one
    trials: pd.DataFrame
    scores: pd.DataFrame
    means: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """{mean over collections, a measure: the measures of the collections}; may be empty."""
    separate_runs: tuple[str, ...] = ()  # cells with training runs of their own per collection
    alike: tuple[str, ...] = ()  # cells of which training runs may have equal values
    dev_scores: pd.DataFrame = field(default_factory=pd.DataFrame)
    failures: pd.DataFrame = field(default_factory=pd.DataFrame)  # attempts without a result
    tie_policy: str = TIE_POLICY  # how equal scores of a run are ranked
    mixed: tuple[System, ...] = ()
    """Every system with the first stage that can be used: candidates of the choice."""
    interpolated: tuple[System, ...] = ()  # those that have a row
    not_interpolated: str = ""  # why such rows are missing
    first_stage: System | None = None  # where it has a row
    digits: int = 3  # decimals of means and differences in tables
    lists: Mapping[tuple[str, int], ListReader] = field(default_factory=dict)
    """{(cell, seed): its ranked lists} of a third party or an aggregation; other sweeps have them
    in their folder."""
    serving: Serving | None = None
    machines: Mapping[str, Machines] = field(default_factory=dict)
    """{cell: what its trials were computed on}, of a sweep on disk."""
    hours: Mapping[str, float] = field(default_factory=dict)
    """{device: the GPU-hours, or core-hours, of its trials}, likewise."""
    workers: float = 1.0  # of its trials, on average over their time
    indexes: Mapping[str, IndexFacts] = field(default_factory=dict)
    """{cell: its index} where every cell ranks the whole collection by one."""
    selected_blocks: Mapping[str, SelectedBlocks] = field(default_factory=dict)
    """{cell: the blocks that its trials selected} of the cells whose trials kept them."""
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """{cost: {cell: its mean over trials}} of the measured costs that the sweep's flags name."""
    clusters: Clusters | None = None  # of the queries, where the tests have them
    sharing: Mapping[str, ClusterOf] = field(default_factory=dict)
    """{collection: clusters of queries with common relevant documents}, empty where none share."""
    query_keys: Mapping[str, ClusterOf] = field(default_factory=dict)
    """{collection: {query_id: key}}, equal for one query of several collections; empty: ids."""
    notes: tuple[str, ...] = ()  # on a third party's runs, such as queries counted as 0
    qrels: Qrels | None = None  # of a third party, likewise
    look: int = 1  # of how many at this sweep, which got more seeds after each

    @property
    def tests(self) -> TestOptions:
        """How its table is tested: a further look has a smaller level than its command says."""
        level = level_of_look(self.about.tests.alpha, self.look)
        return replace(self.about.tests, alpha=level)

    @property
    def primary(self) -> str:
        """The measure that decides."""
        return self.about.primary

    @property
    def measures(self) -> tuple[str, ...]:
        """All measures, the primary one among them."""
        return self.about.measures

    @property
    def split(self) -> str:
        """The reported split."""
        return self.about.split

    @property
    def third_party(self) -> bool:
        """True for runs of a third party, which have no folder."""
        return self.records is None

    @property
    def folder(self) -> Path:
        """The sweep's folder; that of the process for a third party's runs."""
        return Path() if self.records is None else self.records.folder

    @property
    def stored(self) -> Records:
        """The records of its trials, which a third party's runs have not."""
        assert self.records is not None
        return self.records

    @property
    def question(self) -> str:
        """The question, marked where a smoke test only tries the installation."""
        return (
            f"{self.about.question} (smoke test)" if self.about.smoke_test else self.about.question
        )

    @property
    def baseline_settings(self) -> Mapping[str, Any]:
        """The settings of the baseline as the sweep declared it; empty where they are not known."""
        cells = (cell for cell in self.about.cells if cell.cell == self.about.baseline)
        return next((cell.config for cell in cells), {})

    @property
    def aggregates(self) -> bool:
        """True where its rows are aggregations of the chunk scores that its trials kept."""
        return keeps_chunk_scores(self.about)

    @property
    def used(self) -> pd.DataFrame:
        """The trials with scores."""
        return self.trials[self.trials["status"].isin(USED)]

    @property
    def baseline(self) -> str:
        """The cell that all others are compared with."""
        return str(self.slots[0])

    @property
    def split_text(self) -> str:
        """`test`, or `test, a sample of its 59 queries`."""
        total = self.about.collection.get("sampled_from")
        return f"{self.split}, a sample of its {total} queries" if total else self.about.split

    def count_text(self, number: int, clusters: int = 0) -> str:
        """`test, 12 queries`, `test, 5 clusters of 12 queries`, or `test, 12 sampled from its 59
        queries`; of a mean over collections `3 collections, 140 queries`."""
        of = f"{clusters} clusters of " if clusters else ""
        if self.means:
            return f"{len(self.collections)} collections, {of}{number} queries"
        total = self.about.collection.get("sampled_from")
        return f"{self.split}, {of}{number} {f'sampled from its {total} ' if total else ''}queries"

    def label(self, cell: str) -> str:
        """The name of a cell in tables and plots."""
        labels = {system.cell: system.label for system in self.cells}
        labels |= {system.name: system.label for system in self.interpolated}
        return (labels | {FIRST_STAGE: self.first_stage_name})[cell]

    @property
    def first_stage_name(self) -> str:
        """`BM25`, or `first stage` where its name is not known."""
        return str(self.about.collection.get("first_stage") or "first stage")

    @property
    def first_stage_mean(self) -> float | None:
        """The primary measure of the candidates in their order: that of their row, which has the
        depth and the queries of all others, else as the plan measured it; None where unknown."""
        if self.first_stage is not None:
            return self.first_stage.mean(self.primary)
        return self.about.first_stage.get(self.primary)


def load_sweep(where: Records | Path, values: pd.DataFrame | None = None) -> Sweep:
    """The sweep of some records, or of a folder; raises `BadInput` with the file and the broken
    rule. `values` replace the per-query values on disk; the trials are then not checked."""
    records = find_sweep(str(where)) if isinstance(where, Path) else where
    follow_driver(records)
    file = read_sweep_file(records)
    states = planned_states(records, file)
    trials, failures = trial_table(states, file), failure_table(states)
    if values is None:
        _check_trials(records, states)
        _check_files(records.folder, file)
        values = read_scores(records, [state.name for state in states if state.status.used])
    own = {cell: baseline for cell, baseline in file.baselines.items() if cell != baseline}
    labels = [cell.label or cell.cell for cell in file.cells]
    left = len(file.excluded) - _EXCLUDED
    more = (f"Excluded: {left:,} more points.",) if left > 0 else ()
    sweep = Sweep(
        about=file,
        records=records,
        slots=(file.baseline, own) if own else (file.baseline,),
        deterministic=file.deterministic,
        cells=tuple(
            replace(cell, config={}, label=label if labels.count(label) == 1 else named)
            for cell, label in zip(file.cells, labels, strict=True)
            for named in [f"{label} ({cell.cell})"]
        ),
        trials=trials,
        failures=failures,
        scores=_scores(records.folder, values, trials, split=file.split, measures=file.measures),
        dev_scores=of_split(values, "dev", file.primary),
        collections={"": file.measures},
        indexes=index_facts(records, file.cells, states),
        selected_blocks=selected_blocks(records, states),
        machines=machines_of(states),
        hours=hours_on(states, file.flags),
        workers=mean_workers(states, file.flags),
        measured=_measured(records, file, states),
        notes=tuple(f"Excluded: {point}." for point in file.excluded[:_EXCLUDED]) + more,
        look=number_of_look(
            read_accesses(records.folder / ACCESS_FILE),
            file.split,
            set(trials.loc[trials["status"].isin(USED), "seed"]),
        ),
    )
    return with_clusters(sweep)


def _measured(
    records: Records, file: SweepFile, states: Iterable[State]
) -> dict[str, dict[str, float]]:
    """The measured costs of every cell with scores, where the sweep's flags name one."""
    found: dict[str, dict[str, float]] = {}
    if not {*file.objectives, *file.at_most, *file.cost_weights} & {*MEASURED}:
        return found
    trials: dict[str, list[str]] = {}
    for state in states:
        if state.status.used:
            trials.setdefault(state.cell, []).append(state.name)
    folds = {cell.cell: int(cell.config.get("evaluation.folds", 0)) for cell in file.cells}
    for cell, names in trials.items():
        for cost, value in measured_costs(records, names, folds=folds[cell]).items():
            found.setdefault(cost, {})[cell] = value
    return found


def with_clusters(sweep: Sweep, given: str | ClusterOf = "") -> Sweep:
    """A stored sweep with the clusters that `given` names; with "" those of its command, with none
    no clusters. Without clusters it knows which queries share relevant documents."""
    own = queries_of_sweep(sweep.folder, sweep.split)
    name = next(iter(sweep.collections))
    sweep = replace(sweep, sharing={name: own.sharing})
    if given == NONE or not (given or sweep.tests.clusters):
        return replace(sweep, clusters=None)
    if not given:  # checked by the sweep's command
        return replace(
            sweep, clusters=Clusters(str(sweep.tests.clusters), {name: own.facts.cluster})
        )
    found = clusters_from(given, {name: own})
    check_clusters(found, {name: sorted(map(str, sweep.scores["query_id"].unique()))})
    return replace(sweep, clusters=found)


def in_clusters(sweep: Sweep, matrix: ScoreMatrix, collection: str | None = None) -> ScoreMatrix:
    """The matrix in the clusters of the queries of a collection, by default of the first; without
    clusters itself."""
    if sweep.clusters is None:
        return matrix
    name = next(iter(sweep.collections)) if collection is None else collection
    return clustered(matrix, sweep.clusters.of[name])


def keeps_chunk_scores(about: SweepFile) -> bool:
    """True where every cell scored all chunks of its documents once, by a model as it is, and kept
    the scores: aggregations of them say more than the cells."""
    scored = {
        "evaluation.keep_chunk_scores": True,
        "training.num_epochs": 0,
        "evaluation.folds": 0,
    }
    return {*about.deterministic} >= {cell.cell for cell in about.cells} and all(
        all(cell.config.get(name) == value for name, value in scored.items())
        and _scores_every_chunk(str(cell.config.get("model.name")))
        for cell in about.cells
    )


def _scores_every_chunk(model: str) -> bool:
    if model not in MODELS:  # what a folder names is never imported
        return False
    kind = model_class(model)
    return kind.keeps_chunk_scores and not kind.first_chunk_only


def trial_config(records: Records, name: str) -> TrialConfig:
    """The settings of a finished trial; raises `DamagedTrial`."""
    return TrialConfig().override(
        parsed_json(records.read(name, "config.json"), f"{name}/config.json")
    )


def planned_states(records: Records, file: SweepFile) -> list[State]:
    """The trials of the plan that had an attempt or have a result, cell by cell; of a deterministic
    cell its first seed alone, whose run those of other seeds repeat."""
    names = [
        trial_name(cell.cell, seed)
        for cell in file.cells
        for seed in (file.seeds[:1] if cell.cell in file.deterministic else sorted(file.seeds))
    ]
    return [state for state in records.states(names).values() if state.num_attempts]


def trial_table(states: Iterable[State], file: SweepFile) -> pd.DataFrame:
    """A row per trial: `TRIAL_COLUMNS`, the swept settings and the costs."""
    settings = {cell.cell: cell.settings for cell in file.cells}
    swept = dict.fromkeys(name for values in settings.values() for name in values)
    rows = [
        [
            *(state.cell, state.seed, str(state.status), state.reason, state.num_attempts),
            *(settings[state.cell].get(name) for name in swept),
            *(float(state.facts.get(name, "nan")) for name in COSTS),
        ]
        for state in states
    ]
    return pd.DataFrame(rows, columns=[*TRIAL_COLUMNS, *swept, *COSTS])


def failure_table(states: Iterable[State]) -> pd.DataFrame:
    """A row per lost attempt."""
    rows = [
        (state.cell, state.seed, number, time, lost.node, lost.kind, lost.reason, lost.again)
        for state in states
        for number, lost in enumerate(state.counted_attempts, start=1)
        if lost.lost and lost.ended
        for time in [datetime.fromtimestamp(lost.ended / 1000, UTC).isoformat(timespec="seconds")]
    ]
    table = pd.DataFrame(rows, columns=list(FAILURE_COLUMNS))
    return table.sort_values("time", kind="stable", ignore_index=True)


def _check_trials(records: Records, states: Iterable[State]) -> None:
    """Refuses a sweep with a damaged trial."""
    found = {state.name: records.damage(state, thorough=False) for state in states}
    if damaged := [f"{name}/{text}" for name, text in found.items() if text]:
        raise BadInput(f"{records.uri}: {names_text(damaged, 5)}; {REMEDY}")


def _check_files(folder: Path, file: SweepFile) -> None:
    """Refuse changed judgments and candidates, which would mix two sets in one table."""
    for name, known in file.files.items():
        path = folder / name
        if os.path.lexists(path) and sha256(read_file(path)).hexdigest() != known:
            raise BadInput(
                f"{path} was changed after the sweep's command wrote it; "
                f"{written_again(file.command)}"
            )


def _scores(
    path: Path, table: pd.DataFrame, trials: pd.DataFrame, *, split: str, measures: tuple[str, ...]
) -> pd.DataFrame:
    """The per-query scores of the used trials; every used trial must have every measure."""
    used = trials[trials["status"].isin(USED)]
    chosen = of_split(table, split, *measures)
    present = set(chosen.groupby(["cell", "seed", "measure"], observed=True).size().index)
    for cell, seed in zip(used["cell"], used["seed"], strict=True):
        if missing := [measure for measure in measures if (cell, seed, measure) not in present]:
            raise BadInput(
                f"{path}: every done or collapsed trial must have {missing[0]} on {split}; "
                f"{cell} seed {seed} has none"
            )
    return chosen


def of_split(table: pd.DataFrame, split: str, *measures: str) -> pd.DataFrame:
    """The values of some measures on a split; those on dev are the only ones that may choose a
    cell."""
    chosen = table[(table["split"] == split) & table["measure"].isin(measures)]
    return chosen[list(SCORE_COLUMNS)].reset_index(drop=True)
