"""The headline: the system that was chosen, what it gains, how sure that is, what it costs.

Every way out has these sentences from here: terminal, page, results.json, model card, MLflow.
The choice is that of `sweeps.systems.choice`; its test is made once, here named.
"""

import math
from dataclasses import dataclass
from typing import Any

from rank_core.stats.compare import CellComparison, compare_pairs
from rank_core.stats.corrections import MAX_T
from rank_core.stats.scopes import LEAST_SEEDS
from sweeps.findings.analysis import Analysis
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.choice import Choice, over_limits
from sweeps.systems.chunk_sizes import usual_label
from sweeps.systems.costs import OF_INDEX, VECTORS, costs_of
from sweeps.systems.load import Sweep
from sweeps.systems.system import System
from sweeps.terminal.notation import ONE_RUN, difference_text, names_text, p_text, signed
from sweeps.terminal.text import in_words

MOST_WORDS = 25
"""Of the first sentence; names are shortened where it would have more."""
AFTER_CHOICE = "After allowing for the choice the gain is"
SMOKE_TEST = "A smoke test answers nothing."
_FROM_HERE_ON = 0.01  # a smaller saving is none


@dataclass(frozen=True)
class Headline:
    """The choice with its facts; `system` is "" where nothing was chosen.

    `sentence`, of at most 25 words, is followed by `more`. `gain` is over `reference`, the first
    stage or, without its row, the baseline, with the simultaneous interval of its family and its
    corrected p; all are None where the choice is the reference or was not tested. `mean_alone` is
    that of the model without the first stage, on the reported queries. `cost` is in `cost_unit`;
    `milliseconds` per query are a time of the trial's machine. They are None where unknown.
    """

    sentence: str
    more: tuple[str, ...] = ()
    system: str = ""
    reference: str = ""
    measure: str = ""
    mean: float | None = None
    mean_alone: float | None = None
    gain: float | None = None
    gain_after_choice: float | None = None
    """Each seed left out of the choice in turn; None where the choice could not be repeated."""
    gain_low: float | None = None
    gain_high: float | None = None
    p: float | None = None
    significant: bool = False
    cost: float | None = None
    cost_unit: str = ""
    milliseconds: float | None = None
    cheaper: str = ""
    """A system that costs less; `cheaper_loses` is the limit of what it may lose."""
    cheaper_loses: float | None = None

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join([self.sentence, *self.more])


def headline(analysis: Analysis) -> Headline:
    """The headline of an analysis."""
    sweep, choice = analysis.sweep, analysis.choice
    if sweep.about.smoke_test:
        return Headline(SMOKE_TEST)
    if choice is None:
        if over_limits(sweep) and any(row.num_used for row in analysis.cells):
            return Headline("Nothing was chosen: every finished system is over a limit of cost.")
        return Headline("Nothing was chosen: no system has a finished seed.")
    row = next(row for row in analysis.rows if row.name == choice.system)
    test, costs = analysis.chosen, costs_of(sweep)
    alone = {own.name: own for own in analysis.rows}.get(choice.cell) if choice.is_mixed else None
    cheaper, loses = _cheaper(analysis, choice)
    allowed = analysis.gain_after_choice
    return Headline(
        _sentence(analysis, row, test),
        tuple(
            filter(
                None,
                [
                    _without_first_stage(analysis, alone),
                    _of_runs(analysis, row, test),
                    _cheaper_text(analysis, choice, cheaper, loses),
                    _of_choice(analysis, choice),
                    _after_choice(analysis, test, allowed),
                    _of_look(analysis, test),
                ],
            )
        ),
        system=choice.system,
        reference=test.baseline if test else "",
        measure=sweep.primary,
        mean=row.mean(sweep.primary),
        mean_alone=alone.mean(sweep.primary) if alone else None,
        **(_facts(test, sweep.tests.alpha) if test else {}),
        gain_after_choice=None if math.isnan(allowed) else allowed,
        cost=costs.of.get(choice.system),
        cost_unit=costs.unit if choice.system in costs.of else "",
        milliseconds=costs.milliseconds.get(choice.system),
        cheaper=cheaper,
        cheaper_loses=loses,
    )


def _facts(test: CellComparison, alpha: float) -> dict[str, Any]:
    own, single = test.in_family, math.isnan(test.p_both)
    ends = (own.ci_queries_low, own.ci_queries_high) if single else (own.ci_low, own.ci_high)
    return {
        "gain": test.delta,
        "gain_low": ends[0],
        "gain_high": ends[1],
        "p": test.p_both_adjusted,
        "significant": test.significant(alpha),
    }


def _sentence(analysis: Analysis, row: System, test: CellComparison | None) -> str:
    """The first sentence."""
    sweep = analysis.sweep
    name = called(analysis, row.name)
    value = f"{sweep.primary} {row.mean(sweep.primary):.{sweep.digits}f}"
    if test is None and row.name in (FIRST_STAGE, sweep.baseline):
        form = f"Keep {{}} ({value}): {_no_other(sweep)} on {_where(analysis)}."
        return _shortened(form, name)
    if test is None:
        return _shortened(f"Use {{}}: {value}, not compared with another system.", name)
    gain = difference_text(test, sweep.digits).removesuffix(ONE_RUN)
    p = f"p {p_text(test.p_both_adjusted)}"
    base = called(analysis, test.baseline)
    if test.fewest_seeds < LEAST_SEEDS:
        few = "one run" if math.isnan(test.p_both) else "two runs"
        form = f"{{}} has the highest {sweep.primary} on {_where(analysis)}, but {few} cannot "
        form += f"decide its {signed(test.delta, sweep.digits)} over {{}}."
        return _shortened(form, name, base)
    if test.significant(sweep.tests.alpha) and test.delta > 0:
        return _shortened(f"Use {{}}: {value}, {gain} over {{}}, {p}.", name, base)
    shown = "not shown to be better than"
    if test.significant(sweep.tests.alpha):
        shown = f"on {sweep.split} worse than"
    return _shortened(f"Use {{}}: {value}, {shown} {{}}: {gain}, {p}.", name, base)


def _no_other(sweep: Sweep) -> str:
    within = " within the limits" if sweep.about.at_most else ""
    less = ", less what its costs weigh," if sweep.about.cost_weights else ""
    return f"no other system{within} has a higher mean{less}"


def _where(analysis: Analysis) -> str:
    choice = analysis.choice
    return "these queries" if choice is None or choice.on_reported else choice.split


def _without_first_stage(analysis: Analysis, alone: System | None) -> str:
    """The value of a folder's model where no scores of the first stage are at hand."""
    if alone is None:
        return ""
    mean = f"{alone.mean(analysis.sweep.primary):.{analysis.sweep.digits}f}"
    return f"Without the scores of {analysis.sweep.first_stage_name} it has {mean}."


def _of_runs(analysis: Analysis, row: System, test: CellComparison | None) -> str:
    """Runs of the chosen system that are missing or diverged; systems that are out for it."""
    sweep, choice = analysis.sweep, analysis.choice
    parts = []
    if test is not None and test.fewest_seeds < LEAST_SEEDS:
        have = 1 if math.isnan(test.p_both) else 2
        runs = "training run" if sweep.third_party else "seed"
        missing = LEAST_SEEDS - have
        more = f"{in_words(missing)} more {runs}{'s' if missing > 1 else ''}"
        side = "It needs" if row.num_used <= have else f"{sweep.label(test.baseline)} needs"
        parts.append(f"{side} {more}.")
    lost = row.seeds("diverged") if row.num_launched else []
    if lost:
        parts.append(f"{len(lost)} of its {row.num_launched} runs diverged.")
    if choice is not None and choice.diverged:
        names = [_diverged(analysis, cell) for cell in choice.diverged]
        parts.append(f"Out, because runs diverged: {names_text(names, 2)}.")
    return " ".join(parts)


def _diverged(analysis: Analysis, cell: str) -> str:
    row = next(row for row in analysis.rows if row.name == cell)
    return f"{row.label} ({len(row.seeds('diverged'))} of {row.num_launched})"


def _of_choice(analysis: Analysis, choice: Choice) -> str:
    """That the queries of the test chose the system, too."""
    if not choice.on_reported or choice.num_candidates < 2:
        return ""
    return f"It was chosen from {choice.num_candidates} on the reported queries."


def _after_choice(analysis: Analysis, test: CellComparison | None, allowed: float) -> str:
    """The gain after allowing for the choice, where it is another one, or a search chose by the
    same runs."""
    digits = analysis.sweep.digits
    if test is None or test.fewest_seeds < LEAST_SEEDS:
        return ""
    if math.isnan(allowed):
        searched = bool(analysis.sweep.about.eliminated)
        return "Only a confirmation gives a gain without the luck of the search." * searched
    gain = signed(allowed, digits)
    if gain == signed(test.delta, digits) and not analysis.sweep.about.eliminated:
        return ""
    return f"{AFTER_CHOICE} {gain}."


def _of_look(analysis: Analysis, test: CellComparison | None) -> str:
    """The level of a further look."""
    sweep = analysis.sweep
    if test is None or sweep.look == 1:
        return ""
    return f"Look {sweep.look} at this sweep: its level is {sweep.tests.alpha:.3g}."


def _cheaper(analysis: Analysis, choice: Choice) -> tuple[str, float | None]:
    """A system that costs less, and the limit of what it may lose, simultaneous over all that do:
    the cheapest whose limit is within the margin, else the best of them on dev."""
    sweep, costs = analysis.sweep, costs_of(analysis.sweep).of
    matrix = analysis.row_scores.tested.get(sweep.primary)
    if matrix is None or choice.system not in matrix.cells or choice.system not in costs:
        return "", None
    most = (1 - _FROM_HERE_ON) * costs[choice.system]
    reference = analysis.chosen.baseline if analysis.chosen else ""
    others = [
        name
        for name in choice.order
        if name in matrix.cells and costs.get(name, math.inf) < most
        if name not in (choice.system, reference, FIRST_STAGE)
    ]
    pairs = compare_pairs(
        matrix,
        [(name, choice.system) for name in others],
        correction=MAX_T,
        alpha=sweep.tests.alpha,
        paired_seeds=analysis.paired,
        deterministic=[name for name in analysis.fixed if name in matrix.cells],
    )
    limits = {pair.system: (pair.p_both, -pair.in_family.ci_low) for pair in pairs}
    loses = {name: low for name, (p, low) in limits.items() if not math.isnan(p + low)}
    near = [name for name, limit in loses.items() if limit <= sweep.tests.margin]
    if near:
        best = min(near, key=lambda name: costs[name])
        return best, loses[best]
    return next(((name, loses[name]) for name in others if name in loses), ("", None))


def _cheaper_text(analysis: Analysis, choice: Choice, cheaper: str, loses: float | None) -> str:
    if not cheaper or loses is None:
        return ""
    sweep, costs = analysis.sweep, costs_of(analysis.sweep)
    saved = f"{100 * (1 - costs.of[cheaper] / costs.of[choice.system]):.0f}%"
    several = costs.unit in OF_INDEX  # "Chunks of 120 tokens need ...", "MaxP 48/32 reads ..."
    what = OF_INDEX.get(costs.unit, "tokens")
    does = f"{'need' if several else 'reads'} {saved} fewer {what}"
    if loses <= sweep.tests.margin:
        verb = "are" if several else "is"
        limit = f"{verb} at most {max(loses, 0.0):.{sweep.digits}f} worse"
    else:
        limit = f"may be up to {loses:.{sweep.digits}f} worse"
    return f"{called(analysis, cheaper, starts=True)} {does} and {limit}."


def cost_text(said: Headline) -> str:
    """`It reads 62 encoder tokens per document.`; "" where the cost is unknown."""
    if not said.cost:
        return ""
    digits = 1 if said.cost_unit == VECTORS else 0
    verb = "needs" if said.cost_unit in OF_INDEX else "reads"
    text = f"It {verb} {said.cost:,.{digits}f} {said.cost_unit}"
    if said.milliseconds is not None:
        text = f"{text.removesuffix(' per query')} and takes {said.milliseconds:,.2g} ms per query"
    return f"{text}."


def called(analysis: Analysis, name: str, *, starts: bool = False) -> str:
    """A system in a sentence: `MaxP 48/32 with BM25`, `chunks of 128 tokens, overlap 50%`."""
    sweep = analysis.sweep
    row = next((row for row in sweep.interpolated if row.name == name), None)
    if row is not None:
        how = "" if row.alphas else " by RRF"
        return f"{called(analysis, row.of, starts=starts)} with {sweep.first_stage_name}{how}"
    if name not in sweep.indexes:
        return sweep.label(name)
    facts = sweep.indexes[name]
    label, cut = sweep.label(name), f"cut at {facts.figures['largest_window']}"
    if facts.window is None and not label.startswith(cut):
        return label
    if facts.window is None:
        text = f"documents {label}" + " tokens" * (label == cut)
    elif label != usual_label(facts.window, facts.overlap):
        text = f"chunks of {label}"  # which says the rest in few words
    else:
        text = f"chunks of {facts.window} tokens, overlap {100 * facts.overlap:g}%"
    return f"{text[0].upper()}{text[1:]}" if starts else text


def _shortened(form: str, *names: str) -> str:
    """The sentence with the names of systems in it, which lose words in their middle where it would
    have more than `MOST_WORDS`."""
    words = [name.split() for name in names]
    left, room = MOST_WORDS - len(form.split()) + len(names), [*map(len, words)]
    while sum(room) > left:
        room[room.index(max(room))] -= 1
    text = form.format(*map(_shorter, words, room))
    return f"{text[0].upper()}{text[1:]}"


def _shorter(words: list[str], most: int) -> str:
    """`MaxP 48/32, … dropout 0.1`: the first and the last of more than `most` words."""
    if len(words) <= most:
        return " ".join(words)
    first = most // 2
    return " ".join([*words[:first], "…", *words[len(words) - (most - 1 - first) :]])
