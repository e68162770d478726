"""A comparison of runs as a terminal shows it, and what its letters may be read as."""

import math
import textwrap

from rank_core.stats.results import TIE_POLICY
from rank_core.stats.variance import false_positive_sentence
from sweeps.report.notation import letter, p_text, shortened
from sweeps.report.terminal import WIDTH
from sweeps.run_comparison import RunComparison

SYNTAX = "give several runs of one system as NAME=run1,run2,run3"
_LABEL = 18


def comparison_text(found: RunComparison) -> str:
    """A table per measure and the sentences a reader needs, in the width of a terminal."""
    runs = sum(map(len, found.systems.values()))
    head = (
        f"{len(found.systems)} systems, {runs} runs, {found.num_queries} judged queries of "
        f"{found.qrels}; baseline {found.baseline}."
    )
    lines = textwrap.wrap(head, WIDTH, break_on_hyphens=False)
    for number, measure in enumerate(found.measures):
        lines += ["", measure, *_table(found, number)]
    lines.append("")
    sentences = (_legend(found), *_declared(found), *reservations(found), *found.notes)
    for sentence in (*sentences, *_ties(found)):
        lines += textwrap.wrap(sentence, WIDTH, break_on_hyphens=False)
    return "\n".join([*lines, ""])


def _table(found: RunComparison, number: int) -> list[str]:
    """The lines of one measure: mean with its letter, difference, interval and both p."""
    level = f"{100 * (1 - found.alpha):g} % interval"
    lines = [["system", "runs", "mean", "diff", level, "p queries", "p both"]]
    for row in found.rows:
        cell = row.cells[number]
        line = [shortened(row.label, _LABEL), str(row.seeds_used)]
        line.append(f"{cell.mean:.3f} {letter(cell, found.alpha)}")
        one = cell.comparison
        if one is None:
            line += ["baseline", "", "", ""]
        else:
            known = not math.isnan(one.ci_low)
            interval = f"[{_signed(one.ci_low)}, {_signed(one.ci_high)}]" if known else "—"
            ps = (p_text(one.p_queries_adjusted), p_text(one.p_both_adjusted))
            line += [_signed(one.delta), interval, *ps]
        lines.append(line)
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    drawn = [
        "  ".join(
            text.ljust(width) if at in (0, 2) else text.rjust(width)
            for at, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return [drawn[0], "-" * max(map(len, drawn)), *drawn[1:]]


def _signed(value: float) -> str:
    text = f"{value:+.3f}"
    return text[0] + text[1:].removeprefix("0")


def _declared(found: RunComparison) -> list[str]:
    if not found.deterministic:
        return []
    return [f"Deterministic by declaration, no seed variance: {', '.join(found.deterministic)}."]


def _ties(found: RunComparison) -> list[str]:
    if not found.tied:
        return []
    return [f"{found.tied:,} documents tie with another; {TIE_POLICY}."]


def _legend(found: RunComparison) -> str:
    one = found.comparisons[0]
    return (
        f"a: differs from {found.baseline} with queries random only; A: with queries and training "
        f"runs random; ↓: a loss. p is adjusted ({one.correction}, {one.family_size} per measure)."
    )


def reservations(found: RunComparison) -> list[str]:
    """What one run cannot say, or what the runs say about the customary test."""
    if found.single:
        who = ", ".join(found.single) if len(found.single) < len(found.systems) else "every system"
        return [
            f"One run only: {who}. Letters of comparisons with one run are conditional on that "
            "very run: they hold for new queries and say nothing about training again, and their "
            f"p both and interval are not defined (—). To test methods, {SYNTAX}."
        ]
    if len(found.deterministic) == len(found.systems):
        return []
    first = [one for one in found.comparisons if one.measure == found.measures[0]]
    rates = [one.predicted_false_positive_rate for one in first]
    return [false_positive_sentence(rates, alpha=found.alpha)]
