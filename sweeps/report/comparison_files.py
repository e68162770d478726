"""A comparison of runs in a terminal and as files."""

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from string import ascii_lowercase

import pandas as pd

from rank_core.errors import BadInput
from rank_core.files import shown_path
from rank_core.seeding import generator
from rank_core.stats.compare import CellComparison, compare_pairs
from rank_core.stats.permutation import randomised_tukey
from sweeps.findings.analysis import Analysis
from sweeps.findings.clusters import num_clusters
from sweeps.findings.interactions import interactions
from sweeps.report.caption import notes
from sweeps.report.comparison import RunComparison
from sweeps.report.next_step import HERE
from sweeps.report.over_sets import SETS, OverSets
from sweeps.report.query_page import QUERY_PAGE, moved_queries
from sweeps.report.ranks import RankRow, with_ranks
from sweeps.report.results import paper_table
from sweeps.report.table import csv_text, table, terminal_lines, wrapped
from sweeps.report.terminal import (
    answer_lines,
    collections_lines,
    fitting_lines,
    legend_lines,
)
from sweeps.store.records import RESULT, SCORES
from sweeps.store.sweep_file import FILE
from sweeps.terminal.notation import (
    both_p,
    decisive_p,
    interval_text,
    level_text,
    p_text,
    signed,
)
from sweeps.terminal.text import numbered

PAIR_COLUMNS = (
    "measure system baseline delta se_both df_both ci_low ci_high p_queries p_both "
    "p_both_adjusted p_queries_tukey family_size"
).split()


@dataclass(frozen=True)
class TestedPair:
    """Two systems with the test that decides and a test over queries for all pairs."""

    comparison: CellComparison  # Holm over all pairs
    p_tukey: float  # randomised Tukey HSD: queries random, runs fixed, adjusted for all pairs


def comparison_text(
    comparison: RunComparison, *, compact: bool = False, verbose: bool = False
) -> str:
    """A table per column, or one of means and letters, and the recommendation, in the terminal's
    width; `verbose` adds all that the numbers rest on."""
    analysis, sweep = comparison.analysis, comparison.sweep
    lines = wrapped(_compared(comparison))
    if compact:
        lines += ["", *terminal_lines(paper_table(analysis, compact=True))]
    for measure in () if compact or sweep.means else sweep.measures:
        lines += ["", measure, *fitting_lines(analysis, measure)]
    for mean in () if compact else sweep.means:
        lines += ["", mean, *collections_lines(analysis, mean)]
    lines += ["", *legend_lines(analysis)]
    lines += wrapped(between_collections(analysis)) if sweep.means else []
    lines += [line for note in comparison.tie_notes for line in wrapped(note)]
    lines += [""] * bool(lines[-1])
    return "\n".join([*lines, *answer_lines(analysis, HERE, verbose=verbose), ""])


def sets_text(over: OverSets, folder: Path, *, verbose: bool = False) -> str:
    """The table over all test sets of a sweep, below the sweep's own, whose report is in
    `folder`."""
    return (
        f"All test sets: {comparison_text(over, verbose=verbose)}Page: {folder / SETS}/index.html\n"
    )


def between_collections(analysis: Analysis) -> str:
    """Whether the gains differ between the collections, in a sentence; "" where it is not known."""
    found, sweep = interactions(analysis), analysis.sweep
    if not found:
        return ""
    alpha = sweep.tests.alpha
    number = sum(one.test.significant(alpha) for one in found)
    shown = [one for one in found if one.test.significant(alpha)] or found
    least = min(shown, key=lambda one: max(one.test.p_queries_adjusted, one.test.p_both_adjusted))
    digits, (first, other) = sweep.digits, least.collections
    gains = (
        f"{sweep.label(least.test.system)} {signed(least.gains[0], digits)} on {first}, "
        f"{signed(least.gains[1], digits)} on {other}: p {decisive_p(least.test)}"
    )
    over = f"over {sweep.label(least.test.baseline)}"
    if not number:
        return f"No gain {over} is shown to differ from that on {first} (smallest p: {gains})."
    tested = numbered(len(found), "difference")
    return (
        f"Gains {over} differ from those on {first} in {number} of {tested} (smallest p: {gains})."
    )


def _compared(comparison: RunComparison) -> str:
    """Systems, runs, queries and baselines in a sentence."""
    analysis, sweep = comparison.analysis, comparison.sweep
    sets = comparison.query_sets
    where = (sets[0].where if len(sets) == 1 else "") or sweep.split
    lettered = map(" ".join, zip(ascii_lowercase, map(str, sweep.slots), strict=False))
    baselines = f"baselines {', '.join(lettered)}"  # a firstp, b bm25
    primary = analysis.cell_scores.tested[sweep.primary]
    clusters = num_clusters(primary)
    return (
        f"{len(comparison.seeds)} systems, {len(comparison.runs)} runs, "
        f"{f'{clusters} clusters of ' if clusters else ''}"
        f"{primary.num_queries} queries of {where}; "
        f"{baselines if len(sweep.slots) > 1 else f'baseline {sweep.baseline}'}."
    )


def all_pairs(analysis: Analysis) -> list[TestedPair]:
    """Every pair of systems in every column, the first of the pair as its system."""
    pairs = []
    for column, matrix in analysis.cell_scores.tested.items():
        compared = compare_pairs(
            matrix,
            list(combinations(matrix.cells, 2)),
            alpha=analysis.sweep.tests.alpha,
            paired_seeds=analysis.paired,
            deterministic=analysis.sweep.deterministic,
            num_families=1 if column in analysis.means else len(analysis.sweep.collections),
        )
        tukey = [math.nan] * len(compared)
        # A mean over collections has no queries to permute.
        if column in analysis.cell_scores.plain:
            permuted = randomised_tukey(matrix, rng=generator(0, f"pairs {column}"))
            tukey = [other.p_adjusted for other in permuted]
        pairs += [TestedPair(*pair) for pair in zip(compared, tukey, strict=True)]
    return pairs


def pairs_text(analysis: Analysis, pairs: list[TestedPair]) -> list[str]:
    """The lines of a terminal: a table per column, then the meaning of the p-values."""
    level = level_text(analysis.sweep.tests.alpha)
    lines = []
    for column in analysis.sweep.measures:
        rows = [
            (
                comparison.system,
                comparison.baseline,
                signed(comparison.delta, analysis.sweep.digits),
                interval_text(comparison, analysis.sweep.digits),
                p_text(pair.p_tukey),
                both_p(comparison),
            )
            for pair in pairs
            if (comparison := pair.comparison).measure == column
        ]
        heading = ("pair", "", "Δ", f"{level} interval", "p Tukey", "p both")
        drawn = terminal_lines(table(heading, rows, "llrrrr"), names=(0, 1))
        lines += ["", f"All pairs, {column}", *drawn]
    sizes = dict.fromkeys(pair.comparison.family_size for pair in pairs)
    tested = ", of a mean ".join(numbered(size, "pair") for size in sizes)
    every = "all " if max(sizes, default=0) > 1 else ""
    words = (
        "p Tukey: randomised Tukey HSD over queries, seeds averaged, for all pairs of a column; "
        f"p both: queries and seeds random, Holm over {every}{tested}."
    )
    return [*lines, "", *wrapped(words)]


def check_folder(folder: Path, read: Iterable[str] = ()) -> None:
    """Refuse a folder whose values would be replaced: those of a sweep or a trial, and those that
    are compared; `read` are the places of these."""
    for name in (FILE, RESULT):
        if (folder / name).exists():
            raise BadInput(
                f"a comparison is written into a folder of its own, {folder} holds {name} of a "
                f"{'sweep' if name == FILE else 'trial'}"
            )
    table = (folder / SCORES).resolve()
    for where in read:
        if Path(where.partition(":")[0]).resolve() == table:
            raise BadInput(f"{where} is read, and would be replaced: name another folder")


def write_files(
    comparison: RunComparison,
    folder: Path,
    pairs: Sequence[TestedPair] = (),
    ranks: Sequence[RankRow] = (),
    *,
    compact: bool = False,
) -> None:
    """Write the files of a comparison into a folder of its own."""
    from sweeps.report.files import write_files as write_all  # draws

    check_folder(folder, [part.where for run in comparison.runs for part in run.on.values()])
    files = comparison_files(comparison, pairs, ranks, compact=compact)
    write_all(folder, files)
    for name in {QUERY_PAGE, "pairs.csv"} - files.keys():
        (folder / name).unlink(missing_ok=True)  # of an earlier comparison


def comparison_files(
    comparison: RunComparison,
    pairs: Sequence[TestedPair] = (),
    ranks: Sequence[RankRow] = (),
    *,
    compact: bool = False,
) -> dict[str, bytes]:
    """The page with its figures, the table in three formats, `comparisons.csv`, `results.json`, the
    values, and `pairs.csv` if there are pairs; `ranks` go into the table as CSV and
    `results.json`."""
    from sweeps.report.files import report_files  # draws

    systems: dict[str, dict[int, dict[str, str]]] = {}
    for run in comparison.runs:
        places = {query_set: shown_path(part.where) for query_set, part in run.on.items()}
        systems.setdefault(run.system, {})[run.seed] = places
    judged = [one for one in comparison.query_sets if one.where]
    files = report_files(
        comparison.analysis,
        queries=moved_queries(comparison.analysis),
        more={
            "systems": systems,
            "qrels": {
                one.name: {"file": one.where, "num_queries": len(one.qrels)} for one in judged
            },
            "tied_scores": comparison.tied,
            "notes": [*notes(comparison.analysis), *comparison.tie_notes[1:]],
            **({"ranks": [asdict(row) for row in ranks]} if ranks else {}),
            "pairs": [
                {"comparison": pair.comparison.facts, "p_tukey": pair.p_tukey} for pair in pairs
            ],
        },
        label="tab:comparison",
        compact=compact,
    )
    values = io.BytesIO()
    _values(comparison).to_parquet(values, index=False)
    files[SCORES] = values.getvalue()
    if ranks:
        files["table.csv"] = with_ranks(files["table.csv"], ranks)
    if pairs:
        rows = [pair.comparison.facts | {"p_queries_tukey": pair.p_tukey} for pair in pairs]
        lines = ([row[name] for name in PAIR_COLUMNS] for row in rows)
        files["pairs.csv"] = csv_text(PAIR_COLUMNS, lines).encode()
    return files


def _values(comparison: RunComparison) -> pd.DataFrame:
    """The table of all values, the primary measure first; a source of another comparison or of a
    design."""
    scores = comparison.sweep.scores.rename(columns={"cell": "system"})
    order = {measure: at for at, measure in enumerate(comparison.sweep.measures)}
    scores = scores.sort_values("measure", key=lambda own: own.map(order), kind="stable")
    return scores[["system", "seed", "query_id", "measure", "value"]]
