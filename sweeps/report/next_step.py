"""The command that follows from a result, as it is printed: it runs without a change."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from rank_core.stats.looks import level_of_look
from rank_core.stats.scopes import LEAST_SEEDS
from sweeps.findings.analysis import Analysis
from sweeps.plan.next_command import asked_of, confirming, copied_from, our_command, resumed, seeded
from sweeps.store.sweep_file import advisable, command_in
from sweeps.systems.load import Sweep
from sweeps.systems.order import ROUNDING
from sweeps.terminal.command_line import SCRIPT
from sweeps.terminal.notation import has_two_runs, names_text
from sweeps.terminal.text import about

BELOW_FIRST_STAGE = "docs/troubleshooting.md (My model is worse than BM25)"
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


@dataclass(frozen=True)
class _Place:
    """An analysis, and from where its commands are run."""

    analysis: Analysis
    where: str

    @property
    def sweep(self) -> Sweep:
        """The sweep of the analysis."""
        return self.analysis.sweep

    def step(self, why: str, command: str) -> NextStep:
        """A step by the sweep's own command, from the reader's working directory."""
        if not advisable(self.sweep.about.command):  # described by hand, or forged
            return NextStep(why)
        if self.where == HERE:
            return NextStep(why, command)
        driven = copied_from(self.sweep.about, self.sweep.stored)
        return NextStep(why, command_in(self.sweep.about.directory, command), driven)

    def of_folder(self, name: str, *words: str) -> str:
        """A command on the sweep's folder."""
        here = " ".join([SCRIPT, name, HERE, *words])
        return here if self.where == HERE else our_command(name, self.where, *words)

    def with_seeds(self, why: str, number: int) -> NextStep:
        """The sweep with so many seeds."""
        about = self.sweep.about
        return self.step(why, seeded(asked_of(about), about.seeds, number))


def next_step(analysis: Analysis, where: str = HERE) -> NextStep | None:
    """The step that follows from the result: that of the first rule that holds; None where none
    does. `where` is the sweep's folder or URI; commands then run in the reader's working
    directory."""
    if analysis.sweep.third_party:
        return _of_runs(analysis, two=any(map(has_two_runs, analysis.primary)))
    if analysis.sweep.about.smoke_test:
        return None
    place = _Place(analysis, where)
    return next((step for rule in RULES if (step := rule(place))), None)


def _unfinished(place: _Place) -> NextStep | None:
    if not any(row.seeds("planned", "running") for row in place.analysis.cells):
        return None
    about = place.sweep.about
    resume = resumed(asked_of(about), about.command, stopped=bool(about.stopped))
    return place.step("The command trains only the missing trials.", resume)


def _serves(place: _Place) -> NextStep | None:
    if not (place.sweep.serving and place.sweep.serving.file):
        return None
    return NextStep(
        "The export has the model and its serving.json.", place.of_folder("export", "--to", "model")
    )


def _indexes(place: _Place) -> NextStep | None:
    indexes, choice = place.sweep.indexes, place.analysis.choice
    if not indexes:
        return None
    if choice is None or choice.cell not in indexes or indexes[choice.cell].window is None:
        return NextStep("The choice cuts no chunks: there is no chunking.json.")
    return NextStep("docs/tutorial-embeddings.md puts report/chunking.json to use in an index.")


def _below_first_stage(place: _Place) -> NextStep | None:
    return NextStep(_raise_first(place.sweep)) if _is_below_first_stage(place.analysis) else None


def _too_few_seeds(place: _Place) -> NextStep | None:
    test = place.analysis.chosen
    if test is None or test.fewest_seeds >= LEAST_SEEDS:
        return None
    why = f"One planned comparison needs three seeds, a table five{_cost(place.sweep, 3)}."
    return place.with_seeds(why, LEAST_SEEDS)


def _undecided(place: _Place) -> NextStep | None:
    test, sweep = place.analysis.chosen, place.sweep
    if test is None or test.significant(sweep.tests.alpha):
        return None
    few = _unevaluated(sweep)
    more = f"; it evaluated {few}" if few else ""
    level = f"{level_of_look(sweep.about.tests.alpha, sweep.look + 1):.3g}"
    why = (
        f"With more seeds this sweep is tested at {level}, because it was tested before: plan them "
        f"for the difference that matters{more}."
    )
    wanted = f"{sweep.tests.margin:g}"
    command = place.of_folder("design", "--delta", wanted, "--alpha", level)
    return NextStep(why, command) if test.baseline in _trained(place.analysis) else NextStep(why)


def _trained(analysis: Analysis) -> list[str]:
    return [row.name for row in analysis.cells if row.name not in analysis.sweep.deterministic]


def _confirmed(place: _Place) -> NextStep | None:
    if not place.sweep.about.confirms:
        return None
    return NextStep("The confirmed model can be saved.", place.of_folder("export", "--to", "model"))


def _searched(place: _Place) -> NextStep | None:
    """A race and ASHA choose by the runs that are then tested, whatever the test says."""
    return _confirms(place) if place.sweep.about.eliminated else None


def _confirms(place: _Place) -> NextStep | None:
    choice = place.analysis.choice
    if choice is None or choice.cell in ("", place.sweep.baseline) or not place.analysis.chosen:
        return None
    why = (
        "A confirmation trains the choice and the baseline again with fresh seeds, for a gain "
        "without selection bias."
    )
    return place.step(why, confirming(asked_of(place.sweep.about)))


RULES: tuple[Callable[[_Place], NextStep | None], ...] = (
    _unfinished,
    _serves,
    _indexes,
    _below_first_stage,
    _too_few_seeds,
    _confirmed,
    _searched,
    _undecided,
    _confirms,
)
"""The first that holds says what to do."""


def _is_below_first_stage(analysis: Analysis) -> bool:
    """True if the choice ranks worse than the candidates that it was given."""
    sweep = analysis.sweep
    best = analysis.choice.system if analysis.choice else ""
    first = sweep.first_stage_mean
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
