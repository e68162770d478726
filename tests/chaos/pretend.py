"""Trials that only pretend: their processes run a fault, and then report an end."""

import os

from sweeps.engine.trial_task import End
from sweeps.store.records import State
from sweeps.store.trial_status import TrialStatus

END = End(TrialStatus.DIVERGED, reason="this stands for any end")


def once(path: str) -> bool:
    """Whether nobody has asked before, in any process."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kinds(states: list[State]) -> list[str]:
    """Of all attempts that failed."""
    return [attempt.kind for state in states for attempt in state.attempts if attempt.lost]


def statuses(states: list[State]) -> tuple[list[str], list[int]]:
    """(statuses, attempts) of the trials, both sorted."""
    return sorted(state.status for state in states), sorted(s.num_attempts for s in states)
