"""The command that follows from a result, as it is printed: it runs without a change."""

import math
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass

from rank_core.errors import BadInput
from rank_core.stats.design import (
    Variances,
    planned_power,
    planned_variances,
    seeds_needed,
)
from rank_core.stats.scopes import LEAST_SEEDS
from sweeps.plan.next_command import asked_of, confirming, copied_from, our_command, resumed, seeded
from sweeps.report.analysis import Analysis
from sweeps.report.reliability import POWER, goal_of
from sweeps.store.sweep_file import advisable, command_in
from sweeps.systems.load import Sweep
from sweeps.systems.order import ROUNDING
from sweeps.terminal.command_line import SCRIPT
from sweeps.terminal.notation import has_two_runs, names_text, percent
from sweeps.terminal.text import about

BELOW_FIRST_STAGE = "docs/troubleshooting.md (My model is worse than BM25)"
FEW_SEEDS = 5
"""More seeds than this are no next step, but a design."""
TWO_SEEDS = "Two seeds cannot decide: three are needed."
HERE = "DIR"
"""The folder of a sweep in its own report, which may be anywhere."""
_UNTRAINED = re.compile(r"bm25[a-z]?|rm3|tf|idf|tfidf|qld?|dirichlet|dph|pl2|first|stage")
_BESIDE = re.compile(r"k1|b|run|default|tuned|top|lucene|anserini|pyserini|terrier|okapi|title")
"""Words of a name that say that a system is not trained, and those that may stand beside them."""


@dataclass(frozen=True)
class NextStep:
    """What to do after a result and why; without a command where no command does it."""

    why: str
    command: str = ""
    works_on: str = ""  # the sweep's folder, where the one that was read is a copy of it

    @property
    def lines(self) -> list[str]:
        """The reason, and `Next: COMMAND`, which must stay on one line."""
        lines = [self.why, *[f"Next: {self.command}"] * bool(self.command)]
        copied = f"This folder is a copy; the command works on {self.works_on}"
        return [*lines, *[copied] * bool(self.works_on)]


def next_step(analysis: Analysis, where: str = HERE) -> NextStep | None:
    """The step that follows from the result; None where none does. `where` is the sweep's folder or
    URI; commands then run in the reader's working directory."""
    sweep, two = analysis.sweep, any(map(has_two_runs, analysis.primary))
    if sweep.third_party:
        return _of_runs(analysis, two=two)

    def step(why: str, command: str) -> NextStep:
        if not advisable(sweep.about.command):  # described by hand, or forged
            return NextStep(why)
        if where == HERE:
            return NextStep(why, command)
        driven = copied_from(sweep.about, sweep.stored)
        return NextStep(why, command_in(sweep.about.directory, command), driven)

    def own(name: str, *words: str) -> str:
        here = " ".join([SCRIPT, name, HERE, *words])
        return here if where == HERE else our_command(name, where, *words)

    if any(summary.seeds("planned", "running") for summary in analysis.cells):
        resume = resumed(
            asked_of(sweep.about), sweep.about.command, stopped=bool(sweep.about.stopped)
        )
        return step("The command trains only the missing trials.", resume)
    if not analysis.primary or sweep.about.smoke_test:
        return None
    if sweep.serving:
        return NextStep(
            "The export has the model and its serving.json.", own("export", "--to", "model")
        )
    if sweep.indexes:
        return NextStep("docs/tutorial-embeddings.md puts report/chunking.json to use in an index.")
    if _is_below_first_stage(analysis):
        return NextStep(_raise_first(sweep))
    if all(math.isnan(c.p_both) for c in analysis.primary):
        cost = _cost(sweep, 3)
        why = f"One planned comparison needs three seeds, a table five{cost}."
        return step(why, seeded(asked_of(sweep.about), sweep.about.seeds, 3))
    significant = [c for c in analysis.primary if c.significant(sweep.about.alpha)]
    if not significant:
        variances = _variances(analysis)
        if variances is None:  # which a design would refuse, too
            why = "A smaller difference needs more queries."
            return (
                step(TWO_SEEDS, seeded(asked_of(sweep.about), sweep.about.seeds, 3))
                if two
                else NextStep(why)
            )
        number, why = _more_seeds(analysis, variances)
        if two and number:
            return step(why, seeded(asked_of(sweep.about), sweep.about.seeds, number))
        return NextStep(why, own("design", "--delta", f"{sweep.about.rope:g}"))
    if analysis.choice is None or analysis.choice.cell in ("", sweep.baseline):
        return None
    if sweep.about.confirms:
        return NextStep("The confirmed model can be saved.", own("export", "--to", "model"))
    why = (
        "A confirmation trains the choice and the baseline again with fresh seeds, for a gain "
        "without selection bias."
    )
    return step(why, confirming(asked_of(sweep.about)))


def _is_below_first_stage(analysis: Analysis) -> bool:
    """True if the choice ranks worse than the candidates that it was given."""
    sweep = analysis.sweep
    best = analysis.choice.system if analysis.choice else ""
    first = sweep.about.first_stage.get(sweep.primary)
    means = [row.mean(sweep.primary) for row in analysis.rows if row.name == best]
    return first is not None and any(first - mean > ROUNDING for mean in means)


def _raise_first(sweep: Sweep) -> str:
    """What to do below the first stage, before any further seed."""
    limits = [_unevaluated(sweep)]
    if steps := sweep.baseline_settings.get("training.max_steps"):
        limits.append(f"training ended after {steps} steps (training.max_steps)")
    limits = [limit for limit in limits if limit]
    raised = f"First raise the limits: {names_text(limits)}. " if limits else ""
    return (
        "The choice has a lower mean than the first stage, which more seeds will hardly "
        "change. "
        f"{raised}{BELOW_FIRST_STAGE} lists what to try, in order."
    )


def _unevaluated(sweep: Sweep) -> str:
    """How many queries were evaluated; "" where all were."""
    asked, evaluated = (
        sweep.about.collection.get("sampled_from"),
        sweep.scores["query_id"].nunique(),
    )
    return f"{evaluated} of {asked} queries (evaluation.max_test_queries)" if asked else ""


def _variances(analysis: Analysis) -> Variances | None:
    """What a design assumes of this sweep; None where its baseline has no seeds."""
    sweep = analysis.sweep
    matrix = analysis.matrix(sweep.primary)
    with suppress(BadInput):
        return planned_variances(matrix, baseline=sweep.baseline, paired_seeds=analysis.paired)
    return None


def _more_seeds(analysis: Analysis, variances: Variances) -> tuple[int, str]:
    """The number of seeds, at most `FEW_SEEDS`, that finds the largest difference of the sweep as a
    design plans, and why; 0 where more queries, or many more seeds, are needed."""
    sweep = analysis.sweep
    largest = max(analysis.primary, key=lambda c: abs(c.delta))
    delta, Q = (
        max(sweep.about.rope, abs(largest.delta)),
        len(analysis.matrix(sweep.primary).query_ids),
    )
    which = "the largest here" if delta > sweep.about.rope else "the margin"
    found = f"a difference of {delta:.3f}, {which},"
    goal = goal_of(largest, delta, sweep.about.alpha)
    needed = seeds_needed(variances, goal, num_queries=Q)
    have = min(c.fewest_seeds for c in analysis.primary)
    if have < LEAST_SEEDS and needed <= FEW_SEEDS:
        number = int(needed)
        train = "Add a third seed" if number == 3 else f"Train {number} seeds"
        at_power = f"is then found with {percent(POWER)} power or more"
        found = f"A{found.removeprefix('a')}"
        return number, f"{train}: two cannot settle it. {found} {at_power}{_cost(sweep, number)}."
    number = max(LEAST_SEEDS, int(have))
    power = percent(planned_power(variances, goal, num_seeds=number, num_queries=Q))
    few = _unevaluated(sweep)
    more = "more queries, or many more seeds."
    if few:
        more = f"more queries first. The sweep evaluated {few}."
    return 0, f"{number} seeds find {found} with {power} power: a decision needs {more}"


def _cost(sweep: Sweep, num_seeds: int) -> str:
    """`, about 40 min of trials` for the seeds that are missing, by the time of those that ran."""
    used = sweep.used
    if used.empty or not {"train_seconds", "eval_seconds"} <= set(used):
        return ""
    spent = used["train_seconds"] + used["eval_seconds"]
    seconds = spent.groupby(used["cell"], observed=True).mean()
    trained = [cell for cell in seconds.index if cell not in sweep.deterministic]
    have = used.groupby("cell", observed=True)["seed"].nunique()
    left = sum(seconds[cell] * max(0, num_seeds - have[cell]) for cell in trained)
    return f", about {about(left)} of trials" if left > 0 else ""


def declarable(analysis: Analysis) -> list[str]:
    """The systems of a third party with one run whose names say that they are not trained, in every
    word: `bm25+bert` is."""
    names = [system.cell.cell for system in analysis.single if analysis.sweep.third_party]
    return [name for name in names if is_untrained(name)]


def is_untrained(name: str) -> bool:
    """True for `BM25`, `bm25.k1=0.9.b=0.4.top1000`, `bm25+rm3`; False for `bm25+bert-mp`."""
    words = [word for word in re.findall(r"[a-z]+\d?\d?[a-z]?|\d+", name.lower()) if word]
    words = [re.sub(r"(?<=^top|^run)\d+", "", word) for word in words if not word.isdigit()]
    known = [word for word in words if _UNTRAINED.fullmatch(word)]
    return bool(known) and all(_UNTRAINED.fullmatch(w) or _BESIDE.fullmatch(w) for w in words)


def declaration(analysis: Analysis) -> str:
    """The flags that declare these systems, for a command or for Python."""
    names = declarable(analysis)
    if analysis.sweep.about.command:
        return " ".join(f"--deterministic {name}" for name in names)
    return f"deterministic={names[0] if len(names) == 1 else names!r}" if names else ""


def _of_runs(analysis: Analysis, *, two: bool) -> NextStep | None:
    sweep, names = analysis.sweep, declarable(analysis)
    single = [system.label for system in analysis.single]
    trained = [system.label for system in analysis.single if system.cell.cell not in names]
    if names and advisable(sweep.about.command) and not trained:
        flags = [word for name in names for word in ("--deterministic", name)]
        needs, it = ("needs", "it") if len(names) == 1 else ("need", "them")
        why = f"If {names_text(names)} {needs} no training, declare {it}: the result then holds for"
        return NextStep(
            f"{why} new training runs too.", f"{sweep.about.command} {shlex.join(flags)}"
        )
    if single:
        return NextStep(
            f"For a result about the methods, name several training runs of "
            f"{names_text(trained or single)} as "
            "NAME=run1,run2,run3, or declare a system without training (--deterministic NAME, in "
            "Python deterministic=)."
        )
    return NextStep("Add a third training run to each system.") if two else None
