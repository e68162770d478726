"""How an attempt ended by an error: of one process, or of a group of Ray Train's workers.

A worker that fails must not report it and go: Ray Train's reports wait for all workers, and the
others wait for this one in a sum of gradients. It raises, which ends the whole group at once.
"""

import re
import traceback
from typing import Any

from rank_core.errors import BadInput, Diverged
from sweeps.store.failures import Kind, first_line, kind_of_error, kind_of_reason

CAUSES: tuple[Kind, ...] = (
    "node lost",
    "host memory",
    "process died",
    "device memory",
    "storage",
    "device",
    "error",
)
"""What explains the others comes first: a worker's death breaks the connections of the rest."""
_CONNECTION = re.compile(r"gloo|[Cc]onnection (closed|reset)|Broken pipe|ProcessGroup|NCCL")


class WorkerFailed(Exception):
    """Carries a worker's last report to whoever drives the group."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__(report)
        self.report = report


def end_of(error: Exception) -> dict[str, Any]:
    """The last report of a process that an error ended."""
    if isinstance(error, Diverged):
        return {"status": "diverged", "reason": str(error)}
    if isinstance(error, BadInput):
        return {"status": "failed", "reason": str(error)}
    text = "".join(traceback.format_exception(error))
    return {
        "status": "failed",
        "reason": f"{type(error).__name__}: {error}",
        "traceback": text,
    }


def end_of_group(error: Exception) -> dict[str, Any]:
    """The last report of a trial whose group ended by an error: that of the worker which began it,
    with its rank, and with Ray's id of its process."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    if not failures:
        return _end_without_worker(error)
    ends = [_end_of_worker(rank, failures[rank]) for rank in sorted(failures)]
    return min(ends, key=_distance)


def _end_of_worker(rank: int, error: Exception) -> dict[str, Any]:
    if isinstance(error, WorkerFailed):
        reason = error.report["reason"]
        return error.report | {"kind": kind_of_reason(reason), "reason": f"{reason} (rank {rank})"}
    cause = getattr(error, "health_check_failure", error)
    return {
        "status": "failed",
        "kind": _kind(cause),
        "reason": f"{first_line(cause)} (rank {rank})",
        "actor": getattr(cause, "actor_id", None),
    }


def _end_without_worker(error: Exception) -> dict[str, Any]:
    """Of a group that never came about, or whose nodes were taken away."""
    cause = getattr(error, "controller_failure", error)
    lost = hasattr(error, "preemption_info")
    kind = "node lost" if lost else _kind(cause)
    return {"status": "failed", "kind": kind, "reason": first_line(cause)}


def _kind(error: Exception) -> Kind:
    """Ray's kinds, and Ray Train's own: a worker that does not answer or did not start."""
    silent = type(error).__name__.startswith(("WorkerHealthCheck", "WorkerGroupStartup"))
    return "process died" if silent else kind_of_error(error)


def _distance(end: dict[str, Any]) -> tuple[int, bool]:
    """How far from the cause: a broken connection is what others see of it."""
    return CAUSES.index(end["kind"]), bool(_CONNECTION.search(end["reason"]))
