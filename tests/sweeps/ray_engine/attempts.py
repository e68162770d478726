"""Attempts of trials that begin and die, as Tune tells of them; Ray's own answers are made up."""

import io

import pytest
from ray.exceptions import ActorDiedError

from sweeps.engine.progress import Monitor
from sweeps.ray_engine import attempts as module
from sweeps.ray_engine.attempts import Launches
from sweeps.search.feed import Queue
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import Ledger
from sweeps.tracking.outbox import Outbox
from sweeps.tracking.recorder import Recorder

SMALL = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "2")  # 2 cells x 2 seeds


class Watched(Queue):
    """A queue that remembers what it was told."""

    def __init__(self, trials):
        super().__init__(trials)
        self.told = []

    def ended(self, trial, status):
        self.told.append((trial.name, status))

    def stop(self, trial, news):
        return news["step"] == 7


@pytest.fixture
def launches(tmp_path, plan_of, monkeypatch):
    """Two slots on a cluster of two nodes; every process is on node n1 and lives."""
    store = Store(str(tmp_path / "s"), "window_stride")
    store.open()
    plan, ledger = plan_of(*SMALL), Ledger(store)
    feed = Watched(ledger.plan(plan, store.finished()))
    recorder = Recorder(Outbox(store.folder / "outbox", "window_stride-woods"), store, plan)
    monitor = Monitor(ledger, recorder, feed, "nDCG@10", out=io.StringIO())
    monkeypatch.setattr(module, "node_of", lambda actor: ("n1" if actor else "", actor != "dead"))
    monkeypatch.setattr(module, "hosts", lambda: {"n1": "host-a", "n2": "host-b"})
    monkeypatch.setattr(module, "able_nodes", lambda needs: {"n1", "n2"})
    return Launches(feed, monitor, slots=2, needs={"CPU": 1})


def begin(launches, tune_id, actor="alive"):
    trial = launches.next(tune_id)
    launches.started(tune_id, actor)
    return trial


def lost(launches, tune_id):
    launches.failed(tune_id, ActorDiedError())
