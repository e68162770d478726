"""Lost attempts and unfinished trials, with their reasons."""

from typing import Any

from sweeps.plan.terminal import numbered
from sweeps.report.load import Sweep
from sweeps.report.notation import names_text
from sweeps.report.table import Table, table
from sweeps.store.failures import counted, in_words, lost_by_kind
from sweeps.store.trial_status import LOST, TrialStatus

_NAMED = 4
"""The number of trials that a line names before it counts the rest."""


def attempts_sentence(sweep: Sweep) -> str:
    """The number of trials with several attempts, for the conclusions; "" where none had."""
    trials = _launched(sweep)
    lost = lost_by_kind(trials, sweep.failures.to_dict("records"))
    if not lost:
        return ""
    again = sum(int(trial["attempts"]) > 1 for trial in trials)
    number = sum(lost.values())
    words = f"{numbered(number, 'attempt')} {'was' if number == 1 else 'were'} lost"
    needed = f"{again} of {len(trials)} trials needed more than one attempt; " if again else ""
    return f"{needed}{words}: {counted(lost)}."


def unfinished(sweep: Sweep) -> Table | None:
    """(status, its trials with the same reason, the reason), each reason once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for trial in _launched(sweep):
        status, reason = trial["status"], _first_line(trial.get("stop_reason"))
        if TrialStatus(status).waits and status not in LOST:
            status, reason = "interrupted", "the command ended first"
        if status in (*LOST, "interrupted"):
            name = f"{sweep.label(trial['cell'])} seed {trial['seed']}"
            reasons.setdefault((status, reason or "no reason was recorded"), []).append(name)
    rows = [(status, names_text(names, _NAMED), why) for (status, why), names in reasons.items()]
    return table(("status", "trials", "reason"), rows, "lll") if rows else None


def lost_table(sweep: Sweep) -> Table | None:
    """Every attempt that was recorded as lost."""
    rows = [
        (
            sweep.label(lost["cell"]),
            str(lost["seed"]),
            str(lost["attempt"]),
            str(lost["time"]).replace("T", " ").removesuffix("+00:00"),
            lost["node"] or "—",
            in_words(lost["kind"]),
            _first_line(lost["reason"]),
            "run again" if lost["again"] else "given up",
        )
        for lost in sweep.failures.to_dict("records")
    ]
    if not rows:
        return None
    return table(
        ("system", "seed", "attempt", "when (UTC)", "node", "kind", "reason", "then"),
        rows,
        "lrrrllll",
        title=f"Every lost attempt ({len(rows)})",
        caption="A trial that runs again resumes from its last checkpoint; on CPUs in fp32 its "
        "numbers are bit for bit those of an uninterrupted trial.",
    )


def _launched(sweep: Sweep) -> list[dict[Any, Any]]:
    """The rows of trials that had an attempt."""
    return [row for row in sweep.trials.to_dict("records") if row.get("attempts", 0) > 0]


def _first_line(reason: object) -> str:
    """The first line of a reason; a table stores a missing reason as NaN or None."""
    return reason.strip().partition("\n")[0] if isinstance(reason, str) else ""
