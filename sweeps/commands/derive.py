"""`ranksweep derive DIR`: other aggregations of the chunk scores that finished trials kept, without
the model."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from rank_core.data.trec import read_qrels
from rank_core.errors import BadInput, unknown
from rank_core.evaluate import per_query
from rank_core.models import chunk_pooling_models, model_class
from rank_core.models.kept_files import CHUNK_SCORES
from rank_core.models.passage_scores import KMaxAvgP
from rank_core.ranking.chunk_scores import derived_config, derived_run
from rank_core.records import Qrels
from rank_core.settings.config import TrialConfig
from rank_core.stats.compare import CellComparison, compare_pairs
from rank_core.stats.corrections import CORRECTION_NAMES
from rank_core.stats.matrix import score_matrices
from sweeps.report.files import write_files
from sweeps.report.table import Table, csv_text, markdown, table, terminal_lines, wrapped
from sweeps.store.records import trial_name
from sweeps.store.sweep_file import Cell, opened, send
from sweeps.systems.aggregations import kept_chunks, system_label
from sweeps.systems.load import Sweep, in_clusters, load_sweep, trial_config
from sweeps.systems.system import Kind, System, seed_means
from sweeps.terminal.command_line import Need, Parser, check_writable, needing
from sweeps.terminal.notation import TWO_RUNS_WORDS, decisive_p, has_two_runs, number, signed
from sweeps.terminal.text import numbered, say

_SETTINGS = ("model.name model.k chunking.window chunking.stride chunking.max_chunks").split()
_OWN = "cell label kind model k window stride max_chunks seeds".split()
_TESTED = "delta ci_low ci_high p_queries p_both p_both_adjusted".split()
FILES = ("derived.md", "derived.csv")

Settings: TypeAlias = Mapping[str, object]
"""Of an aggregation: its name, and k."""


def main(argv: Sequence[str]) -> int:
    """Aggregate the saved chunk scores of a sweep's finished trials in other ways, print the table
    and write derived.csv and derived.md into DIR/report or --out."""
    args = parser().parse_args(argv)
    aggregations = _asked(args)
    with opened(args.sweep) as records:
        out = args.out or records.folder / "report"
        check_writable("--out (default DIR/report)", out)
        sweep, rows = derive(records.folder, aggregations)
        texts = markdown(derived_table(sweep, rows)), _csv(sweep, rows)
        write_files(out, {n: text.encode() for n, text in zip(FILES, texts, strict=True)})
        if not args.out:
            send(records, *(f"report/{name}" for name in FILES))
    shown = derived_table(sweep, rows, 2)
    paragraphs = map(wrapped, shown.caption.split("\n\n"))
    say("\n\n".join(map("\n".join, [terminal_lines(shown), *paragraphs])))
    say(f"Tables: {args.out or f'{records.uri}/report'}/{', '.join(FILES)}")
    return 0


def derive(folder: Path, aggregations: Sequence[Settings]) -> tuple[Sweep, list[System]]:
    """The trained cells that kept chunk scores, each before its derived systems, and the
    comparisons of these with it."""
    sweep = load_sweep(folder)
    seeds: dict[str, tuple[int, ...]] = {}
    for cell, seed in zip(sweep.used["cell"], map(int, sweep.used["seed"]), strict=True):
        if CHUNK_SCORES in sweep.stored.result(trial_name(cell, seed)).files:
            seeds[cell] = (*seeds.get(cell, ()), seed)
    if not seeds:
        raise BadInput(
            f"none of the {len(sweep.used)} finished trials in {folder} has kept its chunk scores. "
            "Run the sweep in another --storage with evaluation.keep_chunk_scores=true"
        )
    qrels = read_qrels(folder / "qrels" / f"{sweep.split}.qrels")
    rows = [
        r
        for cell, numbers in seeds.items()
        for r in _rows(sweep, cell, numbers, aggregations, qrels)
    ]
    if all(row.kind is Kind.TRAINED for row in rows):
        raise BadInput(_why_none(rows[-1]) or "these aggregations are the trials' own")
    return sweep, _tested(sweep, rows)


def _why_none(row: System) -> str:
    """Why a trained cell has no other aggregations; "" where it has."""
    first = row.kind is Kind.TRAINED and row.cell.config["model.name"] == "firstp"
    return "a FirstP trial reads and keeps only the first chunk" if first else ""


def _rows(
    sweep: Sweep, cell: str, seeds: tuple[int, ...], aggregations: Sequence[Settings], qrels: Qrels
) -> list[System]:
    """A trained cell, and the aggregations that are neither its own nor equal to another."""
    scores, records = sweep.scores, sweep.stored
    config = trial_config(records, trial_name(cell, seeds[0]))
    if not config.training.num_epochs and not config.training.init_from and len(seeds) > 1:
        raise BadInput(  # a model as it is runs once; only an older version ran this
            f"{sweep.label(cell)} ranked at random: nothing was trained (training.num_epochs=0), "
            f"and each of its {len(seeds)} seeds drew a head. Run the sweep with a trained head"
        )
    of_cell = scores[(scores["cell"] == cell) & scores["seed"].isin(seeds)]
    named = Cell(cell, sweep.label(cell), config=config.settings())
    trained = _system(sweep, named, seeds, of_cell, kind=Kind.TRAINED)
    known, asked = [derived_config(config, {})], dict[str, TrialConfig]()
    for place, changes in enumerate([] if _why_none(trained) else aggregations):
        if (other := derived_config(config, changes)) not in known:
            known.append(other)
            asked[f"{cell} {place}"] = other
    values: dict[str, list[pd.DataFrame]] = {name: [] for name in asked}
    for seed in seeds if asked else ():
        kept = kept_chunks(records, trial_name(cell, seed), sweep.split)[sweep.split]
        for name, other in asked.items():
            table = per_query(qrels, derived_run(kept, other), sweep.measures)
            values[name].append(table.assign(cell=name, seed=seed, split=sweep.split))
    derived = (
        _system(
            sweep,
            Cell(name, system_label(other), config=other.settings()),
            seeds,
            pd.concat(values[name]),
            kind=Kind.DERIVED,
            of=cell,
            deterministic=cell in sweep.deterministic,
        )
        for name, other in asked.items()
    )
    return [trained, *derived]


def _system(
    sweep: Sweep, cell: Cell, seeds: Sequence[int], scores: pd.DataFrame, **facts: Any
) -> System:
    means = seed_means(scores, sweep.measures)
    return System(cell, means, dict.fromkeys(seeds, "done"), scores=scores, **facts)


def _tested(sweep: Sweep, rows: Sequence[System]) -> list[System]:
    """The rows, each derived system with its comparisons with its trained cell. Both have the same
    weights, so their seeds are paired."""
    derived = [row for row in rows if row.kind is Kind.DERIVED]
    fixed = [row.name for row in rows if (row.of or row.name) in sweep.deterministic]
    tests: dict[str, dict[str, dict[str, CellComparison]]] = {}
    for measure, matrix in score_matrices(
        pd.concat([row.scores for row in rows]),
        measures=sweep.measures,
        cells=[row.name for row in rows],
        may_agree=[row.name for row in derived],
    ).items():
        for test in compare_pairs(
            in_clusters(sweep, matrix),
            [(row.name, row.of) for row in derived],
            correction=sweep.tests.correction,
            alpha=sweep.tests.alpha,
            paired_seeds=True,
            deterministic=fixed,
        ):
            tests.setdefault(test.system, {})[measure] = {"a": test}
    return [replace(row, tests=tests.get(row.name, {})) for row in rows]


def derived_table(sweep: Sweep, rows: Sequence[System], num_measures: int | None = None) -> Table:
    """Every row: the primary measure and its test, the means of the other measures."""
    others = [measure for measure in sweep.measures if measure != sweep.primary]
    measures, lines = [sweep.primary, *others][:num_measures], []
    for row in rows:
        shown = "  " * bool(row.of) + row.label
        mean, *means = (number(row.mean(measure)) for measure in measures)
        test = row.test(sweep.primary)
        tested = [signed(test.delta), decisive_p(test)] if test else ["", ""]
        lines.append([shown, row.kind, mean, *tested, *means])
    heading = ["system", "", sweep.primary, "Δ", "p", *measures[1:]]
    return table(heading, lines, "ll".ljust(len(heading), "r"), caption=_caption(sweep, rows))


def _caption(sweep: Sweep, rows: Sequence[System]) -> str:
    """Rows, seeds and test; then a paragraph for each trained cell without other aggregations."""
    seeds = sorted({row.num_used for row in rows})
    over = f"{seeds[0]} to {seeds[-1]} seeds" if seeds[1:] else numbered(seeds[0], "seed")
    two = any(has_two_runs(of["a"]) for row in rows for of in row.tests.values())
    clusters = f" (queries in clusters: {sweep.clusters.source})" if sweep.clusters else ""
    caption = (
        f"{sweep.about.sweep} on {sweep.split_text}, means over {over}. {Kind.DERIVED}: the "
        "weights of the trained cell above, another aggregation of its chunk scores; a model "
        "trained with that aggregation would have other weights. diff and p: against that cell, "
        f"queries and seeds as random effects{clusters}, each run paired with itself; "
        f"{CORRECTION_NAMES[sweep.tests.correction]} over "
        f"{sum(row.kind is Kind.DERIVED for row in rows)}.{f' {TWO_RUNS_WORDS}' if two else ''}"
    )
    left = [f"Not derived from {row.label}: {_why_none(row)}." for row in rows if _why_none(row)]
    return "\n\n".join([caption, *left])


def _csv(sweep: Sweep, rows: Sequence[System]) -> str:
    """The rows as CSV, unrounded, a line for each system and measure."""
    lines = []
    for row in rows:
        settings = [row.cell.config[name] for name in _SETTINGS]
        first = [row.of or row.name, row.label, row.kind, *settings]
        first += [" ".join(map(str, row.statuses))]
        for measure in sweep.measures:
            tested = [getattr(row.test(measure), column, None) for column in _TESTED]
            lines.append([*first, measure, row.mean(measure), *tested])
    return csv_text([*_OWN, "measure", "mean", *_TESTED], lines)


def _asked(args: argparse.Namespace) -> list[Settings]:
    """The settings of each aggregation; checked before a file is opened."""
    names = args.aggregators
    for name in names:
        if name not in chunk_pooling_models():
            raise unknown("aggregation of chunk scores", name, chunk_pooling_models())
    if min(args.k) < 1:
        raise BadInput(f"--k >= 1 must hold, got {min(args.k)}")
    return [
        {"model.name": name, "model.k": k}
        for name in names
        for k in (args.k if "k" in model_class(name).options else [0])
    ]


def parser() -> Parser:
    """The arguments and flags of `ranksweep derive`."""
    parser = Parser("ranksweep derive", main.__doc__)
    parser.add_argument("sweep", metavar="DIR", help="the folder or URI of one sweep")
    add = parser.add_argument
    add("--out", type=Path, metavar="DIR", help="default: DIR/report of the sweep")
    names = f"aggregators among {', '.join(chunk_pooling_models())} (default: all)"
    add("--aggregators", nargs="+", default=[*chunk_pooling_models()], metavar="MODEL", help=names)
    of = add(
        "--k", nargs="+", type=int, default=[KMaxAvgP.DEFAULT_K], help="values of k for kmax-avgp"
    )
    needing(of, Need("aggregators", ("kmax-avgp",)))
    return parser
