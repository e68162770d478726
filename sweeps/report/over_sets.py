"""The table over all test sets of a sweep: the comparison of its folders, row by row."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sweeps.findings.analysis import analyse
from sweeps.findings.unjudged import with_unjudged
from sweeps.plan.next_command import our_command
from sweeps.report.comparison import RunComparison
from sweeps.store.sweep_file import NoSweep, opened
from sweeps.store.test_options import TestOptions
from sweeps.systems.choice import choose
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import Sweep, load_sweep
from sweeps.systems.runs import RunSystems, run_systems
from sweeps.systems.sources import Held, TrainingRun, runs_of
from sweeps.terminal.notation import names_text
from sweeps.terminal.text import numbered

SETS = "sets"  # below the report of the sweep that trained


@dataclass(frozen=True)
class OverSets(RunComparison):
    """The comparison of a sweep's systems over the collections that its models were tested on."""

    left_out: tuple[str, ...] = ()  # sets, systems and runs that are not on all of them


def over_sets(sweep: Sweep, uri: str = "") -> OverSets | None:
    """The systems of a loaded sweep over its collection and its test sets, whose folders are beside
    its own; `uri` is its address where it is a copy. None for a sweep without test sets, and while
    no set has two systems."""
    if not sweep.about.test_sets:
        return None
    where = uri or sweep.stored.uri
    folders, left_out = {where: runs_of(sweep, where, all_rows=True)}, []
    for name, folder in sweep.about.test_sets.items():
        uri_of_set = f"{where.rpartition('/')[0]}/{folder}"
        if held := _of_set(uri_of_set):
            folders[uri_of_set] = held
        else:
            left_out.append(f"{name}: no trial has finished there")
    if len(folders) < 2:
        return None
    systems, lacking = _on_all([*folders.values()])
    if len(systems) < 2:
        return None
    found = run_systems(
        {label: tuple(runs) for label, runs in systems.items()},
        tests=_tests(sweep, systems),
        baselines=_baselines(sweep, systems),
        measures=tuple(dict.fromkeys([sweep.primary, *sweep.measures])),
        digits=sweep.digits,
        command=our_command("compare", *folders),
    )
    return _compared(found, sweep, (*left_out, *lacking))


def _of_set(where: str) -> Held:
    """The runs on a test set; none where it was not begun."""
    with suppress(NoSweep), opened(where) as records:
        sweep = with_interpolated(load_sweep(records))
        return {} if sweep.scores.empty else runs_of(sweep, where, all_rows=True)
    return {}


def _on_all(held: list[Held]) -> tuple[dict[str, list[TrainingRun]], list[str]]:
    """The systems that are on every collection with their seeds that are, and what is left out."""
    systems: dict[str, list[TrainingRun]] = {}
    lacking, fewer = [], []
    for label in held[0]:
        seeds = [{run.seed for run in runs.get(label, ())} for runs in held]
        shared = set.intersection(*seeds)
        if not shared:
            lacking.append(label)
            continue
        if any(numbers != shared for numbers in seeds):
            fewer.append(f"{label} ({numbered(len(shared), 'seed')})")
        systems[label] = [run for runs in held for run in runs[label] if run.seed in shared]
    notes = []
    if lacking:
        notes.append(f"Not on every set, so not in this table: {names_text(lacking)}.")
    if fewer:
        notes.append(f"With the seeds that are on every set alone: {names_text(fewer)}.")
    return systems, notes


def _baselines(sweep: Sweep, systems: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of the sweep's own table, as far as they are on all sets."""
    labels = [sweep.label(sweep.baseline)]
    labels += [sweep.first_stage.label] if sweep.first_stage else []
    return tuple(label for label in labels if label in systems) or (next(iter(systems)),)


def _tests(sweep: Sweep, systems: Mapping[str, list[TrainingRun]]) -> TestOptions:
    """The tests of the sweep's own table; seeds are paired where all trained systems have the
    same."""
    seeds = {
        tuple(sorted({run.seed or 0 for run in runs}))
        for runs in systems.values()
        if not all(run.deterministic for run in runs)
    }
    tests = sweep.about.tests
    return TestOptions(
        alpha=sweep.tests.alpha,  # of its look
        correction=sweep.tests.correction,
        correct_over=tests.correct_over,
        margin=tests.margin,
        paired_seeds=tests.paired_seeds and len(seeds) == 1,
    )


def _compared(found: RunSystems, sweep: Sweep, left_out: tuple[str, ...]) -> OverSets:
    """The tested table; its choice is that of the sweep, made on dev, where it is on all sets."""
    together, chosen = found.sweep, choose(sweep)
    about = together.about
    if chosen and chosen.label in {cell.label for cell in together.cells}:
        facts = {name: getattr(chosen, name) for name in ("label", "mean", "num_candidates")}
        about = replace(about, chosen=facts)
    about = replace(about, question=f"{sweep.question.rstrip('?')}, over all test sets?")
    together = replace(together, about=about, notes=(*left_out, *together.notes))
    analysis = with_unjudged(analyse(together))
    return OverSets(**{**vars(found), "sweep": together}, analysis=analysis, left_out=left_out)
