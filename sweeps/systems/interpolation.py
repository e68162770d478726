"""The first stage, and finished trials interpolated with it, as systems beside the trained ones.
They are computed from the kept runs of dev and test and the scores of the candidates, without a
model or a GPU.

`interpolated/<trial>.<normalisation>.parquet` holds the values of one trial with the alpha that its
dev queries chose, `interpolated/first_stage.parquet` those of the first stage. Each has the hashes
of its inputs and is written again when one has changed.
"""

import hashlib
import io
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rank_core.bounds import check_parquet
from rank_core.data.trec import read_qrels, read_run
from rank_core.errors import BadInput
from rank_core.evaluate import in_one_order, per_query
from rank_core.files import atomic_write, file_sha256
from rank_core.parsing import parsed_json
from rank_core.progress import reported
from rank_core.ranking.interpolation import ALPHAS, DEFAULT, Mixture, choose_alpha, mixture
from rank_core.records import EVALUATED, Qrels, Run
from sweeps.store.records import RESULT, Records, trial_name
from sweeps.store.scores import SCORE_COLUMNS
from sweeps.store.sweep_file import FIRST_STAGE, INTERPOLATED, Cell, written_again
from sweeps.systems.load import Sweep
from sweeps.systems.system import Kind, System, seed_means

VERSION = 1  # of what the stored tables hold
_KEY = b"ranksweep"
FOLDS = "folds.parquet"


class Fusion(NamedTuple):
    """How a system is mixed with the first stage."""

    name: str = FIRST_STAGE  # behind the cell's, in the name of the row
    word: str = ""  # before the first stage's name in its label
    normalise: str = DEFAULT
    alpha: float | None = None  # None: dev chooses
    union: bool = False  # of the documents of both


RERANKED = (Fusion(),)
"""A reranker's candidates have both scores."""
RETRIEVED = (
    Fusion(union=True),
    Fusion("rrf", "RRF ", "reciprocal-rank", alpha=0.5, union=True),
)
"""A retriever has documents of its own; reciprocal ranks (Cormack et al. 2009) need no dev."""


@dataclass(frozen=True)
class MixtureInputs:
    """The files of a sweep from which all of its interpolated trials are computed."""

    records: Records
    measures: tuple[str, ...]
    primary: str
    splits: tuple[str, ...] = EVALUATED
    alphas: Mapping[str, float] = field(default_factory=dict)
    """{trial: its alpha} of a test set, chosen on dev of the collection that trained its model."""

    @classmethod
    def of(cls, sweep: Sweep) -> "MixtureInputs":
        """Those of a stored sweep."""
        described = sweep.about.files  # of an older version without any
        splits = tuple(s for s in EVALUATED if not described or f"qrels/{s}.qrels" in described)
        facts = sweep.measures, sweep.primary, splits, sweep.about.alphas
        return cls(sweep.stored, *facts)

    @cached_property
    def key(self) -> str:
        """The hash of all of them."""
        paths = [path for split in self.splits for path in self.paths(split)]
        recipe = [VERSION, ALPHAS, self.measures, self.primary, DEFAULT]
        content = json.dumps([*recipe, *map(_digest, paths)])
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def read(self) -> dict[str, tuple[Run, Qrels]]:
        """{split: its candidates and judgments}."""
        return {
            split: (self.runs[split], read_qrels(self.paths(split)[1])) for split in self.splits
        }

    @cached_property
    def runs(self) -> dict[str, Run]:
        """{split: its candidates}; a bundle may have these without the judgments."""
        return {split: self.candidates(split) for split in self.splits}

    def candidates(self, split: str) -> Run:
        """The candidates of a split with their scores."""
        return read_run(self.paths(split)[0])

    def paths(self, split: str) -> tuple[Path, Path]:
        """The files of the candidates and of the judgments."""
        candidates = self.records.folder / FIRST_STAGE / f"{split}.run.gz"
        return candidates, self.records.folder / "qrels" / f"{split}.qrels"


def _digest(path: Path) -> str:
    """The SHA-256 of a file."""
    note = _note(path)
    return note.read_text("utf-8").partition(" ")[0] if note.is_file() else file_sha256(path)


def _note(path: Path) -> Path:
    """The file beside with the SHA-256, which a bundle may have alone."""
    return path.with_name(f"{path.name}.sha256")


def missing_input(sweep: Sweep) -> str:
    """The first file of candidates or judgments that rows with the first stage need and that is
    gone, with the remedy; "" for none."""
    folder, inputs = sweep.folder, MixtureInputs.of(sweep)
    kept = (folder / FIRST_STAGE).is_dir()
    for path in sorted(path for split in inputs.splits for path in inputs.paths(split)):
        name = path.relative_to(folder).as_posix()
        if not (path.is_file() or _note(path).is_file()) and (kept or name in sweep.about.files):
            return f"{name} is missing; {written_again(sweep.about.command)}"
    return ""


def first_stage_of(sweep: Sweep) -> System | None:
    """The candidates as the first stage ranks them; None where a cell is the first stage."""
    if "bm25" in {cell.settings.get("model.name") for cell in sweep.cells}:
        return None
    scores, label = first_stage_scores(sweep), sweep.first_stage_name
    return System(
        cell=Cell(FIRST_STAGE, label, label),
        seed_means=seed_means(scores, sweep.measures),
        statuses={},
        kind=Kind.FIRST_STAGE,
        scores=scores,
        deterministic=True,
        dev=_first_stage_dev(sweep),
    )


def _first_stage_dev(sweep: Sweep) -> dict[int, float]:
    """The mean of the candidates on dev; `sweep.json` of ranksweep 0.3 does not have it, and a
    bundle of that version has not their values: empty then."""
    table = _first_stage_values(sweep)
    on_dev = (table["split"] == "dev") & (table["measure"] == sweep.primary)
    known = sweep.about.first_stage_dev.get(sweep.primary)
    mean = float(table.loc[on_dev, "value"].mean()) if known is None else known
    return {} if math.isnan(mean) else {sweep.about.seeds[0]: mean}


def first_stage_scores(sweep: Sweep, split: str = "") -> pd.DataFrame:
    """The values of the candidates in the first stage's order, by default on the reported split."""
    table = _first_stage_values(sweep)
    return table[table["split"] == (split or sweep.split)].reset_index(drop=True)


def _first_stage_values(sweep: Sweep) -> pd.DataFrame:
    """The same of dev and test."""
    inputs = MixtureInputs.of(sweep)

    def values() -> pd.DataFrame:
        tables = []
        for split in inputs.splits:
            run, qrels = inputs.read[split]
            tables.append(per_query(qrels, run, inputs.measures).assign(split=split))
        scores = pd.concat(tables, ignore_index=True)
        scores = scores.assign(cell=FIRST_STAGE, seed=sweep.about.seeds[0])
        return scores[list(SCORE_COLUMNS)]

    path = sweep.folder / INTERPOLATED / f"{FIRST_STAGE}.parquet"
    made_of = {"inputs": inputs.key}
    ties = {**made_of, "ties": "in the order of the run"}
    try:
        return _cached(path, {**ties, "splits": "dev and test"}, values)
    except (BadInput, OSError):  # a bundle that has the hash of its judgments alone
        if (stored := _stored(path, ties)) is not None:
            return stored
        # Measures of older tables are of one ranking where no scores tie.
        stored, run = _stored(path, made_of), inputs.candidates(sweep.split)
        if stored is None or any(in_one_order(docs) is not docs for docs in run.values()):
            raise
        return stored


def interpolate_cells(sweep: Sweep, cells: Iterable[str]) -> tuple[System, ...]:
    """The systems derived from those `cells` that have a finished trial and may be interpolated."""
    if not (sweep.folder / FIRST_STAGE).is_dir():
        raise BadInput(
            f"{sweep.folder} has no {FIRST_STAGE}/ with the scores of the candidates; the sweep's "
            "command writes it and repeats no finished trial"
        )
    inputs = MixtureInputs.of(sweep)
    systems, used = [], sweep.used
    for cell in (cell for cell in sweep.cells if cell.cell in set(cells)):
        seeds = sorted(map(int, used.loc[used["cell"] == cell.cell, "seed"]))
        if seeds and why_not(cell) == "":
            for fusion in RETRIEVED if cell.retrieves else RERANKED:
                systems.append(_interpolated(sweep, cell, seeds, inputs, fusion))
    return tuple(systems)


def why_not(cell: Cell) -> str:
    """The reason why a cell is not interpolated; "" where it is."""
    return cell.not_interpolated


def _interpolated(
    sweep: Sweep, cell: Cell, seeds: Sequence[int], inputs: MixtureInputs, fusion: Fusion
) -> System:
    description = f"{sweep.label(cell.cell)} interpolated with the first stage"
    tables = {
        seed: trial_table(trial_name(cell.cell, seed), inputs, fusion)
        for seed in reported(seeds, description, total=len(seeds))
    }
    name, table = f"{cell.cell}+{fusion.name}", pd.concat(tables.values())
    # At alpha 0 all seeds are the first stage: one run, whose seeds would seem to agree by a
    # miracle.
    same = cell.cell in sweep.deterministic or bool((table["alpha"] == 0).all())
    shown = (table["split"] == sweep.split) & (table["seed"].isin(seeds[:1] if same else seeds))
    scores = table.assign(cell=name).loc[shown, list(SCORE_COLUMNS)]
    used = sweep.used[sweep.used["cell"] == cell.cell]
    on_dev = table[(table["split"] == "dev") & (table["measure"] == sweep.primary)]
    return System(
        cell=Cell(
            name, f"{sweep.label(cell.cell)} +{fusion.word}{sweep.first_stage_name}", cell.group
        ),
        seed_means=seed_means(scores, sweep.measures),
        statuses=dict(zip(map(int, used["seed"]), map(str, used["status"]), strict=True)),
        kind=Kind.INTERPOLATED,
        of=cell.cell,
        scores=scores,
        deterministic=same,
        dev={
            int(k): float(v)
            for k, v in on_dev.groupby("seed", observed=True)["value"].mean().items()
        },
        alphas={}
        if fusion.alpha is not None
        else {seed: tuple(dict.fromkeys(rows["alpha"])) for seed, rows in tables.items()},
        lists={
            seed: partial(_lists, inputs, rows, sweep.split, fusion)
            for seed, rows in tables.items()
        },
    )


def _lists(
    inputs: MixtureInputs,
    table: pd.DataFrame,
    split: str,
    fusion: Fusion,
    queries: Collection[str],
) -> dict[str, list[str]]:
    """The documents of some queries in the order of an interpolated trial, whose `table` has the
    alpha of each."""
    rows = table[(table["split"] == split) & table["query_id"].isin(set(queries))]
    if rows.empty:
        return {}
    name = trial_name(rows["cell"].iloc[0], rows["seed"].iloc[0])
    run = read_run(inputs.records.trial_folder(name) / f"{split}.run.gz")
    lists: dict[str, list[str]] = {}
    for alpha, some in rows.groupby("alpha", observed=True)["query_id"]:
        part = {query_id: run[query_id] for query_id in some.unique() if query_id in run}
        mixed = _mixed(part, inputs.runs[split], fusion).at(float(str(alpha)))
        lists |= {query_id: list(ranked) for query_id, ranked in mixed.items()}
    return lists


def _mixed(run: Run, first_stage: Run, fusion: Fusion) -> Mixture:
    return mixture(run, first_stage, fusion.normalise, union=fusion.union)


def trial_table(name: str, inputs: MixtureInputs, fusion: Fusion = RERANKED[0]) -> pd.DataFrame:
    """`cell, seed, split, query_id, measure, value, alpha` of an interpolated trial, on dev and
    test; every fold has its own alpha. Read from disk where its inputs are the same."""
    path = inputs.records.folder / INTERPOLATED / f"{name}.{fusion.normalise}.parquet"
    records = inputs.records
    trial = hashlib.sha256(records.read(name, RESULT)).hexdigest()

    def values() -> pd.DataFrame:
        facts = records.result(name).facts
        scores = _interpolate(records, name, inputs, fusion).assign(
            cell=facts["cell"], seed=facts["seed"]
        )
        return scores[[*SCORE_COLUMNS, "alpha"]]

    made_of = {"inputs": inputs.key, "trial": trial}
    if name in inputs.alphas:
        made_of["alpha"] = str(inputs.alphas[name])
    return _cached(path, made_of, values)


def _cached(
    path: Path, made_of: Mapping[str, str], values: Callable[[], pd.DataFrame]
) -> pd.DataFrame:
    """The table at `path` if it is whole and its inputs are the same; otherwise `values()`, written
    there."""
    stored = _stored(path, made_of)
    if stored is not None:
        return stored
    made = pa.Table.from_pandas(values(), preserve_index=False)
    table = made.to_pandas()
    key = json.dumps({**made_of, "values": _values_digest(table)}).encode()
    keyed = made.replace_schema_metadata({**(made.schema.metadata or {}), _KEY: key})
    with suppress(OSError):  # a read-only sweep computes it each time
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as unfinished:
            pq.write_table(keyed, unfinished, compression="zstd")
    return table


def _stored(path: Path, made_of: Mapping[str, str]) -> pd.DataFrame | None:
    """The table at `path` if it is whole and its inputs are the same."""
    with suppress(Exception):  # pyarrow has many kinds
        stored = check_parquet(pq.ParquetFile(path), path, path.stat().st_size).read()
        table, key = stored.to_pandas(), parsed_json(stored.schema.metadata[_KEY])
        # The digest of the values too: a table that somebody edited is made again.
        if key == {**made_of, "values": _values_digest(table)}:
            return table
    return None


def _values_digest(table: pd.DataFrame) -> str:
    rows = pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes()
    return hashlib.sha256(f"{list(table)}".encode() + rows).hexdigest()


def _interpolate(
    records: Records, name: str, inputs: MixtureInputs, fusion: Fusion
) -> pd.DataFrame:
    """The values of a trial whose alpha is chosen on dev, in each of its folds, or given."""
    runs = {}
    for split in inputs.splits:
        records.read(name, f"{split}.run.gz")  # checks it
        runs[split] = read_run(records.trial_folder(name) / f"{split}.run.gz")
    tables = []
    for queries in _folds(records, name, inputs):
        sides = {}
        for split in inputs.splits:
            run = {query: runs[split][query] for query in queries[split] if query in runs[split]}
            try:
                sides[split] = _mixed(run, inputs.read[split][0], fusion)
            except BadInput as error:
                raise BadInput(f"{name}, {split}: {error}") from None
        alpha = _alpha(name, sides, inputs) if fusion.alpha is None else fusion.alpha
        for split in inputs.splits:
            qrels = {query: inputs.read[split][1][query] for query in queries[split]}
            values = per_query(qrels, sides[split].at(alpha), inputs.measures)
            tables.append(values.assign(split=split, alpha=alpha))
    return pd.concat(tables, ignore_index=True)


def _alpha(name: str, sides: Mapping[str, Mixture], inputs: MixtureInputs) -> float:
    """The weight that dev chooses: of the trial's own collection, or of the one that its model was
    trained on."""
    if "dev" in sides:  # on dev alone; test is mixed with what dev has chosen
        return choose_alpha(sides["dev"], inputs.read["dev"][1], inputs.primary)
    if name not in inputs.alphas:
        raise BadInput(
            f"{name}: there is no dev split here, and no weight of the first stage from the "
            "collection that its model was trained on"
        )
    return inputs.alphas[name]


def _folds(records: Records, name: str, inputs: MixtureInputs) -> list[dict[str, list[str]]]:
    """{split: its judged queries} of each model of the trial. A dev query of one fold is a test
    query of another, so a fold chooses by its own dev alone."""
    judged = {split: list(inputs.read[split][1]) for split in inputs.splits}
    if FOLDS not in records.result(name).files:
        return [judged]
    content = records.read(name, FOLDS)
    file = pq.ParquetFile(io.BytesIO(content))
    table = check_parquet(file, f"{name}/{FOLDS}", len(content)).read().to_pandas()
    ids_of = table.groupby(["fold", "split"], observed=True)["query_id"].agg(set)
    return [
        {split: [one for one in ids if one in ids_of[fold, split]] for split, ids in judged.items()}
        for fold in sorted(set(table["fold"]))
    ]
