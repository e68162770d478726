"""What a sweep leaves once its trials have ended: one table of values, and the report."""

import json
from pathlib import Path
from typing import Any

from rank_core.files import atomic_write
from sweeps.plan.plan import Plan
from sweeps.plan.terminal import say
from sweeps.report.access import ACCESS_FILE
from sweeps.report.build import Report, write_report
from sweeps.store.storage_retry import patient_read
from sweeps.store.sweep_file import update_sweep_file
from sweeps.store.trial_store import RESULT, Store
from sweeps.store.trial_table import TrialTable, per_query_table


def finish(plan: Plan, store: Store, trials: TrialTable) -> Report | None:
    """Tables and report of what is done; None where nothing is."""
    trials.write_tables()
    launched = trials.state.trials.keys()

    def pull() -> set[str]:
        finished = store.finished()
        store.pull(finished & launched)
        return finished

    finished = patient_read(store, pull)
    names = [trial.name for trial in plan.trials() if trial.name in finished]
    if not names:
        return None
    everything = sorted(finished & launched)
    table = per_query_table(store.folder, everything)
    with atomic_write(store.folder / "per_query.parquet") as unfinished:
        table.to_parquet(unfinished, index=False)
    results = [json.loads((store.folder / "runs" / n / RESULT).read_text()) for n in names]
    _note_versions(store.folder, results)
    say(_padding_text(results))
    store.pull_file(ACCESS_FILE)
    report = write_report(store.folder)
    store.push("sweep.json", "qrels", "per_query.parquet", "report", ACCESS_FILE)
    return report


def _padding_text(results: list[dict[str, Any]]) -> str:
    """How much of what the encoders were given was padding: the trial with the most."""
    most = {
        kind: max(result[f"{prefix}padding_share"] for result in results)
        for kind, prefix in (("evaluation", ""), ("training", "training_"))
    }
    shares = ", ".join(f"{share:.1%} in {kind}" for kind, share in most.items())
    return f"padding     at most {shares} of a trial's tokens"


def _note_versions(folder: Path, results: list[dict[str, Any]]) -> None:
    """Adds to `sweep.json` what the trials ran on; several kinds of machine are all named."""
    kinds: dict[str, dict[str, None]] = {}
    for result in results:
        for what, version in result["versions"].items():
            kinds.setdefault(what, {})[version] = None
    versions = {what: ", ".join(found) for what, found in kinds.items()}
    update_sweep_file(folder, versions=versions)
