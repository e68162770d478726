"""Caption and notes of the table."""

import math
from collections.abc import Sequence
from string import ascii_lowercase

from rank_core.ranking.interpolation import DEFAULT
from rank_core.stats.compare import CellComparison
from rank_core.stats.family import BEHRENS_FISHER, LARGER, MODERATED, OWN, Applied, correction_text
from rank_core.stats.scopes import LEAST_SEEDS
from sweeps.findings.analysis import Analysis
from sweeps.findings.clusters import num_clusters, sentences_on_clusters
from sweeps.store.trial_status import LOST
from sweeps.systems.summary import fate_word
from sweeps.systems.system import System
from sweeps.terminal.notation import (
    ONE_RUN_WORDS,
    TWO_RUNS_WORDS,
    has_two_runs,
    level_text,
    names_text,
    relation,
)
from sweeps.terminal.text import numbered

PAIRED = (
    "paired across systems: run i of each shares its initialisation, order of the data and "
    "negatives with run i of the others, and the test is over their differences"
)
"""The assumption of a test of paired seeds."""


def caption(analysis: Analysis, *, compact: bool = False) -> str:
    """The caption of a table in a paper: runs, letters, correction, test; `notes` has the rest. A
    `compact` table has means and letters alone."""
    rows, fixed, alpha = analysis.rows, analysis.deterministic, analysis.sweep.tests.alpha
    first = analysis.sweep.measures[0]
    cells = [row for row in rows if row.is_cell]
    seeds = [row.num_used for row in cells if row.cell.cell not in fixed]
    named = [row.label for row in rows if row.cell.cell in fixed]
    comparisons = _comparisons(cells)
    spread = not compact and any(not math.isnan(row.deviation(first)) for row in rows)
    text = "Mean ± SD" if spread else "Mean"
    if seeds:
        text += f" over {_span(seeds)} training run{'s' * (max(seeds) != 1)} per system"
    if comparisons:
        where = _on_queries(analysis, comparisons)
        text += f" and {where}" if seeds and where.startswith("over") else f" {where}"
    text += f" ({names_text(named)}: deterministic)" if named else ""
    text += "; best in bold."
    if not comparisons:
        return text
    decided = any(not math.isnan(c.p_both) for c in comparisons)
    parts = [_legend(analysis, decided=decided), f"p < {alpha:.3g}", *_family(analysis)]
    details = "; ".join(parts)
    differ = f"significant difference in the paired t-test over queries ({details})"
    if decided and analysis.has_seeds:
        differ = (
            f"significant difference ({details}): upper case with queries and training runs as "
            "random effects, lower case only in the paired t-test over queries"
        )
    sentences = [text, f"Letters mark a {differ}; ↓: a loss."]
    if compact:
        return " ".join(sentences)
    shown = [pair for row in rows if (pair := analysis.gains.get(row.name))]
    if shown:
        label, level = analysis.sweep.label(shown[0].baseline), level_text(alpha)
        tested = f"; its {level} interval holds for all of them at once" if decided else ""
        sentences.append(f"Δ is the difference from {label}{tested}.")
    sentences += [ONE_RUN_WORDS] * any(math.isnan(c.p_both) for c in shown)
    sentences += [TWO_RUNS_WORDS] * any(map(has_two_runs, shown))
    sentences += filter(None, [mean_sentence(analysis)])
    return " ".join(sentences)


def _on_queries(analysis: Analysis, comparisons: Sequence[CellComparison]) -> str:
    """`on 400 queries`, or `over 247 clusters of 400 queries`."""
    queries = f"{_span([c.num_queries for c in comparisons])} queries"
    clusters = [num_clusters(analysis.cell_scores.tested[c.measure]) for c in comparisons]
    return f"over {_span(clusters)} clusters of {queries}" if any(clusters) else f"on {queries}"


def mean_sentence(analysis: Analysis) -> str:
    """The weights and runs of the mean over collections; "" for a single one."""
    sweep = analysis.sweep
    if not analysis.means:
        return ""
    trained = [cell.cell for cell in sweep.cells if cell.cell not in sweep.deterministic]
    separate = [sweep.label(cell) for cell in trained if cell in sweep.separate_runs]
    text = f"Mean: {len(sweep.collections)} collections of equal weight, fixed"
    if separate:
        whose = "runs" if len(separate) == len(trained) else f"runs of {names_text(separate)}"
        text += f"; {whose} trained on each collection"
    elif trained:
        text += "; the same runs on every collection"
    if sweep.tests.correction != "none":
        text += "; the letters of collections are corrected over all of them, those of the mean "
        text += "separately"
    return f"{text}."


def notes(analysis: Analysis) -> list[str]:
    """The sentences below a table, which its caption has no room for: queries, test, ties, lost
    trials, and the reservations. Lost runs of a third party are unknown and not mentioned."""
    sweep, cells = analysis.sweep, analysis.cells
    sentences = [f"{'Queries of' if sweep.third_party else 'Split'} {sweep.split_text}."]
    decided = any(not math.isnan(c.p_both) for c in _comparisons(analysis.rows))
    if decided and analysis.has_seeds:
        nested = PAIRED if analysis.paired else "nested in systems"
        sentences.append(
            "The test with both effects random is a t-test with Welch's (1947) second-order "
            f"degrees of freedom; seeds are {nested}. Upper-case letters need three runs of each "
            "trained system."
        )
    tied = int(sweep.trials["ties"].fillna(0).sum()) if "ties" in sweep.trials else None
    counted = "" if tied is None else f" ({tied:,} tied scores)"
    sentences.append(f"Ties: {sweep.tie_policy}{counted}.")
    if sweep.serving:
        trial_of = {cell: trial for cell, (trial, _) in sweep.serving.of.items()}
        lost = {trial_of[c.cell.cell] for c in cells if c.seeds("collapsed")}
        sentences.append(
            f"{numbered(len(set(trial_of.values())), 'trial')} scored chunks for "
            f"{numbered(len(cells), 'system')}; {len(lost)} collapsed."
        )
    elif not sweep.third_party:
        collapsed, failed = (
            sum(len(cell.seeds(*statuses)) for cell in cells) for statuses in (["collapsed"], LOST)
        )
        used, launched = sum(c.num_used for c in cells), sum(c.num_launched for c in cells)
        kept = " (collapsed trials are kept)" * bool(collapsed)
        sentences.append(
            f"{used} of {launched} launched trials used; {failed} failed, {collapsed} "
            f"collapsed{kept}."
        )
    return sentences + reservations(analysis)


def without_variance(analysis: Analysis) -> str:
    """The primary comparisons that no t-test decides, and what their p can be at least; "" where
    all vary between the queries. Equal systems are no finding."""
    sweep = analysis.sweep
    constant = [c for c in analysis.primary if c.se_queries == 0 and c.delta]
    if not constant:
        return ""
    names = names_text([sweep.label(c.system) for c in constant])
    p = max(c.p_queries if math.isnan(c.p_both) else c.p_both for c in constant)
    able = (
        "which so few queries or runs cannot make significant"
        if p >= sweep.tests.alpha
        else "and there is no interval"
    )
    return (
        f"Nothing varies between the {constant[0].num_queries} queries in the difference of "
        f"{names} from {sweep.label(sweep.baseline)}, so no t-test applies: p is that of the exact "
        f"permutation of signs and runs (p {relation(p)} before correction), {able}."
    )


def copies_sentence(analysis: Analysis) -> str:
    """The systems that equal others in every run and value; "" without any."""
    label = analysis.sweep.label
    same = [f"{label(copy)} equals {label(first)}" for copy, first in analysis.copies.items()]
    tests = "has no test" if len(same) == 1 else "have no tests"
    return f"{names_text(same)} in every run and query and {tests}." if same else ""


def remarks_on_values(analysis: Analysis) -> list[str]:
    """What the values show of systems and queries: copies, and queries that are not alone."""
    return [*filter(None, [copies_sentence(analysis)]), *sentences_on_clusters(analysis)]


def warnings_of(analysis: Analysis) -> list[str]:
    """What a reader must know before the numbers: rows that are missing, queries that are alike."""
    missing = "" if analysis.sweep.interpolated else interpolated_sentence(analysis)
    return [text for text in (missing, *remarks_on_values(analysis)) if text]


def reservations(analysis: Analysis) -> list[str]:
    """The limits of this table's letters: a sentence each."""
    sweep = analysis.sweep
    sentences = [*sweep.notes, *remarks_on_values(analysis)]
    if sweep.about.eliminated:
        word = fate_word(sweep)
        fate = "stopped by ASHA" if word == "stopped" else "eliminated in the race"
        sentences.append(f"{word}: {fate} on dev.")
    sentences += filter(
        None,
        [without_variance(analysis), _few_seeds(analysis), interpolated_sentence(analysis)],
    )
    if sweep.tests.paired_seeds and not analysis.paired:
        sentences.append(
            "Seeds are declared as paired, but the systems have finished different seeds. They "
            "are compared as unpaired, which is conservative."
        )
    return sentences


def _few_seeds(analysis: Analysis) -> str:
    """The limits of a test over so few seeds; "" where there are none worth a sentence."""
    decided = [pair for pair in analysis.comparisons if not math.isnan(pair.p_both)]
    if not decided:
        return ""
    if min(pair.fewest_seeds for pair in decided) < LEAST_SEEDS:
        return (
            "Two seeds give no upper-case letter and p in parentheses: they estimate the standard "
            "deviation over seeds only within a factor of 0.45 to 32, and under unequal seed "
            "variance p < .05 happens by chance in up to 10% of cases."
        )
    if any(not math.isnan(pair.p_moderated) for pair in decided):
        return (
            "With three or more trained systems there is a second test, with seed variances "
            f"moderated over all of them (Smyth 2004); {_WHICH_P[_applied(decided[0]).p]}."
        )
    return ""


_ALONE = "its p is corrected, and that of the first test must hold for the comparison alone"
_WHICH_P = {
    MODERATED: _ALONE,
    BEHRENS_FISHER: f"{_ALONE}. Seed variances differ, and fewer than five runs do not show how "
    "much, so it is the test of Behrens and Fisher",
    LARGER: "the larger p of both tests is corrected",
    OWN: "it decides nothing here",
}
"""What a correction is of, in words."""


def _applied(comparison: CellComparison) -> Applied:
    assert comparison.family is not None
    return comparison.family.applied


def interpolated_sentence(analysis: Analysis) -> str:
    """The rows with the first stage in a sentence; "" without any."""
    sweep = analysis.sweep
    if not sweep.interpolated:
        return sweep.not_interpolated and f"No row with the first stage: {sweep.not_interpolated}."
    first = sweep.first_stage_name
    tuned = [row for row in sweep.interpolated if row.alphas]
    chosen = "; ".join(f"{sweep.label(row.of)} {row.alphas_text}" for row in tuned)
    text = (
        f"+{first} is alpha x model + (1 - alpha) x {first}, both {DEFAULT} normalised "
        f"within a query; the alpha of each trial is chosen on dev ({chosen})"
    )
    if len(tuned) < len(sweep.interpolated):
        text += f"; +RRF {first} is the sum of the reciprocal ranks, 1 / (60 + rank)"
    for system in sweep.interpolated:
        if same := system.identical_to:
            alpha = int(same == system.of)
            text += f"; {system.label} has alpha {alpha}, so it equals {sweep.label(same)}: no test"
    if analysis.interpolated_comparisons:
        added, others = analysis.interpolated_comparisons[0], analysis.primary[0]
        counts = f"over {added.family_size} comparisons, others over {others.family_size}"
        text += f"; p of {first} and +{first} is corrected {counts}"
    return f"{text}."


def _comparisons(rows: Sequence[System]) -> list[CellComparison]:
    return [c for row in rows for tests in row.tests.values() for c in tests.values()]


def _family(analysis: Analysis) -> list[str]:
    """`max-t over 2 comparisons`, what the table got. Empty where nothing needs a correction."""
    applied = [_applied(pair) for pair in _comparisons([r for r in analysis.rows if r.is_cell])]
    sizes = {one.size for one in applied if one.size > 1}
    return [correction_text(applied[0].correction, _span([*sizes]))] if sizes else []


def _legend(analysis: Analysis, *, decided: bool) -> str:
    """`a/A: FirstP; b/B: the system's own baseline (FirstP BERT, FirstP ELECTRA)`; lower case alone
    where no test has both effects."""
    label, parts = analysis.sweep.label, []
    for mark, slot in zip(ascii_lowercase, analysis.slots, strict=False):
        if isinstance(slot, str):
            text = label(slot)
        else:
            baselines = dict.fromkeys(map(label, slot.values()))
            text = f"the system's own baseline ({', '.join(baselines)})"
        parts.append(f"{mark}/{mark.upper()}: {text}" if decided else f"{mark}: {text}")
    return "; ".join(parts)


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"
