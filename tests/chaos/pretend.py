"""Trials that only pretend: their processes run a fault, and then report an end."""

import os

from sweeps.engine.trial_task import End
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_table import TrialTable

END = End(TrialStatus.DIVERGED, reason="this stands for any end")


def once(path: str) -> bool:
    """Whether nobody has asked before, in any process."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kinds(table: TrialTable) -> list[str]:
    """Of all attempts that failed, in their order."""
    return [failure["kind"] for failure in table.state.failures()]


def statuses(table: TrialTable) -> tuple[list[str], list[int]]:
    """(statuses, attempts) of the trials in the table, both sorted."""
    rows = table.state.rows()
    return sorted(row["status"] for row in rows), sorted(row["attempts"] for row in rows)
