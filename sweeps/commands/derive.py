"""`ranksweep derive DIR`: finished trials interpolated with the first stage, and other
aggregations, fewer chunks and coarser strides of kept chunk scores. It loads no model."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rank_core.data.trec import read_qrels
from rank_core.errors import BadInput, unknown
from rank_core.evaluate import per_query
from rank_core.models import POOLING
from rank_core.models.passage_scores import KMaxAvgP
from rank_core.ranking.chunk_scores import CHUNK_SCORES, derived_config, derived_run, read_chunks
from rank_core.ranking.interpolation import DEFAULT, NORMALISATIONS
from rank_core.records import Qrels
from rank_core.settings.config import TrialConfig
from rank_core.stats.compare import Comparison, compare_pairs
from rank_core.stats.matrix import score_matrix
from sweeps.commands.derived_table import (
    Derived,
    DerivedRow,
    derived_label,
    derived_text,
    write_derived,
)
from sweeps.plan.command_line import Parser, check_writable
from sweeps.report.interpolation import interpolate_cells, why_not
from sweeps.report.load import Interpolated, Sweep, load_sweep
from sweeps.store.checksums import read_checked
from sweeps.store.opened_sweep import opened
from sweeps.store.storage_retry import answered
from sweeps.store.sweep_file import FIRST_STAGE, INTERPOLATED
from sweeps.store.trial_status import USED


class Asked(NamedTuple):
    """A system to derive from every trial; 0 is the trial's own value."""

    name: str  # of the aggregation: an entry of `POOLING`
    k: int = 0
    stride: int = 0
    max_chunks: int = 0

    def settings(self) -> dict[str, object]:
        """The settings that differ from the trial's."""
        numbers = {
            "model.k": self.k,
            "chunking.stride": self.stride,
            "chunking.max_chunks": self.max_chunks,
        }
        return {"model.name": self.name} | {n: value for n, value in numbers.items() if value}


@dataclass
class _Cell:
    """A trained cell and the systems derived from its trials."""

    cell: str
    seeds: tuple[int, ...]  # that kept their chunk scores, or all with a result
    trained: TrialConfig
    interpolated: Interpolated | None = None
    configs: dict[Asked, TrialConfig] = field(default_factory=dict)
    reasons: dict[Asked, str] = field(default_factory=dict)  # why a system is not derived
    tables: list[pd.DataFrame] = field(default_factory=list)  # per query, of all these systems

    @property
    def labels(self) -> dict[str, str]:
        """{derived system: its label}."""
        own = {row.cell: row.label for row in (self.interpolated,) if row}
        return own | {name: derived_label(c) for name, c in self.configs_by_name.items()}

    @property
    def configs_by_name(self) -> dict[str, TrialConfig]:
        """{system derived from chunk scores: its settings}."""
        return {self.key(system): config for system, config in self.configs.items()}

    def key(self, system: Asked) -> str:
        """The derived system's name beside those of cells."""
        return f"{self.cell} {' '.join(map(str, system))}"


def main(argv: Sequence[str]) -> int:
    """Interpolate a sweep's finished trials with the first stage (alpha x model + (1 - alpha) x
    first stage; alpha of each trial chosen on dev) and aggregate kept chunk scores in other ways.
    Print the table and write derived.csv and derived.md into DIR/report or --out."""
    given = _parser().parse_args(argv)
    systems = _asked(given)
    with opened(given.sweep, trials=True) as store:
        out = given.out or store.folder / "report"
        check_writable("--out (default DIR/report)", out)
        named = given.normalise or given.aggregators or given.strides or given.max_chunks
        derived = derive(store.folder, systems, given.normalise, every=not named)
        markdown, table = write_derived(derived, out)
        if not given.out:
            changed = [*(f"report/{path.name}" for path in (markdown, table)), INTERPOLATED]
            answered(store, lambda: store.push(*changed))
    print(derived_text(derived), end="")
    print(f"Tables: {given.out or f'{store.uri}/report'}/{markdown.name}, {table.name}")
    return 0


def derive(
    folder: Path, systems: Sequence[Asked], normalise: str = "", *, every: bool = False
) -> Derived:
    """The trained cells and the systems derived from each: those in `asked` from its chunk scores,
    and its interpolation with the first stage, normalised by `normalise`; with `every`, all systems
    whose files exist."""
    sweep = load_sweep(folder)
    qrels = read_qrels(folder / "qrels" / f"{sweep.split}.qrels")
    if every and (folder / FIRST_STAGE).is_dir():
        normalise = DEFAULT
    used = _used_seeds(sweep)
    kept = _seeds_that_kept(sweep, used, needed=not (every and normalise)) if systems else {}
    mixed = {row.of: row for row in interpolate_cells(sweep, used, normalise)} if normalise else {}
    cells = [
        _derived_cell(sweep, cell, kept.get(cell, seeds), systems if cell in kept else (), qrels)
        for cell, seeds in used.items()
        if cell in kept or cell in mixed
    ]
    if not cells:
        raise BadInput(f"no cell of {folder} can be interpolated with its first stage")
    for system in systems if kept and not mixed else ():
        reasons = [cell.reasons.get(system) for cell in cells if cell.cell in kept]
        if all(reasons):
            raise BadInput(str(reasons[-1]))
    for cell in cells:
        if interpolated := mixed.get(cell.cell):
            cell.interpolated = interpolated
            own = interpolated.scores["seed"].isin(cell.seeds) | interpolated.deterministic
            cell.tables.append(interpolated.scores[own])
    compared = {(c.system, c.measure): c for c in _comparisons(sweep, cells)}
    tables = pd.concat([table for cell in cells for table in cell.tables])
    means = tables.groupby(["cell", "measure"])["value"].mean()
    values = {(str(c), str(m)): float(v) for (c, m), v in means.items()}
    rows = [
        DerivedRow(
            cell=cell.cell,
            label=label,
            derived=name != cell.cell,
            config=cell.configs_by_name.get(name, cell.trained),
            seeds=cell.seeds,
            means={measure: values[name, measure] for measure in sweep.measures},
            comparisons={m: compared[name, m] for m in sweep.measures if name != cell.cell},
            interpolated=mixed.get(cell.cell) if name.endswith(FIRST_STAGE) else None,
        )
        for cell in cells
        for name, label in ((cell.cell, sweep.label(cell.cell)), *cell.labels.items())
    ]
    apart = [cell for cell in sweep.cells if normalise and cell.cell in used and why_not(cell)]
    left_out = [f"{sweep.label(cell.cell)}: it {why_not(cell)}." for cell in apart]
    return Derived(sweep, tuple(rows), (*_left_out(sweep, cells), *left_out))


def _derived_cell(
    sweep: Sweep, cell: str, seeds: tuple[int, ...], systems: Sequence[Asked], qrels: Qrels
) -> _Cell:
    scores = sweep.scores
    derived = _Cell(cell, seeds, _config(sweep, cell, seeds[0]))
    derived.tables.append(scores[(scores["cell"] == cell) & scores["seed"].isin(seeds)])
    for system in systems:
        if derived.trained.model.name == "firstp":
            derived.reasons[system] = "a FirstP trial reads and keeps only the first chunk"
            continue
        try:
            config = derived_config(derived.trained, system.settings())
        except BadInput as error:
            derived.reasons[system] = str(error)
            continue
        known = [_explicit(other) for other in (derived.trained, *derived.configs.values())]
        if _explicit(config) not in known:
            derived.configs[system] = config
    for seed in seeds if derived.configs else ():
        folder = _folder(sweep, cell, seed)
        read_checked(folder, CHUNK_SCORES)
        kept = read_chunks(folder, sweep.split)
        for system, config in list(derived.configs.items()):
            try:
                run = derived_run(kept, config)
            except BadInput as error:
                derived.reasons[system] = str(error)
                del derived.configs[system]
                continue
            values = per_query(qrels, run, sweep.measures)
            table = values.assign(cell=derived.key(system), seed=seed, split=sweep.split)
            derived.tables.append(table)
    return derived


def _comparisons(sweep: Sweep, cells: Sequence[_Cell]) -> list[Comparison]:
    """The comparisons of every derived system with its trained cell. Both have the same weights, so
    their seeds are paired."""
    table = pd.concat([table for cell in cells for table in cell.tables])
    pairs = [(name, cell.cell) for cell in cells for name in cell.labels]
    names = [name for cell in cells for name in (cell.cell, *cell.labels)]
    fixed = [
        name
        for cell in cells
        for name in (cell.cell, *cell.labels)
        if cell.cell in sweep.deterministic
        or (cell.interpolated and cell.interpolated.deterministic and name.endswith(FIRST_STAGE))
    ]
    derived = [name for cell in cells for name in cell.labels]
    return [
        comparison
        for measure in sweep.measures
        for comparison in compare_pairs(
            score_matrix(table, measure=measure, cells=names, may_agree=derived),
            pairs,
            correction=sweep.correction,
            alpha=sweep.alpha,
            paired_seeds=True,
            deterministic=fixed,
        )
    ]


def _left_out(sweep: Sweep, cells: Sequence[_Cell]) -> list[str]:
    return [
        f"{sweep.label(cell.cell)}: {reason}."
        for cell in cells
        for reason in dict.fromkeys(cell.reasons.values())
    ]


def _used_seeds(sweep: Sweep) -> dict[str, tuple[int, ...]]:
    """{cell: its seeds with a result}, without cells that have none."""
    used = sweep.trials[sweep.trials["status"].isin(USED)]
    seeds: dict[str, tuple[int, ...]] = {}
    for cell, seed in zip(used["cell"], map(int, used["seed"]), strict=True):
        seeds[cell] = (*seeds.get(cell, ()), seed)
    return seeds


def _seeds_that_kept(
    sweep: Sweep, used: Mapping[str, tuple[int, ...]], *, needed: bool
) -> dict[str, tuple[int, ...]]:
    """{cell: its seeds with kept chunk scores}; `BadInput` if `needed` and none has any."""
    kept = {
        cell: tuple(s for s in seeds if (_folder(sweep, cell, s) / CHUNK_SCORES).is_file())
        for cell, seeds in used.items()
    }
    if needed and not any(kept.values()):
        raise BadInput(
            "a trial of the sweep must have kept its chunk scores; none of the "
            f"{sum(map(len, used.values()))} finished trials in {sweep.folder} has. Run the sweep "
            "in another --storage with evaluation.keep_chunk_scores=true (finished trials do not "
            "run again)"
        )
    return {cell: seeds for cell, seeds in kept.items() if seeds}


def _folder(sweep: Sweep, cell: str, seed: int) -> Path:
    return sweep.folder / "runs" / f"{cell}-seed{seed}"


def _config(sweep: Sweep, cell: str, seed: int) -> TrialConfig:
    settings = json.loads(read_checked(_folder(sweep, cell, seed), "config.json"))
    return TrialConfig().override(settings)


def _explicit(config: TrialConfig) -> TrialConfig:
    """The settings with the default k filled in."""
    if config.model.name != "kmax-avgp":
        return config
    return config.override({"model.k": config.model.k or KMaxAvgP.DEFAULT_K})


def _asked(given: argparse.Namespace) -> list[Asked]:
    """Every aggregation with every stride and number of chunks. FirstP depends on neither: it is
    derived once, and beside others only by name. Flags are checked before a file is opened."""
    cut = bool(given.strides or given.max_chunks)
    if given.normalise and not (cut or given.aggregators):
        return []
    names = given.aggregators or (name for name in POOLING if name != "firstp" or not cut)
    for name in given.aggregators:
        if name not in POOLING:
            raise unknown("aggregation of chunk scores", name, POOLING)
    for flag in ("k", "strides", "max_chunks"):
        least = min(getattr(given, flag), default=1)
        if least < 1:
            raise BadInput(f"--{flag.replace('_', '-')} >= 1 must hold, got {least}")
    systems = [
        Asked(name, k, stride, max_chunks)
        for name in names
        for stride, max_chunks in product(given.strides or [0], given.max_chunks or [0])
        for k in (given.k if name == "kmax-avgp" else [0])
    ]
    return list(dict.fromkeys(Asked(s.name) if s.name == "firstp" else s for s in systems))


def _parser() -> Parser:
    parser = Parser("ranksweep derive", main.__doc__)
    parser.add_argument("sweep", metavar="DIR", help="the folder or URI of one sweep")
    add = parser.add_argument
    add("--out", type=Path, metavar="DIR", help="default: DIR/report of the sweep")
    add(
        "--aggregators",
        nargs="+",
        default=[],
        metavar="MODEL",
        help=f"of {', '.join(POOLING)}; default: all that the other flags change",
    )
    add("--k", nargs="+", type=int, default=[KMaxAvgP.DEFAULT_K], help="of kmax-avgp")
    add(
        "--normalise",
        choices=NORMALISATIONS,
        default="",
        help="interpolate with the first stage, with this normalisation of scores within a query "
        f"(default {DEFAULT}); without the other flags, only that",
    )
    add("--max-chunks", nargs="+", type=int, default=[], help="fewer chunks of a document")
    add("--strides", nargs="+", type=int, default=[], help="multiples of a trial's stride")
    return parser
