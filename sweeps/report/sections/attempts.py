"""What happened on the way: attempts that were lost, trials that never finished. Empty where every
trial ended by its first attempt."""

from collections.abc import Mapping
from typing import Any

from sweeps.report.load import Sweep
from sweeps.report.sections.section import Findings, Section
from sweeps.report.table import Table, table
from sweeps.store.failures import counted, in_words, lost_by_kind
from sweeps.store.trial_status import LOST, TrialStatus

_NAMED = 4
"""How many trials a sentence names before it says how many more there are."""
INTERRUPTED = "the command ended first"


def section(found: Findings) -> Section:
    """What went wrong, in sentences, and every lost attempt."""
    sweep = found.analysis.sweep
    sentences = happened(sweep)
    lost = lost_table(sweep) if sentences else None
    return Section(
        "What happened on the way",
        sentences=sentences,
        folded={lost.title: [lost]} if lost else {},
        is_folded=True,
        results={
            "trials": sweep.trials.to_dict("records"),
            "lost_attempts": sweep.failures.to_dict("records"),
        },
    )


def attempts_sentences(sweep: Sweep) -> list[str]:
    """For the conclusions: how many trials needed more than one attempt."""
    repeated = _repeated(sweep)
    return [repeated] if repeated else []


def happened(sweep: Sweep) -> list[tuple[str, str]]:
    """(subject, sentence) for the page."""
    found = [
        ("Stopped", sweep.stopped),
        ("Attempts", _repeated(sweep)),
        *(("Never finished", words) for words in _unfinished(sweep)),
    ]
    return [(subject, words) for subject, words in found if words]


def lost_table(sweep: Sweep) -> Table | None:
    """Every attempt that was recorded as lost."""
    rows = [
        (
            sweep.label(failure["cell"]),
            str(failure["seed"]),
            str(failure["attempt"]),
            str(failure["time"]).replace("T", " ").removesuffix("+00:00"),
            failure["node"] or "—",
            in_words(failure["kind"]),
            _first_line(failure["reason"]),
            "run again" if failure["again"] else "given up",
        )
        for failure in sweep.failures.to_dict("records")
    ]
    if not rows:
        return None
    return table(
        ("system", "seed", "attempt", "when (UTC)", "node", "kind", "reason", "then"),
        rows,
        "lrrrllll",
        title=f"Lost attempts, one by one ({len(rows)})",
        caption="A trial that is run again resumes from its last checkpoint, or starts anew; on "
        "CPUs in fp32 its numbers are bit for bit those of an undisturbed one.",
    )


def _repeated(sweep: Sweep) -> str:
    trials = _launched(sweep)
    lost = lost_by_kind(trials, sweep.failures.to_dict("records"))
    if not lost:
        return ""
    again = sum(int(trial["attempts"]) > 1 for trial in trials)
    number = sum(lost.values())
    words = "1 attempt was lost" if number == 1 else f"{number} attempts were lost"
    needed = f"{again} of {len(trials)} trials needed more than one attempt; " if again else ""
    return f"{needed}{words}: {counted(lost)}."


def _unfinished(sweep: Sweep) -> list[str]:
    """Each reason once, with the trials that it ended."""
    reasons: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for trial in _launched(sweep):
        status, reason = trial["status"], _first_line(trial.get("stop_reason"))
        if status in LOST:
            reasons.setdefault((status, reason), []).append(trial)
        elif TrialStatus(status).waits:
            reasons.setdefault(("interrupted", INTERRUPTED), []).append(trial)
    return [
        f"{status.capitalize()}: {_named(sweep, trials)} ({reason or 'no reason was recorded'})."
        for (status, reason), trials in reasons.items()
    ]


def _launched(sweep: Sweep) -> list[dict[Any, Any]]:
    """The rows of trials that had an attempt."""
    rows = sweep.trials.to_dict("records")
    return [row for row in rows if row.get("attempts", 0) > 0]


def _named(sweep: Sweep, trials: list[Mapping[str, Any]]) -> str:
    names = [f"{sweep.label(trial['cell'])} seed {trial['seed']}" for trial in trials]
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED + 1 else []
    return ", ".join([*(names[:_NAMED] if more else names), *more])


def _first_line(reason: object) -> str:
    """The first line of a reason; parquet turns an absent one into NaN or None."""
    return reason.strip().partition("\n")[0] if isinstance(reason, str) else ""
