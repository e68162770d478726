"""How many trials a cluster takes side by side, where it may still grow; without a cluster."""

import json

import pytest
import ray

from rank_core.errors import BadInput
from sweeps.plan.options import parse
from sweeps.ray_engine import cluster as resources


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Sets what the cluster has now and what its file lets it start."""

    def state(now, head, worker, max_workers):
        nodes = {
            "head": {"resources": head, "max_workers": 0},
            "gpu_worker": {"resources": worker, "max_workers": 8},
        }
        config = {"head_node_type": "head", "max_workers": max_workers}
        path = tmp_path / "ray_bootstrap_config.yaml"
        path.write_text(json.dumps(config | {"available_node_types": nodes}))
        monkeypatch.setattr(resources, "cluster_file", lambda: path)
        monkeypatch.setattr(ray, "cluster_resources", lambda: now)

    return state


def options(*words):
    return parse(words, prog="a.py", description="")


def test_workers_that_may_still_start_take_trials(cluster):
    cluster(now={}, head={"CPU": 0}, worker={"CPU": 8, "GPU": 1}, max_workers=4)
    wanted = resources.trial_resources(options())
    assert (wanted.slots, wanted.gpus) == (4, 1.0)
    assert resources.trial_resources(options("--gpus-per-worker", "0.5")).slots == 8


def test_a_head_with_cpus_takes_trials_too(cluster):
    cluster(now={"CPU": 2}, head={"CPU": 2}, worker={"CPU": 8}, max_workers=1)
    assert resources.trial_resources(options()).slots == 10


def test_a_trial_that_the_largest_cluster_cannot_hold_is_refused(cluster):
    cluster(now={}, head={"CPU": 0}, worker={"CPU": 8, "GPU": 1}, max_workers=4)
    with pytest.raises(BadInput, match="the cluster has 32 CPU and 4 GPU in all"):
        resources.trial_resources(options("--num-workers", "5"))


def test_a_cluster_without_workers_is_waited_for_up_to_its_limit(monkeypatch, capsys):
    now, asked = iter([*[{}] * 6, {"CPU": 2, "GPU": 1}]), []
    state = {}

    def look():
        state.update(next(now, {}))
        return state

    monkeypatch.setattr(ray, "cluster_resources", look)
    monkeypatch.setattr(resources, "cluster_address", lambda: "head:6379")
    monkeypatch.setattr(resources, "placement_group", lambda bundles: asked.append(bundles))
    monkeypatch.setattr(resources, "remove_placement_group", lambda group: asked.append("removed"))
    monkeypatch.setattr(resources, "NODE_SECONDS", 0.0)
    wanted = resources.trial_resources(options("--max-slots", "6"))
    assert (wanted.slots, wanted.gpus) == (6, 1.0)
    assert asked == [[{"CPU": 1.0}], "removed"]  # for which an autoscaler starts a node
    assert "waiting for a first node that can run a trial" in capsys.readouterr().out
    assert resources.slots_now(wanted) == (1, 6)


def test_on_one_machine_a_limit_is_only_a_limit(monkeypatch):
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4})
    monkeypatch.setattr(resources, "cluster_address", lambda: None)
    assert resources.trial_resources(options("--max-slots", "6")).slots == 4
    assert resources.trial_resources(options("--max-slots", "3")).slots == 3
