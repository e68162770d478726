"""The results of a sweep whose trials have ended: the report, and its tables for pandas."""

from collections.abc import Iterable

from sweeps.plan.plan import Plan
from sweeps.plan.terminal import say
from sweeps.report.access import ACCESS_FILE
from sweeps.report.build import Report, write_report
from sweeps.store.records import Records, State
from sweeps.store.sweep_file import (
    INTERPOLATED,
    local_copy,
    read_sweep_file,
    send,
    update_sweep_file,
)


def write_results(plan: Plan, records: Records) -> Report | None:
    """Writes the report of the finished trials; None without any."""
    states = records.states(trial.name for trial in plan.trials())
    finished = [state for state in states.values() if state.status.used]
    if not finished:
        return None
    _note_versions(records, finished)
    say(_padding_text(finished))
    copy = local_copy(records, read_sweep_file(records))
    report = write_report(copy.folder, uri=records.uri, collection=plan.inputs.collection)
    send(copy, "report", INTERPOLATED, ACCESS_FILE)
    return report


def _padding_text(finished: Iterable[State]) -> str:
    most = {
        kind: max(state.facts[f"{prefix}padding_share"] for state in finished)
        for kind, prefix in (("evaluation", ""), ("training", "training_"))
    }
    shares = ", ".join(f"{100 * share:.1f}% in {kind}" for kind, share in most.items())
    return f"padding     at most {shares}, of a trial's tokens"


def _note_versions(records: Records, finished: Iterable[State]) -> None:
    kinds: dict[str, dict[str, None]] = {}
    for state in finished:
        for name, version in state.facts["versions"].items():
            kinds.setdefault(name, {})[version] = None
    versions = {name: ", ".join(several) for name, several in kinds.items()}
    update_sweep_file(records, versions=versions)
