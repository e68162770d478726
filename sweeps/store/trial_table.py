"""`trials.parquet`: a row per trial ever launched; `failures.parquet`: a row per attempt that ended
without a result. Kept by the driver alone.

The store decides what is finished; the ledger remembers attempts, reasons and costs.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from rank_core.files import atomic_write
from sweeps.plan.plan import Plan, Trial
from sweeps.store.failures import Failure
from sweeps.store.storage_retry import patiently
from sweeps.store.trial_store import RESULT, Store

FILE, FAILURES = "trials.parquet", "failures.parquet"
COSTS = (
    "train_seconds",
    "eval_seconds",
    "peak_memory_bytes",
    "encoder_tokens",
    "padding_share",
    "training_padding_share",
    "ties",
)


class Ledger:
    """The rows by trial name; every change is on disk before it returns."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.rows: dict[str, dict[str, Any]] = {
            f"{row['cell']}-seed{row['seed']}": _without_nan(row) for row in self._read(FILE)
        }
        self.failures = self._read(FAILURES)

    def plan(
        self, plan: Plan, finished: set[str], resting: Mapping[str, str] | None = None
    ) -> list[Trial]:
        """Takes in a plan and returns the trials that still have to run. Those `resting` at a rung
        may have to, and have reached something."""
        missing = []
        self.store.pull({trial.name for trial in plan.trials()} & finished)
        for trial in plan.trials():
            row = self._row(trial)
            if trial.name in finished:
                self._read_result(trial.name)
            elif row["status"] != "diverged":  # it would diverge again
                reached = (resting or {}).get(trial.name)
                if row["status"] == "stopped" and not reached:
                    row["attempts"] -= 1  # to be taken up by another search is no further attempt
                if reached and row["attempts"] and row["status"] != "stopped":
                    row["attempts"] += 1  # it died on the way to its next rung
                row["status"] = "stopped" if reached else "planned"
                row["stop_reason"] = reached or ""
                row["attempts"] = max(row["attempts"], 1) if reached else row["attempts"]
                missing.append(trial)
        self.save()
        return missing

    def started(self, trial: Trial) -> int:
        """Counts an attempt and returns its number."""
        row = self._row(trial)
        row["attempts"] += row["status"] != "stopped"  # else it goes on from its rung
        row["status"] = "running"
        self.save()
        return int(row["attempts"])

    def finished(self, trial: Trial) -> None:
        """Takes over the result that is in the store."""

        def read() -> None:
            self.store.pull({trial.name})
            self._read_result(trial.name)

        patiently(read, f"{self.store.storage} cannot be read")
        self.save()

    def failed(
        self, trial: Trial, failure: Failure, *, again: bool, excluded: Sequence[str] = ()
    ) -> None:
        """Records how an attempt ended without a result, whether another one follows, and the
        nodes that no more trials go to since."""
        row = {"cell": trial.cell.cell, "seed": trial.seed}
        row |= {"attempt": int(self._row(trial)["attempts"])}
        row |= {"time": datetime.now(UTC).isoformat(timespec="seconds"), "node": failure.where}
        row |= {"kind": failure.kind, "reason": failure.reason, "again": again}
        row |= {"excluded": ", ".join(excluded)}
        self.failures.append(row)
        self._write(FAILURES, pd.DataFrame(self.failures))

    def lost(self, trial: Trial, status: str, reason: str) -> None:
        """Records that a trial failed, diverged, or was interrupted before it was done."""
        row = self._row(trial)
        row["status"], row["stop_reason"] = status, reason
        self.save()

    def status(self, trial: Trial) -> str:
        """The trial's status now."""
        return str(self._row(trial)["status"])

    def save(self) -> None:
        """Writes all rows, atomically. Trials that never started are not in the table."""
        launched = [row for row in self.rows.values() if row["attempts"] > 0]
        columns = dict.fromkeys(key for row in self.rows.values() for key in row)
        self._write(FILE, pd.DataFrame(launched, columns=list(columns)))

    def _write(self, name: str, table: pd.DataFrame) -> None:
        path = self.store.folder / name

        def write() -> None:
            with atomic_write(path) as unfinished:
                table.to_parquet(unfinished, index=False)
            self.store.push(name)

        patiently(write, f"{self.store.storage} does not take {name}")

    def _read(self, name: str) -> list[dict[str, Any]]:
        path = self.store.pull_file(name)
        return pd.read_parquet(path).to_dict("records") if path.exists() else []

    def _row(self, trial: Trial) -> dict[str, Any]:
        if trial.name not in self.rows:
            settings = trial.config.settings()
            swept = ("model.name", *trial.swept)
            self.rows[trial.name] = {
                "cell": trial.cell.cell,
                "seed": trial.seed,
                "status": "planned",
                "stop_reason": "",
                "attempts": 0,
                **{name: settings[name] for name in swept},
                **dict.fromkeys(COSTS, float("nan")),
            }
        return self.rows[trial.name]

    def _read_result(self, name: str) -> None:
        result = json.loads((self.store.folder / "runs" / name / RESULT).read_text())
        row = self.rows[name]
        row["status"], row["stop_reason"] = result["status"], "completed"
        row["attempts"] = max(1, row["attempts"])
        row |= {cost: float(result[cost]) for cost in COSTS}


def per_query_table(folder: Path, names: list[str]) -> pd.DataFrame:
    """The per-query values of finished trials, one below the other."""
    tables = [pd.read_parquet(folder / "runs" / name / "per_query.parquet") for name in names]
    return pd.concat(tables, ignore_index=True)


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """Settings that a row does not have come back from a table as NaN."""
    return {key: value for key, value in row.items() if key in COSTS or value == value}
