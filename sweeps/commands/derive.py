"""`ranksweep derive DIR`: other aggregations of the chunk scores that finished trials kept, without
the model."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

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
from sweeps.plan.terminal import numbered, say, shortened
from sweeps.report.aggregations import system_label
from sweeps.report.load import Sweep, load_sweep
from sweeps.report.notation import TWO_RUNS_WORDS, decisive_p, has_two_runs, short_signed
from sweeps.report.table import Table, csv_text, markdown, table, terminal_lines, wrapped
from sweeps.store.sweep_file import find_sweep, opened, send
from sweeps.store.trial_status import USED

MARK = "inference-only"
_LABEL = 34
_OWN = "cell label kind model k window stride max_chunks seeds".split()
_TESTED = "delta ci_low ci_high p_queries p_both p_both_adjusted".split()
FILES = ("derived.md", "derived.csv")

Settings: TypeAlias = Mapping[str, object]
"""Of an aggregation: its name in `POOLING`, and k."""


@dataclass
class DerivedCell:
    """A trained cell and the other aggregations of its chunk scores."""

    cell: str
    label: str
    seeds: tuple[int, ...]  # that kept their chunk scores
    trained: TrialConfig
    configs: dict[str, TrialConfig] = field(default_factory=dict)  # {derived system: its settings}
    reasons: list[str] = field(default_factory=list)  # why aggregations are not derived
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
            rows += [(cell, name, system_label(config)) for name, config in cell.configs.items()]
        return rows


def main(argv: Sequence[str]) -> int:
    """Aggregate the kept chunk scores of a sweep's finished trials in other ways, print the table
    and write derived.csv and derived.md into DIR/report or --out."""
    given = _parser().parse_args(argv)
    aggregations = _asked(given)
    with opened(given.sweep) as records:
        out = given.out or records.folder / "report"
        check_writable("--out (default DIR/report)", out)
        derived = derive(records.folder, aggregations)
        out.mkdir(parents=True, exist_ok=True)
        drawn = markdown(derived_table(derived)) + _left_out(derived)
        for name, text in zip(FILES, (drawn, _csv(derived)), strict=True):
            with atomic_write(out / name) as unfinished:
                unfinished.write_text(text, encoding="utf-8")
        if not given.out:
            send(records, *(f"report/{name}" for name in FILES))
    shown = derived_table(derived, 2)
    say("\n".join([*terminal_lines(shown), "", *wrapped(shown.caption)]))
    for line in _left_out(derived).splitlines():
        say("\n".join(wrapped(line)))
    say(f"Tables: {given.out or f'{records.uri}/report'}/{', '.join(FILES)}")
    return 0


def derive(folder: Path, aggregations: Sequence[Settings]) -> Derived:
    """The trained cells that kept chunk scores, each with these aggregations."""
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
    cells = [_derived_cell(sweep, cell, own, aggregations, qrels) for cell, own in seeds.items()]
    if not any(cell.configs for cell in cells):
        raise BadInput(next(iter(cells[-1].reasons), "these aggregations are the trials' own"))
    table = pd.concat([table for cell in cells for table in cell.tables])
    means = table.groupby(["cell", "measure"])["value"].mean()
    compared = {(pair.system, pair.measure): pair for pair in _comparisons(sweep, cells, table)}
    return Derived(sweep, cells, compared, means.to_dict())


def _derived_cell(
    sweep: Sweep, cell: str, seeds: tuple[int, ...], aggregations: Sequence[Settings], qrels: Qrels
) -> DerivedCell:
    scores, records = sweep.scores, find_sweep(str(sweep.folder))
    settings = json.loads(records.read(f"{cell}-seed{seeds[0]}", "config.json"))
    derived = DerivedCell(cell, sweep.label(cell), seeds, TrialConfig().override(settings))
    derived.tables.append(scores[(scores["cell"] == cell) & scores["seed"].isin(seeds)])
    if derived.trained.model.name == "firstp":
        derived.reasons.append("a FirstP trial reads and keeps only the first chunk")
        return derived
    known = [_explicit(derived.trained)]
    for number, changes in enumerate(aggregations):
        config = _explicit(derived_config(derived.trained, changes))
        if config not in known:
            known.append(config)
            derived.configs[f"{cell} {number}"] = config
    for seed in seeds if derived.configs else ():
        trial = f"{cell}-seed{seed}"
        records.read(trial, CHUNK_SCORES)  # checks it
        kept = read_chunks(records.trial_folder(trial), sweep.split)
        for name, config in list(derived.configs.items()):
            try:
                values = per_query(qrels, derived_run(kept, config), sweep.measures)
            except BadInput as error:  # chunks drawn at random lack the first one
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


def derived_table(derived: Derived, num_measures: int | None = None) -> Table:
    """Every row: the primary measure and its test, the means of the other measures."""
    sweep = derived.sweep
    others = [measure for measure in sweep.measures if measure != sweep.primary]
    measures = [sweep.primary, *others][:num_measures]
    rows = []
    for cell, name, label in derived.rows:
        kind = "trained" if name == cell.cell else MARK
        shown = shortened(label if name == cell.cell else f"  {label}", _LABEL)
        mean, *means = (f"{derived.means[name, measure]:.3f}" for measure in measures)
        test = derived.comparisons.get((name, sweep.primary))
        tested = [short_signed(test.delta), decisive_p(test)] if test else ["", ""]
        rows.append([shown, kind, mean, *tested, *means])
    heading = ["system", "", sweep.primary, "diff", "p", *measures[1:]]
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


def _asked(given: argparse.Namespace) -> list[Settings]:
    """The settings of each aggregation; checked before a file is opened."""
    names = given.aggregators or list(POOLING)
    for name in names:
        if name not in POOLING:
            raise unknown("aggregation of chunk scores", name, POOLING)
    if min(given.k) < 1:
        raise BadInput(f"--k >= 1 must hold, got {min(given.k)}")
    return [
        {"model.name": name, **({"model.k": k} if k else {})}
        for name in names
        for k in (given.k if name == "kmax-avgp" else [0])
    ]


def _parser() -> Parser:
    parser = Parser("ranksweep derive", main.__doc__)
    parser.add_argument("sweep", metavar="DIR", help="the folder or URI of one sweep")
    add = parser.add_argument
    add("--out", type=Path, metavar="DIR", help="default: DIR/report of the sweep")
    names = f"of {', '.join(POOLING)} (default: all)"
    add("--aggregators", nargs="+", default=[], metavar="MODEL", help=names)
    add("--k", nargs="+", type=int, default=[KMaxAvgP.DEFAULT_K], help="of kmax-avgp")
    return parser
