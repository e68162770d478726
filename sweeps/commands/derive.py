"""`ranksweep derive DIR`: other aggregations, fewer chunks and coarser strides of the chunk scores
that finished trials kept. It loads no model."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rank_core.data.trec import read_qrels
from rank_core.errors import BadInput, unknown
from rank_core.evaluate import per_query
from rank_core.files import atomic_write
from rank_core.models import POOLING
from rank_core.models.passage_scores import KMaxAvgP
from rank_core.ranking.chunk_scores import CHUNK_SCORES, derived_config, derived_run, read_chunks
from rank_core.records import Qrels
from rank_core.settings.config import TrialConfig
from rank_core.stats.compare import Comparison, compare_pairs
from rank_core.stats.matrix import score_matrix
from rank_core.stats.multiplicity import CORRECTION_NAMES
from sweeps.plan.command_line import Parser, check_writable
from sweeps.plan.experiment import model_and_windows
from sweeps.plan.terminal import numbered, say, shortened
from sweeps.report.load import Sweep, load_sweep
from sweeps.report.notation import (
    TWO_RUNS_WORDS,
    decisive_p,
    has_two_runs,
    level_text,
    short_interval,
    short_signed,
)
from sweeps.report.table import Table, TableCell, csv_text, markdown, table, terminal_lines, wrapped
from sweeps.store.sweep_file import find_sweep, opened, send
from sweeps.store.trial_status import USED

MARK = "inference-only"
_LABEL = 34
_OWN = "cell label kind model k window stride max_chunks seeds".split()
_TESTED = "delta ci_low ci_high p_queries p_both p_both_adjusted".split()
FILES = ("derived.md", "derived.csv")


class Asked(NamedTuple):
    """A system to derive from every trial; 0 is the trial's own value."""

    name: str  # of the aggregation: an entry of `POOLING`
    k: int = 0
    stride: int = 0
    max_chunks: int = 0

    def settings(self) -> dict[str, object]:
        """The settings that differ from the trial's."""
        names = ("model.name", "model.k", "chunking.stride", "chunking.max_chunks")
        return {name: value for name, value in zip(names, self, strict=True) if value}


@dataclass
class DerivedCell:
    """A trained cell and the systems derived from its trials."""

    cell: str
    label: str
    seeds: tuple[int, ...]  # that kept their chunk scores
    trained: TrialConfig
    configs: dict[str, TrialConfig] = field(default_factory=dict)  # {derived system: its settings}
    reasons: list[str] = field(default_factory=list)  # why systems are not derived
    tables: list[pd.DataFrame] = field(default_factory=list)  # per query, of all these systems


@dataclass(frozen=True)
class Derived:
    """All cells, and the comparisons of every derived system with its trained cell."""

    sweep: Sweep
    cells: list[DerivedCell]
    comparisons: dict[tuple[str, str], Comparison]  # {(system, measure)}
    means: dict[tuple[str, str], float]  # over seeds and queries

    @property
    def rows(self) -> list[tuple[DerivedCell, str, str]]:
        """(cell, system, label): each trained cell before its derived systems."""
        rows = []
        for cell in self.cells:
            rows.append((cell, cell.cell, cell.label))
            rows += [(cell, name, _label(config)) for name, config in cell.configs.items()]
        return rows


def main(argv: Sequence[str]) -> int:
    """Aggregate the kept chunk scores of a sweep's finished trials in other ways, print the table
    and write derived.csv and derived.md into DIR/report or --out."""
    given = _parser().parse_args(argv)
    systems = _asked(given)
    with opened(given.sweep) as records:
        out = given.out or records.folder / "report"
        check_writable("--out (default DIR/report)", out)
        derived = derive(records.folder, systems)
        out.mkdir(parents=True, exist_ok=True)
        drawn = markdown(derived_table(derived, derived.sweep.measures)) + _left_out(derived)
        for name, text in zip(FILES, (drawn, _csv(derived)), strict=True):
            with atomic_write(out / name) as unfinished:
                unfinished.write_text(text, encoding="utf-8")
        if not given.out:
            send(records, *(f"report/{name}" for name in FILES))
    others = [measure for measure in derived.sweep.measures if measure != derived.sweep.primary]
    shown = derived_table(derived, [derived.sweep.primary, *others[:1]], short=True)
    say("\n".join([*terminal_lines(shown), "", *wrapped(shown.caption)]))
    for line in _left_out(derived).splitlines():
        say("\n".join(wrapped(line)))
    say(f"Tables: {given.out or f'{records.uri}/report'}/{', '.join(FILES)}")
    return 0


def derive(folder: Path, systems: Sequence[Asked]) -> Derived:
    """The trained cells that kept chunk scores, and the systems derived from each."""
    sweep, records = load_sweep(folder), find_sweep(str(folder))
    qrels = read_qrels(folder / "qrels" / f"{sweep.split}.qrels")
    used = sweep.trials[sweep.trials["status"].isin(USED)]
    seeds: dict[str, tuple[int, ...]] = {}
    for cell, seed in zip(used["cell"], map(int, used["seed"]), strict=True):
        if CHUNK_SCORES in records.result(f"{cell}-seed{seed}").files:
            seeds[cell] = (*seeds.get(cell, ()), seed)
    if not seeds:
        raise BadInput(
            f"none of the {len(used)} finished trials in {folder} has kept its chunk scores. Run "
            "the sweep in another --storage with evaluation.keep_chunk_scores=true"
        )
    cells = [_derived_cell(sweep, cell, own, systems, qrels) for cell, own in seeds.items()]
    if not any(cell.configs for cell in cells):
        raise BadInput(cells[-1].reasons[-1])
    table = pd.concat([table for cell in cells for table in cell.tables])
    means = table.groupby(["cell", "measure"])["value"].mean()
    compared = {(pair.system, pair.measure): pair for pair in _comparisons(sweep, cells, table)}
    return Derived(sweep, cells, compared, means.to_dict())


def _derived_cell(
    sweep: Sweep, cell: str, seeds: tuple[int, ...], systems: Sequence[Asked], qrels: Qrels
) -> DerivedCell:
    scores = sweep.scores
    records = find_sweep(str(sweep.folder))
    settings = json.loads(records.read(f"{cell}-seed{seeds[0]}", "config.json"))
    derived = DerivedCell(cell, sweep.label(cell), seeds, TrialConfig().override(settings))
    derived.tables.append(scores[(scores["cell"] == cell) & scores["seed"].isin(seeds)])
    if derived.trained.model.name == "firstp":
        derived.reasons.append("a FirstP trial reads and keeps only the first chunk")
        return derived
    for system in systems:
        try:
            config = derived_config(derived.trained, system.settings())
        except BadInput as error:
            derived.reasons.append(str(error))
            continue
        known = [_explicit(other) for other in (derived.trained, *derived.configs.values())]
        if _explicit(config) not in known:
            derived.configs[f"{cell} {' '.join(map(str, system))}"] = config
    for seed in seeds if derived.configs else ():
        trial = f"{cell}-seed{seed}"
        records.read(trial, CHUNK_SCORES)  # checks it
        kept = read_chunks(records.trial_folder(trial), sweep.split)
        for name, config in list(derived.configs.items()):
            try:
                values = per_query(qrels, derived_run(kept, config), sweep.measures)
            except BadInput as error:
                derived.reasons.append(str(error))
                del derived.configs[name]
                continue
            derived.tables.append(values.assign(cell=name, seed=seed, split=sweep.split))
    return derived


def _comparisons(
    sweep: Sweep, cells: Sequence[DerivedCell], table: pd.DataFrame
) -> list[Comparison]:
    """The comparisons of every derived system with its trained cell. Both have the same weights, so
    their seeds are paired."""
    pairs = [(name, cell.cell) for cell in cells for name in cell.configs]
    names = {cell.cell: (cell.cell, *cell.configs) for cell in cells}
    compared: list[Comparison] = []
    for measure in sweep.measures:
        matrix = score_matrix(
            table,
            measure=measure,
            cells=[name for own in names.values() for name in own],
            may_agree=[name for name, _ in pairs],
        )
        compared += compare_pairs(
            matrix,
            pairs,
            correction=sweep.correction,
            alpha=sweep.alpha,
            paired_seeds=True,
            deterministic=[n for cell in names if cell in sweep.deterministic for n in names[cell]],
        )
    return compared


def _explicit(config: TrialConfig) -> TrialConfig:
    """The settings with the default k filled in."""
    if config.model.name != "kmax-avgp":
        return config
    return config.override({"model.k": config.model.k or KMaxAvgP.DEFAULT_K})


def _label(config: TrialConfig) -> str:
    """`KMaxAvgP 150/75, k 3, 4 chunks`."""
    parts = [model_and_windows(config)]
    if config.model.name == "kmax-avgp":
        parts.append(f"k {config.model.k or KMaxAvgP.DEFAULT_K}")
    if count := config.chunking.max_chunks:
        parts.append(numbered(count, "chunk"))
    return ", ".join(parts)


def derived_table(derived: Derived, measures: Sequence[str], *, short: bool = False) -> Table:
    """Every row with these measures, each tested; a `short` table tests the first one alone, and
    has no intervals."""
    sweep = derived.sweep
    heading = ["system", ""]
    for measure in measures:
        tested = ["diff", "p"] if short else ["diff", f"{level_text(sweep.alpha)} interval", "p"]
        heading += [measure, *tested * (not short or measure == measures[0])]
    rows = []
    for cell, name, label in derived.rows:
        is_derived = name != cell.cell
        shown = shortened(f"{'  ' * is_derived}{label}", _LABEL) if short else label
        kind = MARK if is_derived else "trained"
        line: list[str | TableCell] = [shown, TableCell(kind, face="tied" * is_derived)]
        for measure in measures:
            line.append(f"{derived.means[name, measure]:.3f}")
            test = derived.comparisons.get((name, measure))
            tested = [short_signed(test.delta), decisive_p(test)] if test else ["", ""]
            if not short:
                tested.insert(1, short_interval(test) if test else "")
            line += tested if not short or measure == measures[0] else []
        rows.append(line)
    return table(heading, rows, "ll".ljust(len(heading), "r"), caption=_caption(derived))


def _caption(derived: Derived) -> str:
    """Rows, seeds and test."""
    sweep = derived.sweep
    seeds = sorted({len(cell.seeds) for cell in derived.cells})
    over = f"{seeds[0]} to {seeds[-1]} seeds" if seeds[1:] else numbered(seeds[0], "seed")
    family = sum(len(cell.configs) for cell in derived.cells)
    two = f" {TWO_RUNS_WORDS}" if any(map(has_two_runs, derived.comparisons.values())) else ""
    return (
        f"{sweep.name} on {sweep.split_text}, means over {over}. {MARK}: the weights of the "
        "trained cell above, another aggregation of its chunk scores; a model trained with that "
        "aggregation would have other weights. diff and p: against that cell, queries and seeds as "
        "random effects, each run paired with itself; "
        f"{CORRECTION_NAMES[sweep.correction]} over {family}.{two}"
    )


def _left_out(derived: Derived) -> str:
    return "".join(
        f"\nNot derived from {cell.label}: {reason}.\n"
        for cell in derived.cells
        for reason in dict.fromkeys(cell.reasons)
    )


def _csv(derived: Derived) -> str:
    """The rows as CSV, unrounded, a line for each system and measure."""
    rows = []
    for cell, name, label in derived.rows:
        config = cell.configs.get(name, cell.trained)
        model, chunking = config.model, config.chunking
        own = [cell.cell, label, MARK if name != cell.cell else "trained", model.name, model.k]
        own += [chunking.window, chunking.stride, chunking.max_chunks]
        own.append(" ".join(map(str, cell.seeds)))
        for measure in derived.sweep.measures:
            comparison = derived.comparisons.get((name, measure))
            tested = [getattr(comparison, column, None) for column in _TESTED]
            rows.append([*own, measure, derived.means[name, measure], *tested])
    return csv_text([*_OWN, "measure", "mean", *_TESTED], rows)


def _asked(given: argparse.Namespace) -> list[Asked]:
    """Every aggregation with every stride and number of chunks. FirstP depends on neither: it is
    derived once, and beside others only by name. Flags are checked before a file is opened."""
    cut = bool(given.strides or given.max_chunks)
    names = given.aggregators or [name for name in POOLING if name != "firstp" or not cut]
    for name in names:
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
    names = f"of {', '.join(POOLING)}; default: all that the other flags change"
    add("--aggregators", nargs="+", default=[], metavar="MODEL", help=names)
    add("--k", nargs="+", type=int, default=[KMaxAvgP.DEFAULT_K], help="of kmax-avgp")
    add("--max-chunks", nargs="+", type=int, default=[], help="fewer chunks of a document")
    add("--strides", nargs="+", type=int, default=[], help="multiples of a trial's stride")
    return parser
