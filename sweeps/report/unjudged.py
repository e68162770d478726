"""Whether differences survive the documents that nobody judged: the comparisons on the primary
measure again on condensed lists, without these documents, and in the worst case.

The condensed list of a run has only its judged documents (Sakai 2007). In the worst case the
unjudged documents among the first k of the better system are irrelevant, and those of the worse one
relevant wherever this helps it: the naive bounds (Froebe et al. 2023).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase

import numpy as np

from rank_core.evaluate import condensed, cutoff_of, highest_values, query_values
from rank_core.records import Qrels, Run
from rank_core.stats.compare import CellComparison, compare_pairs, letter
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.scopes import Floats
from sweeps.report.agreement import TOP, judged_share, judgments, list_readers
from sweeps.report.analysis import Analysis, Robustness, Unjudged, one_p
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.load import in_clusters
from sweeps.systems.system import ListReader
from sweeps.terminal.notation import names_text, percent

_DEEPEST = 20
"""The largest cutoff of a measure with bounds, whose work grows with its square."""
_FEW = 0.5
"""Where a smaller share of the first documents can be judged, judgments decide the worst case."""
_CONDENSED, _HIGHEST = "\ncondensed", "\nhighest"  # after the name of a system; "": as measured


def with_unjudged(analysis: Analysis) -> Analysis:
    """The analysis with its comparisons on the primary measure tested again; unchanged without runs
    or judgments, and where every document among the first ones is judged."""
    sweep, matrix = analysis.sweep, analysis.whole.get(analysis.sweep.primary)
    readers = list_readers(sweep, matrix) if matrix and analysis.primary else {}
    given = judgments(sweep) if readers else None
    if matrix is None or given is None or not all(map(given.get, matrix.query_ids)):
        return analysis
    qrels = {query_id: given[query_id] for query_id in matrix.query_ids}
    variants, shares, most = _variants(matrix, readers, qrels)
    if min(shares) == 1:
        return analysis
    counts = [len(own) for own in qrels.values()]
    variants = in_clusters(sweep, variants)
    found = Unjudged(
        depth=cutoff_of(matrix.measure) or TOP,
        judged=float(np.mean(shares)),
        judged_at_most=float(np.mean(most)),
        judged_per_query=float(np.mean(counts)),
        grades_differ=any(len(set(own.values())) > 1 for own in qrels.values()),
        of=_robustness(analysis, variants),
    )
    return replace(analysis, unjudged=found)


def _variants(
    matrix: ScoreMatrix, readers: Mapping[str, Sequence[ListReader]], qrels: Qrels
) -> tuple[ScoreMatrix, list[float], list[float]]:
    """The systems whose runs are here, as measured, condensed, and at their highest values; and of
    each run the share of judged documents, and the highest one possible. One run is in memory."""
    cutoff = cutoff_of(matrix.measure)
    depth = cutoff or TOP
    scores: dict[str, Floats] = {}
    seeds: dict[str, tuple[int, ...]] = {}
    shares, most = [], []
    for cell, own in readers.items():
        rows: dict[str, list[list[float]]] = {_CONDENSED: [], _HIGHEST: []}
        for read in own:
            lists = read(matrix.query_ids)
            run: Run = {
                query_id: {doc_id: -float(rank) for rank, doc_id in enumerate(doc_ids)}
                for query_id, doc_ids in lists.items()
            }
            values = query_values(qrels, condensed(qrels, run), matrix.measure)
            rows[_CONDENSED].append([*values.values()])
            if cutoff and cutoff <= _DEEPEST:
                rows[_HIGHEST].append([*highest_values(qrels, run, matrix.measure).values()])
            shares.append(judged_share(lists, qrels, depth))
            ranked = [(len(qrels[q]), len(docs[:depth])) for q, docs in lists.items() if docs]
            most.append(float(np.mean([min(count, n) / n for count, n in ranked])))
        tables = {kind: np.array(table) for kind, table in rows.items() if table}
        for kind, score_SQ in ({"": matrix.scores[cell]} | tables).items():
            scores[cell + kind], seeds[cell + kind] = score_SQ, matrix.seeds[cell]
    return replace(matrix, cells=tuple(scores), seeds=seeds, scores=scores), shares, most


def _robustness(analysis: Analysis, variants: ScoreMatrix) -> dict[CellComparison, Robustness]:
    """{comparison whose runs are here: the same without unjudged documents}."""
    mean = {name: float(score_SQ.mean()) for name, score_SQ in variants.scores.items()}
    alpha = analysis.sweep.about.alpha

    def in_worst_case(pair: CellComparison) -> tuple[str, str]:
        # The system that is ahead keeps its measured value, the other gets its highest.
        better = pair.delta > 0
        return pair.system + _HIGHEST * (not better), pair.baseline + _HIGHEST * better

    on_lists = retested(
        analysis, variants, lambda c: (c.system + _CONDENSED, c.baseline + _CONDENSED)
    )
    bounded = any(name.endswith(_HIGHEST) for name in mean)
    worst = retested(analysis, variants, in_worst_case) if bounded else {}
    return {
        pair: Robustness(
            letter=letter(pair, place, alpha),
            condensed_delta=again.delta,
            condensed_p=again.p_queries_adjusted
            if math.isnan(again.p_both_adjusted)
            else again.p_both_adjusted,
            condensed_letter=letter(again, place, alpha),
            bound_low=mean[pair.system] - mean.get(pair.baseline + _HIGHEST, math.nan),
            bound_high=mean.get(pair.system + _HIGHEST, math.nan) - mean[pair.baseline],
            bound_letter=letter(worst.get(pair, (0, None))[1], place, alpha),
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
        own = [pair for pair, is_derived in every.items() if not is_derived]
        # First all rows, for the derived ones; then the cells in their own family, which overwrite
        # theirs.
        for family in ([*every], own) if len(own) < len(every) else (own,):
            again = compare_pairs(
                variants,
                [names_of(pair) for pair in family],
                correction=sweep.correction,
                alpha=sweep.about.alpha,
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


def unjudged_sentences(analysis: Analysis) -> list[str]:
    """The share of judged documents, its ceiling, and which differences that the table marks as
    significant, with lower-case letters only in a table of single runs, hold without the others; a
    sentence each, none without judgments."""
    found = analysis.unjudged
    if found is None or not found.of:
        return []
    sweep = analysis.sweep
    text = f"{percent(found.judged)} of the first {found.depth} documents are judged"
    if found.judged_at_most < 1:
        text += (
            f"; with {found.judged_per_query:.1f} judged documents per query, at most "
            f"{percent(found.judged_at_most)} can be"
        )
    said = [f"{text}."]
    single = all(math.isnan(pair.p_both) for pair in found.of)
    marked = {c: r for c, r in found.of.items() if r.letter and (single or r.letter[0].isupper())}
    # That of first stage and baseline is under two letters.
    once = {frozenset((c.system, c.baseline)): c for c in marked}
    marked = {c: marked[c] for c in once.values()}
    if not marked:
        return said
    several = len({pair.baseline for pair in found.of}) > 1

    def kept(lost: Sequence[CellComparison]) -> str:
        count, held = len(marked), len(marked) - len(lost)
        what, hold = (
            f"significant differences in {sweep.primary}",
            "hold" if held > 1 else "holds",
        )
        if count == 1:
            return f"the table's significant difference {'does not hold' if lost else 'holds'}"
        if held in (0, count):
            return f"{'all' if held else 'none'} of the table's {count} {what} {hold}"
        against = [f" against {sweep.label(pair.baseline)}" * several for pair in lost]
        names = [f"{sweep.label(c.system)}{end}" for c, end in zip(lost, against, strict=True)]
        return f"{held} of the table's {count} {what} {hold}, not {names_text(names)}"

    if found.grades_differ:
        changed = [pair for pair, own in marked.items() if own.condensed_letter != own.letter]
        said.append(f"On condensed lists, without unjudged documents, {kept(changed)}.")
    else:
        said.append(
            "Condensed lists are uninformative here: no query has both relevant and non-relevant "
            "judgments."
        )
    if not any(math.isnan(own.bound_low) for own in marked.values()):
        lost = [pair for pair, own in marked.items() if own.bound_letter != own.letter]
        few = "; with so few judgments this bound says nothing about the systems"
        few *= bool(lost) and found.judged_at_most < _FEW
        said.append(f"In the worst case, {kept(lost)}{few}.")
    return said
