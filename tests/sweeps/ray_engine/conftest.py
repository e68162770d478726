"""Attempts of trials that begin and die, as Tune tells of them; Ray's own answers are made up."""

import pytest
from ray.exceptions import ActorDiedError

from sweeps.ray_engine import attempts as module
from sweeps.ray_engine.attempts import Attempts
from sweeps.ray_engine.cluster import Resources
from sweeps.ray_engine.nodes import Nodes
from tests.sweeps.conftest import Watched, follow

SMALL = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "2")  # 2 cells x 2 seeds
SLOTS = Resources(num_workers=1, cpus=1, gpus=0, threads=1, slots=2)


@pytest.fixture
def attempts(records, plan_of, monkeypatch):
    """Two slots on a cluster of two nodes; every process is on node n1 and lives."""
    events = follow(records, plan_of(*SMALL), Watched)
    monkeypatch.setattr(module, "node_of", lambda actor: ("n1" if actor else "", actor != "dead"))
    monkeypatch.setattr(module, "hosts", lambda: {"n1": "host-a", "n2": "host-b"})
    monkeypatch.setattr(module, "can_run", lambda *needs: True)
    monkeypatch.setattr(module, "slots_now", lambda resources, unfit=(): (SLOTS.slots, SLOTS.slots))
    return Attempts(events, SLOTS, Nodes())


def begin(attempts, tune_id, actor="alive"):
    trial = attempts.next(tune_id)
    attempts.started(tune_id, actor)
    return trial


def lost(attempts, tune_id):
    attempts.failed(tune_id, ActorDiedError())
