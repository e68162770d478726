"""A comparison of runs as a terminal shows it, and what its letters may be read as."""

import math
import textwrap
from string import ascii_lowercase

from rank_core.stats.baselines import Slot
from rank_core.stats.equivalence import equivalence_sentence
from rank_core.stats.results import TIE_POLICY
from rank_core.stats.rounded import average_text
from rank_core.stats.scopes import scope_test
from rank_core.stats.variance import false_positive_sentence
from sweeps.commands.compare.comparison import RunComparison
from sweeps.report.notation import (
    aligned,
    letters,
    p_text,
    short_interval,
    short_signed,
    shortened,
)
from sweeps.report.terminal import WIDTH

SYNTAX = "give several runs of one system as NAME=run1,run2,run3"
_LABEL = 18


def comparison_text(found: RunComparison, *, margin: float = 0.01) -> str:
    """A table per column and the sentences a reader needs, in the width of a terminal.

    `margin` is the difference that practice does not notice.
    """
    runs = sum(map(len, found.systems.values()))
    head = (
        f"{len(found.systems)} systems, {runs} runs, {found.num_queries} judged queries of "
        f"{where(found)}; {baseline_words(found.baselines)}."
    )
    lines = textwrap.wrap(head, WIDTH, break_on_hyphens=False)
    for number, measure in enumerate(found.measures):
        lines += ["", measure, *_table(found, number)]
    lines += [*_averages(found), ""]
    sentences = (_legend(found), *declared(found), *reservations(found, margin=margin))
    for sentence in (*sentences, *found.measured.notes, *_ties(found)):
        lines += textwrap.wrap(sentence, WIDTH, break_on_hyphens=False)
    return "\n".join([*lines, ""])


def where(found: RunComparison) -> str:
    """The query sets with their sizes: `dl19 (43) + dl20 (45)` is pooled, a comma separates."""
    if len(found.qrels) == 1:
        return str(next(iter(found.qrels.values())))
    return ", ".join(
        " + ".join(f"{name} ({found.measured.num_queries[name]})" for name in sets)
        for sets in found.collections.values()
    )


def baseline_words(slots: tuple[Slot, ...]) -> str:
    """`baseline firstp`, or what every letter's baseline is."""
    named = [
        slot
        if isinstance(slot, str)
        else f"own ({', '.join(f'{a}: {b}' for a, b in slot.items())})"
        for slot in slots
    ]
    if len(named) == 1:
        return f"baseline {named[0]}"
    return "baselines " + ", ".join(
        f"{letter} {name}" for letter, name in zip(ascii_lowercase, named, strict=False)
    )


def _table(found: RunComparison, number: int) -> list[str]:
    """The lines of one column: mean with its letters, difference, interval and both p."""
    level = f"{100 * (1 - found.alpha):g} % interval"
    lines = [["system", "runs", "mean", "diff", level, "p queries", "p both"]]
    for row in found.rows:
        cell = row.cells[number]
        line = [shortened(row.label, _LABEL), str(row.seeds_used)]
        line.append(f"{cell.mean:.3f} {letters(row.cell, cell, found.baselines, found.alpha)}")
        one = cell.comparison
        if one is None:
            line += ["baseline" if row.is_baseline else "—", "", "", ""]
        else:
            ps = (p_text(one.p_queries_adjusted), p_text(one.p_both_adjusted))
            line += [short_signed(one.delta), short_interval(one), *ps]
        lines.append(line)
    return aligned(lines, left=(0, 2))


def _averages(found: RunComparison) -> list[str]:
    """The average gain over all columns, where there are several collections."""
    gained = [row for row in found.rows if row.average_gain is not None]
    if not gained:
        return []
    level = f"{100 * (1 - found.alpha):g} %"
    lines = [["system", f"avg. gain [{level} interval]"]]
    lines += [[shortened(row.label, _LABEL), average_text(row.average_gain)] for row in gained]
    over = baseline_words(found.baselines[:1]).removeprefix("baseline ")
    head = f"Average gain over {over}: mean of {len(found.measures)} columns"
    return ["", *textwrap.wrap(head, WIDTH), *aligned(lines, left=(0, 1))]


def declared(found: RunComparison) -> list[str]:
    """Which systems have no other run by declaration."""
    if not found.deterministic:
        return []
    return [f"Deterministic by declaration, no seed variance: {', '.join(found.deterministic)}."]


def _ties(found: RunComparison) -> list[str]:
    if not found.measured.tied:
        return []
    return [f"{found.measured.tied:,} documents tie with another; {TIE_POLICY}."]


def _legend(found: RunComparison) -> str:
    one = found.comparisons[0]
    who = found.baselines[0] if isinstance(found.baselines[0], str) else "its own baseline"
    several = "" if len(found.baselines) == 1 else " b, B: the same for the next baseline."
    return (
        f"a: differs from {who} with queries random only; A: with queries and training "
        f"runs random; ↓: a loss.{several} p is adjusted ({one.correction}, {one.family_size} per "
        "measure)."
    )


def reservations(found: RunComparison, *, margin: float = 0.01) -> list[str]:
    """What one run cannot say, or what the runs say about the customary test and the best gain."""
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
    return [false_positive_sentence(rates, alpha=found.alpha), _size(found, margin)]


def _size(found: RunComparison, margin: float) -> str:
    """How large the best gain can be at most: "no more than" is a claim with a test of its own."""
    matrix = found.matrices[found.measures[0]]
    known = [
        one
        for row in found.rows
        if (one := row.cells[0].comparison) is not None and not math.isnan(one.se_both)
    ]
    best = max(known, key=lambda one: one.delta)
    test = scope_test(
        matrix.scores[best.system],
        matrix.scores[best.baseline],
        deterministic=(best.system in found.deterministic, best.baseline in found.deterministic),
    )
    size = equivalence_sentence(
        test, margin=margin, mean_baseline=best.mean_baseline, alpha=found.alpha
    )
    return f"Best on {matrix.measure}: {best.system} over {best.baseline}. {size}"
