"""Whether differences survive the documents that nobody judged: the comparisons on the primary
measure again on condensed lists, without these documents.

The condensed list of a run has only its judged documents (Sakai 2007).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase

import numpy as np

from rank_core.arrays import Floats
from rank_core.evaluate import condensed, cutoff_of, query_values
from rank_core.records import Qrels
from rank_core.stats.compare import CellComparison, compare_pairs, letter
from rank_core.stats.matrix import ScoreMatrix
from sweeps.findings.analysis import Analysis, Robustness, Unjudged, one_p
from sweeps.findings.finding import Finding, Unit
from sweeps.findings.lists import TOP, judged_share, judgments, list_readers
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.load import in_clusters
from sweeps.systems.system import ListReader

_CONDENSED = "\ncondensed"  # after the name of a system; "": as measured


def with_unjudged(analysis: Analysis) -> Analysis:
    """The analysis with its comparisons on the primary measure tested again; unchanged without runs
    or judgments, and where every document among the first ones is judged."""
    sweep, matrix = analysis.sweep, analysis.row_scores.plain.get(analysis.sweep.primary)
    readers = list_readers(sweep, matrix) if matrix and analysis.primary else {}
    given = judgments(sweep) if readers else None
    if matrix is None or given is None or not all(map(given.get, matrix.query_ids)):
        return analysis
    qrels = {query_id: given[query_id] for query_id in matrix.query_ids}
    variants, shares, most = _variants(matrix, readers, qrels)
    if min(shares) == 1:
        return analysis
    counts = [len(judged) for judged in qrels.values()]
    variants = in_clusters(sweep, variants)
    found = Unjudged(
        depth=cutoff_of(matrix.measure) or TOP,
        judged=float(np.mean(shares)),
        judged_at_most=float(np.mean(most)),
        judged_per_query=float(np.mean(counts)),
        grades_differ=any(len(set(judged.values())) > 1 for judged in qrels.values()),
        of=_robustness(analysis, variants),
    )
    return replace(analysis, unjudged=found)


def _variants(
    matrix: ScoreMatrix, readers: Mapping[str, Sequence[ListReader]], qrels: Qrels
) -> tuple[ScoreMatrix, list[float], list[float]]:
    """The systems whose runs are here, as measured and condensed; and of each run the share of
    judged documents, and the highest one possible. One run is in memory."""
    depth = cutoff_of(matrix.measure) or TOP
    scores: dict[str, Floats] = {}
    seeds: dict[str, tuple[int, ...]] = {}
    shares, most = [], []
    for cell, reads in readers.items():
        lists_of: list[list[float]] = []
        for read in reads:
            lists = read(matrix.query_ids)
            values = query_values(qrels, condensed(qrels, lists), matrix.measure)
            lists_of.append([*values.values()])
            shares.append(judged_share(lists, qrels, depth))
            ranked = [(len(qrels[q]), len(docs[:depth])) for q, docs in lists.items() if docs]
            most.append(float(np.mean([min(count, n) / n for count, n in ranked])))
        for kind, score_SQ in (("", matrix.scores[cell]), (_CONDENSED, np.array(lists_of))):
            scores[cell + kind], seeds[cell + kind] = score_SQ, matrix.seeds[cell]
    return replace(matrix, cells=tuple(scores), seeds=seeds, scores=scores), shares, most


def _robustness(analysis: Analysis, variants: ScoreMatrix) -> dict[CellComparison, Robustness]:
    """{comparison whose runs are here: the same without unjudged documents}."""
    alpha = analysis.sweep.tests.alpha
    on_lists = retested(
        analysis, variants, lambda c: (c.system + _CONDENSED, c.baseline + _CONDENSED)
    )
    return {
        pair: Robustness(
            letter=letter(pair, place, alpha),
            condensed_delta=again.delta,
            condensed_p=again.p_queries_adjusted
            if math.isnan(again.p_both_adjusted)
            else again.p_both_adjusted,
            condensed_letter=letter(again, place, alpha),
        )
        for pair, (place, again) in on_lists.items()
    }


def retested(
    analysis: Analysis, variants: ScoreMatrix, names_of: Callable[[CellComparison], tuple[str, str]]
) -> dict[CellComparison, tuple[int, CellComparison]]:
    """{comparison: (place of its letter, the comparison of these variants)}, by the rule and in the
    families of `analyse`: that of a row that is not a cell is all rows."""
    sweep, found = analysis.sweep, dict[CellComparison, tuple[int, CellComparison]]()
    derived = [row.name for row in sweep.interpolated if row.deterministic]
    fixed = {*analysis.deterministic, *derived}
    for place, slot in enumerate(analysis.slots):
        mark = ascii_lowercase[place]
        every = {
            pair: not row.is_cell and slot != FIRST_STAGE
            for row in analysis.rows
            if (pair := row.tests.get(sweep.primary, {}).get(mark))
            and {pair.system, pair.baseline} <= variants.scores.keys()
        }
        of_cells = [pair for pair, is_derived in every.items() if not is_derived]
        # First all rows, for the derived ones; then the cells in their own family, which overwrite
        # theirs.
        for family in ([*every], of_cells) if len(of_cells) < len(every) else (of_cells,):
            again = compare_pairs(
                variants,
                [names_of(pair) for pair in family],
                correction=sweep.tests.correction,
                alpha=sweep.tests.alpha,
                paired_seeds=analysis.paired,
                num_families=analysis.num_families,
                deterministic=[name for name in variants.cells if name.partition("\n")[0] in fixed],
            )
            found |= zip(family, ((place, pair) for pair in again), strict=True)
    added, against = (
        [pair for pair in pairs if pair in found]
        for pairs in (analysis.interpolated_comparisons, analysis.first_stage_comparisons)
    )
    for some, others in ((added, against), (against, added)):
        once = one_p([found[pair][1] for pair in some], [found[pair][1] for pair in others])
        found |= {pair: (found[pair][0], new) for pair, new in zip(some, once, strict=True)}
    return found


def judged_documents(found: Unjudged) -> dict[str, float]:
    """The numbers of all runs, for results.json."""
    names = ("depth", "judged", "judged_at_most", "judged_per_query", "grades_differ")
    return {name: getattr(found, name) for name in names}


def rows(analysis: Analysis) -> list[Finding]:
    """Rows about unjudged documents: the share judged, its upper bound, and how many significant
    differences do not survive without them. Empty where nothing is unjudged."""
    found, sweep = analysis.unjudged, analysis.sweep
    if found is None or not found.of:
        return []
    name = f"of the first {found.depth} documents are judged"
    shown = [Finding("unjudged", name, value=found.judged, unit=Unit.SHARE, link=LINK)]
    if found.judged_at_most < 1:
        name = "of them can be, with so many judgments per query"
        shown.append(Finding("unjudged", name, value=found.judged_at_most, unit=Unit.SHARE,
                             link=LINK))  # fmt: skip
    marked = {c: r for c, r in found.of.items() if r.letter and r.letter[0].isupper()}
    if found.grades_differ and marked:
        lost = [c for c, r in marked.items() if r.condensed_letter != r.letter]
        name = f"of {len(marked)} significant differences do not hold without unjudged documents"
        names = tuple(dict.fromkeys(sweep.label(c.system) for c in lost))
        shown.append(Finding("unjudged", name, value=len(lost), unit=Unit.COUNT, names=names,
                             link=LINK))  # fmt: skip
    return shown


LINK = "unjudged-documents"
