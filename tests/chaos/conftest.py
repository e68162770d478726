"""Sweeps as processes of their own, as the end-to-end tests start them, and pretended trials."""

import io

import pytest

from sweeps.engine.progress import Monitor
from sweeps.ray_engine.cluster_resources import Resources
from sweeps.search.feed import Queue
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import Ledger
from sweeps.tracking.outbox import Outbox
from sweeps.tracking.recorder import Recorder
from tests.chaos.pretend import END
from tests.e2e.conftest import processes_below, read_mlflow, start_sweep
from tests.sweeps.conftest import inputs_words, plan_of

__all__ = ["inputs_words", "plan_of", "processes_below", "read_mlflow", "start_sweep"]

EIGHT = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "4")  # 2 cells x 4 seeds


@pytest.fixture
def run_pretended(tmp_path, plan_of, monkeypatch):
    """Runs eight trials whose processes call a function first; (ledger, what was said)."""
    from sweeps.ray_engine import runner

    plan = plan_of(*EIGHT)
    store = Store(str(tmp_path / "s"), "window_stride")
    store.open()

    def run(fault, feed=Queue):
        end = END  # Ray sends the function by value, with what it closes over

        def pretend(config):
            from ray import tune

            fault(config["work"]["name"])
            tune.report(end)

        monkeypatch.setattr(runner, "run_in_tune", pretend)
        ledger, out = Ledger(store), io.StringIO()
        recorder = Recorder(Outbox(store.folder / "outbox", "window_stride-woods"), store, plan)
        trials = ledger.plan(plan, store.finished())
        monitor = Monitor(ledger, recorder, feed(trials), "nDCG@10", out)
        resources = Resources(num_workers=1, cpus=1, gpus=0, threads=1, slots=2)
        runner.run_trials(monitor.feed, store=store, resources=resources, monitor=monitor)
        assert len(monitor.ended) == 8, out.getvalue()
        return ledger, out.getvalue()

    return run
