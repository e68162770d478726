"""Sweeps as processes of their own, as the end-to-end tests start them."""

from tests.e2e.conftest import (
    assert_recorded_once,
    processes_below,
    read_mlflow,
    run_local,
    run_sweep,
    start_sweep,
)
from tests.sweeps.conftest import inputs_words, plan_of, records

__all__ = [
    "assert_recorded_once",
    "inputs_words",
    "plan_of",
    "processes_below",
    "read_mlflow",
    "records",
    "run_local",
    "run_sweep",
    "start_sweep",
]
