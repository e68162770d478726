"""The command that follows from a result, as it is printed: it runs without a change."""

import math
import re
import shlex
from dataclasses import dataclass

from sweeps.plan.command_line import SCRIPT
from sweeps.plan.next_command import confirming, ours, resumed, seeded
from sweeps.report.analysis import Analysis
from sweeps.report.notation import has_two_runs, names_text
from sweeps.report.summary import best_on_dev
from sweeps.store.sweep_file import command_in

HERE = "DIR"
"""The folder of a sweep in its own report, which may be anywhere."""
_UNTRAINED = re.compile(r"bm25|rm3|tf.?idf|first.?stage", re.IGNORECASE)


@dataclass(frozen=True)
class NextStep:
    """What to do after a result and why; without a command where no command does it."""

    why: str
    command: str = ""

    @property
    def lines(self) -> list[str]:
        """The reason, and `Next: COMMAND`, which must stay on one line."""
        return [self.why, *[f"Next: {self.command}"] * bool(self.command)]


def next_step(analysis: Analysis, where: str = HERE) -> NextStep | None:
    """The step that follows from the result; None where none does. `where` is the sweep's folder or
    URI; commands then run in the reader's working directory."""
    sweep, two = analysis.sweep, any(map(has_two_runs, analysis.primary))
    if sweep.third_party:
        return _of_runs(analysis, two=two)

    def step(why: str, command: str) -> NextStep:
        if not sweep.command:  # described by hand
            return NextStep(why)
        return NextStep(why, command_in("" if where == HERE else sweep.directory, command))

    def own(name: str, *words: str) -> str:
        here = " ".join([SCRIPT, name, HERE, *words])
        return here if where == HERE else ours(name, where, *words)

    if any(summary.seeds("planned", "running") for summary in analysis.cells):
        resume = resumed(sweep.asked, sweep.command, stopped=bool(sweep.stopped))
        return step("The command trains only the missing trials.", resume)
    if not analysis.primary or sweep.smoke_test:
        return None
    if sweep.serving:
        return NextStep("The model with its serving.json:", own("export", "--to", "model"))
    significant = [c for c in analysis.primary if c.significant(sweep.alpha)]
    if all(math.isnan(c.p_both) for c in analysis.primary):
        why = "One planned comparison needs three seeds, a table five."
        return step(why, seeded(sweep.asked, sweep.seeds, 3))
    if two and not significant:
        return step("A third seed decides.", seeded(sweep.asked, sweep.seeds, 3))
    if not significant:
        why = "A smaller difference needs more seeds and queries; the design says how many."
        return NextStep(why, own("design", "--delta", f"{sweep.rope:g}"))
    if all(c.delta < 0 for c in significant) or best_on_dev(sweep) == sweep.baseline:
        return None
    if sweep.confirms:
        return NextStep("The confirmed model can be saved.", own("export", "--to", "model"))
    why = (
        "A confirmation trains the best on dev and the baseline again with fresh seeds, for a gain "
        "without selection bias."
    )
    return step(why, confirming(sweep.asked))


def declarable(analysis: Analysis) -> list[str]:
    """The systems of a third party with one run whose names say that they are not trained."""
    names = [system.cell.cell for system in analysis.single if analysis.sweep.third_party]
    return [name for name in names if _UNTRAINED.search(name)]


def declaration(analysis: Analysis) -> str:
    """The flags that declare these systems, for a command or for Python."""
    names = declarable(analysis)
    if analysis.sweep.command:
        return " ".join(f"--deterministic {name}" for name in names)
    return f"deterministic={names[0] if len(names) == 1 else names!r}" if names else ""


def _of_runs(analysis: Analysis, *, two: bool) -> NextStep | None:
    sweep, names = analysis.sweep, declarable(analysis)
    single = [system.label for system in analysis.single]
    trained = [system.label for system in analysis.single if system.cell.cell not in names]
    if names and sweep.command and not trained:
        flags = [word for name in names for word in ("--deterministic", name)]
        why = f"{names_text(names)} without training has no other runs, and the result holds for"
        return NextStep(f"{why} new training runs too.", f"{sweep.command} {shlex.join(flags)}")
    if single:
        return NextStep(
            f"To hold for the methods, name several training runs of "
            f"{names_text(trained or single)} as "
            "NAME=run1,run2,run3, or declare a system without training: --deterministic NAME, "
            "deterministic= in Python."
        )
    return NextStep("Add a third training run each.") if two else None
