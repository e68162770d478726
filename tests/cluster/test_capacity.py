"""How many trials a cluster takes side by side, where it may still grow; without a cluster."""

import json

import pytest
import ray

from rank_core.errors import BadInput
from sweeps.plan.options import parse
from sweeps.ray_engine import cluster as resources
from sweeps.ray_engine.runner import _request


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
        monkeypatch.setattr(ray, "nodes", lambda: nodes_of(now))

    return state


def nodes_of(*resources):
    """What Ray says of living nodes with these resources."""
    return [
        {"Alive": True, "NodeID": str(number), "Resources": own}
        for number, own in enumerate(resources)
    ]


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
        return nodes_of(state)

    monkeypatch.setattr(ray, "nodes", look)
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
    monkeypatch.setattr(ray, "nodes", lambda: nodes_of({"CPU": 4}))
    monkeypatch.setattr(resources, "cluster_address", lambda: None)
    assert resources.trial_resources(options("--max-slots", "6")).slots == 4
    assert resources.trial_resources(options("--max-slots", "3")).slots == 3


HEAD, EIGHT = {"CPU": 64.0}, {"CPU": 16.0, "GPU": 8.0}


@pytest.mark.parametrize(
    ("nodes", "words", "slots"),
    [
        ([{"CPU": 3.0}, {"CPU": 3.0}], ["--cpus-per-worker", "2"], 2),
        ([HEAD, EIGHT, EIGHT], ["--cpus-per-worker", "8"], 4),
        ([HEAD, EIGHT, EIGHT], [], 16),
        ([EIGHT], ["--gpus-per-worker", ".6"], 8),
        ([EIGHT], ["--gpus-per-worker", ".5"], 16),
        ([EIGHT], ["--gpus-per-worker", ".1", "--cpus-per-worker", "1"], 16),
        ([{"CPU": 3.0}] * 4, ["--num-workers", "3", "--cpus-per-worker", "2"], 1),
        ([{"CPU": 9.0}], ["--num-workers", "2"], 4),
    ],
)
def test_slots_are_counted_by_node_and_by_gpu(monkeypatch, nodes, words, slots):
    monkeypatch.setattr(ray, "nodes", lambda: nodes_of(*nodes))
    wanted = resources.trial_resources(options(*words))
    assert wanted.slots == slots == resources.slots_now(wanted)[0]
    held = wanted.num_workers * slots
    assert held <= wanted.workers(resources.living_nodes()) < held + 2 * wanted.num_workers


def test_an_elastic_group_needs_the_fewest_and_may_have_all_that_fit(monkeypatch):
    monkeypatch.setattr(ray, "nodes", lambda: nodes_of({"CPU": 3.0}, {"CPU": 4.0}))
    wanted = resources.trial_resources(options("--num-workers", "2-16"))
    nodes = resources.living_nodes()
    assert (wanted.least, wanted.num_workers, wanted.slots) == (2, 16, 3)
    assert wanted.workers(nodes) == 7  # and not 8 of .9 CPU
    # The last one has all; of three each has its share, but at least two.
    found = [wanted.estimated(nodes, trials) for trials in (1, 2, 3, 9)]
    assert [(one.num_workers, one.slots) for one in found] == [(7, 1), (3, 2), (2, 3), (2, 3)]
    refused = r"needs 8 workers with 1 CPU .* in all"
    with pytest.raises(BadInput, match=refused):
        resources.trial_resources(options("--num-workers", "8-16"))


def test_a_range_that_starts_above_the_cores_is_refused(monkeypatch):
    """By the cores that a trial's workers get: 11 of .9 CPU would fit on 10, and no trial begin."""
    monkeypatch.setattr(ray, "nodes", lambda: nodes_of({"CPU": 11.0}))
    wanted = resources.trial_resources(options("--num-workers", "11-16"))
    assert resources.can_run(wanted) and resources.slots_now(wanted)[0] == 1
    monkeypatch.setattr(ray, "nodes", lambda: nodes_of({"CPU": 10.0}))
    assert not resources.can_run(wanted) and resources.slots_now(wanted)[0] == 0
    with pytest.raises(BadInput, match="needs 11 workers with 1 CPU"):
        resources.trial_resources(options("--num-workers", "11-16"))


def test_a_trial_that_fits_on_no_node_is_refused_with_the_largest(monkeypatch):
    monkeypatch.setattr(ray, "nodes", lambda: nodes_of(*[{"CPU": 3.0}] * 3))
    with pytest.raises(BadInput, match="has 9 CPU and 0 GPU in all, and at most 3 CPU and 0 GPU"):
        resources.trial_resources(options("--cpus-per-worker", "4"))


def test_gpus_that_stand_idle_for_want_of_cpus_are_named(monkeypatch):
    monkeypatch.setattr(ray, "nodes", lambda: nodes_of(HEAD, EIGHT, EIGHT))
    wide = resources.trial_resources(options("--cpus-per-worker", "8"))
    assert resources.idle_text(wide).startswith("12 GPUs idle: with 8 CPU a worker")
    assert resources.idle_text(resources.trial_resources(options())) == ""


A100, T4 = (EIGHT | {f"accelerator_type:{kind}": 1.0} for kind in ("A100", "T4"))


def test_a_sweep_is_held_to_the_kind_of_gpu_that_it_asks_for(monkeypatch):
    monkeypatch.setattr(ray, "nodes", lambda: nodes_of(HEAD, A100, T4, T4))
    held = {
        kind: resources.trial_resources(options("--accelerator", kind)) for kind in ("A100", "T4")
    }
    assert {kind: own.slots for kind, own in held.items()} == {"A100": 8, "T4": 16}
    assert resources.trial_resources(options()).slots == 24
    for kind, own in held.items():
        [bundle] = _request({"resources": own, "avoid": [], "slot": 0}).bundles
        assert bundle == {"CPU": 1.0, "GPU": 1.0, f"accelerator_type:{kind}": 0.001}
    wide = resources.trial_resources(options("--accelerator", "A100", "--cpus-per-worker", "8"))
    assert resources.idle_text(wide).startswith("6 GPUs idle")  # of its nodes alone
    monkeypatch.setattr(ray, "nodes", lambda: nodes_of(HEAD, T4))
    assert not resources.can_run(wide) and resources.slots_now(wide)[0] == 0


def test_a_kind_of_gpu_that_no_node_has_is_refused_with_those_there_are(monkeypatch):
    monkeypatch.setattr(ray, "nodes", lambda: nodes_of(HEAD, A100, T4))
    with pytest.raises(BadInput, match=r"A10G.*A100.*T4"):
        resources.trial_resources(options("--accelerator", "A10G"))
    with pytest.raises(BadInput, match="--accelerator"):
        options("--accelerator", "A100", "--engine", "local")


def test_an_autoscaler_is_asked_for_the_kind_of_gpu(cluster, monkeypatch):
    worker = {"CPU": 8, "GPU": 1, "accelerator_type:A100": 1}
    cluster(now={}, head={"CPU": 0}, worker=worker, max_workers=4)
    assert resources.trial_resources(options("--accelerator", "A100")).slots == 4
