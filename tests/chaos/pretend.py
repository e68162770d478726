"""Trials that only pretend: their processes run a fault, and then report an end."""

import os

import pandas as pd

from sweeps.engine.trial_task import End
from sweeps.store.trial_table import Ledger

END = End("diverged", reason="this stands for any end")


def once(path: str) -> bool:
    """Whether nobody has asked before, in any process."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kinds(ledger: Ledger) -> list[str]:
    """Of all attempts that failed, in their order."""
    return [failure["kind"] for failure in ledger.failures]


def statuses(ledger: Ledger) -> tuple[list[str], list[int]]:
    """(statuses, attempts) of the trials in the table, both sorted."""
    table = pd.read_parquet(ledger.store.folder / "trials.parquet")
    return sorted(table["status"]), sorted(table["attempts"])
