"""Sweeps as processes of their own, as the end-to-end tests start them, and pretended trials."""

import pytest

from sweeps.plan.options import parse
from sweeps.ray_engine.cluster import Resources
from tests.chaos.pretend import END
from tests.e2e.conftest import processes_below, read_mlflow, run_local, start_sweep
from tests.sweeps.conftest import follow, inputs_words, plan_of, records

__all__ = [
    "inputs_words",
    "plan_of",
    "processes_below",
    "read_mlflow",
    "records",
    "run_local",
    "start_sweep",
]

EIGHT = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "4")  # 2 cells x 4 seeds


@pytest.fixture
def run_pretended(records, plan_of, monkeypatch):
    """Runs eight trials whose processes call a function first; (states, what was said)."""
    from sweeps.ray_engine import runner

    plan = plan_of(*EIGHT)
    options = parse([], prog="window_stride.py", description="")
    slots = Resources(num_workers=1, cpus=1, gpus=0, threads=1, slots=2)

    def run(fault):
        end = END  # Ray sends the function by value, with what it closes over

        def pretend(config):
            from ray import tune

            fault(config["task"].name)
            tune.report({"report": end})

        monkeypatch.setattr(runner, "run_in_tune", pretend)
        drive = follow(records, plan)
        runner.run_on_slots(drive, options, slots)
        text = drive.screen.out.getvalue()
        assert len(drive.screen.ended) == 8, text
        return list(records.states(drive.screen.ended).values()), text

    return run
