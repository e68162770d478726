"""Of a group of workers, the one that began its end is named, with the kind of its failure."""

import os
import pickle
import time
from types import SimpleNamespace

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext, NodeDeathInfo
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    OutOfMemoryError,
    RayTaskError,
)
from ray.train import ControllerError
from ray.train.v2._internal.exceptions import (
    WorkerGroupStartupFailedError,
    WorkerHealthCheckFailedError,
)
from ray.train.v2.api.exceptions import WorkerGroupError
from ray.tune.experiment import Trial

from rank_core.errors import BadInput, OutOfMemory
from sweeps.plan.resources import Resources
from sweeps.ray_engine import drain, trial_process
from sweeps.ray_engine.group_network import choose_interface, interface_of
from sweeps.ray_engine.runner import error_of
from sweeps.ray_engine.trial_process import WorkerFailed, end_of_group, kind_of_error
from sweeps.store.failures import first_line


def test_workers_meet_on_the_network_of_rays_node_address(monkeypatch):
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=eth7")  # the user's own
    choose_interface()
    assert (os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"]) == ("lo", "=eth7")
    assert interface_of("192.0.2.1") is None


@pytest.mark.parametrize("goes", ["worker", "driver"])
def test_a_group_leaves_where_the_node_of_a_worker_or_of_its_driver_goes(monkeypatch, goes):
    going, asked = {"another"}, []

    def compute(task, is_going, may_grow):
        asked.append(is_going())
        going.add(goes)
        while not is_going():  # a thread looks
            time.sleep(0.01)
        yield from ()

    monkeypatch.setattr(drain, "draining_nodes", lambda: going)
    monkeypatch.setattr(drain, "LOOK_SECONDS", 0.01)
    drain.notice_of.cache_clear()
    for name, value in {
        "this_node": lambda: "worker",
        "task_here": dict,
        "compute": compute,
    }.items():
        monkeypatch.setattr(trial_process, name, value)
    monkeypatch.setattr(trial_process.train, "report", lambda report: None)
    resources = Resources(num_workers=2, cpus=1, gpus=0, threads=1, slots=1)
    trial_process._train_worker({"expected": True, "driver": "driver", "resources": resources})
    drain.notice_of.cache_clear()
    assert asked == [False]


WAITS: list[float] = []


def raised(error):
    """What a worker says of an error, with its traceback."""

    def worker(config):
        raise error

    context = SimpleNamespace(get_actor_id=lambda: "ab12")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(WorkerFailed) as failed:
        patch.setattr(trial_process, "ray", SimpleNamespace(get_runtime_context=lambda: context))
        patch.setattr(trial_process, "time", SimpleNamespace(sleep=WAITS.append))
        trial_process._in_group(worker, {})
    return failed.value


def told(**failures):
    """What is told of a group in which ranks failed so."""
    ranks = {int(rank.removeprefix("rank")): error for rank, error in failures.items()}
    return end_of_group(WorkerGroupError("text", ranks))


LOST_PEER = RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]")
NCCL = RuntimeError("NCCL error: remote process exited or there was a network error")


def test_the_rank_that_ran_out_of_memory_is_the_cause():
    end = told(rank0=raised(LOST_PEER), rank1=raised(OutOfMemory("the GPU must hold one row")))
    assert end.kind == "device memory" and end.process == "ab12"
    assert end.reason == "OutOfMemory: the GPU must hold one row (rank 1)"
    assert "OutOfMemory" in end.traceback


@pytest.mark.parametrize("seen", [LOST_PEER, NCCL])
@pytest.mark.parametrize(
    ("death", "kind"),
    [(ActorDiedError(), "process died"), (OutOfMemoryError("95%"), "host memory")],
)
def test_a_death_explains_the_broken_connections(seen, death, kind):
    unhealthy = WorkerHealthCheckFailedError("A worker health check failed.", death)
    end = told(rank0=raised(seen), rank1=unhealthy)
    assert end.kind == kind and end.reason.endswith("(rank 1)")


@pytest.mark.parametrize("seen", [LOST_PEER, NCCL])
def test_broken_connections_alone_are_a_death_and_not_an_error_of_the_trial(seen):
    for ranks in ({"rank0": raised(seen)}, {"rank0": raised(seen), "rank2": raised(seen)}):
        end = told(**ranks)
        assert end.kind == "process died" and end.reason.endswith("(rank 0)")


@pytest.mark.parametrize(
    ("error", "kind", "waits"),
    [
        (LOST_PEER, "process died", True),
        (NCCL, "process died", True),
        (RuntimeError("NCCL error: unhandled cuda error"), "device", False),
        (BadInput("/data/igloo/docs.jsonl does not exist"), "error", False),
        (ValueError("x"), "error", False),
        (OutOfMemory("the GPU must hold one row"), "device memory", False),
    ],
)
def test_a_worker_waits_only_where_another_one_is_the_cause(error, kind, waits):
    WAITS.clear()
    failure = raised(error)
    assert failure.end.process == "ab12" and told(rank0=failure).kind == kind
    assert WAITS == [trial_process.PEER_SECONDS] * waits
    again = pickle.loads(pickle.dumps(failure))
    assert (again.end, again.lost_peer) == (failure.end, failure.lost_peer)


def test_an_error_of_the_trial_explains_them_too():
    end = told(rank0=raised(LOST_PEER), rank1=raised(ValueError("x")))
    assert (end.kind, end.reason) == ("error", "ValueError: x (rank 1)")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ControllerError(WorkerGroupStartupFailedError("a node died")), "process died"),
        (ControllerError(ActorDiedError()), "process died"),
        (ValueError("x"), "process died"),
    ],
)
def test_a_group_that_never_came_about_has_a_kind_too(error, kind):
    end = end_of_group(error)
    assert (end.status, end.kind) == ("failed", kind) and end.reason


def died(message, reason=None):
    context = ActorDiedErrorContext(error_message=message, actor_id=b"\0" * 16, pid=7)
    if reason is not None:
        context.node_death_info.reason = reason
    return ActorDiedError(context)


@pytest.mark.parametrize(
    "error, kind",
    [
        (died("Worker unexpectedly exits with a connection error code 2."), "process died"),
        (died("The actor died because its node has died. Node Id: 0a"), "node lost"),
        (died("The actor is dead because its owner has died. Owner Id: 01"), "node lost"),
        (died("gone", NodeDeathInfo.AUTOSCALER_DRAIN_PREEMPTED), "node lost"),
        (ActorUnavailableError("no answer", None), "node lost"),
        (NodeDiedError("gone"), "node lost"),
        (OutOfMemoryError("95% of the node's memory"), "host memory"),
        (RayTaskError("train", "Traceback", ValueError("x")), "error"),
        (None, "process died"),
    ],
)
def test_what_ray_raises_is_told_apart(error, kind):
    assert kind_of_error(error) == kind


def test_the_reason_names_the_cause_and_not_only_that_an_actor_died():
    text = first_line(died("The actor died because its node has died."))
    assert text.startswith("ActorDiedError: The actor died unexpectedly")
    assert "its node has died" in text and "actor_id" not in text and "\n" not in text


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OutOfMemoryError("2 workers were killed due to the node running low on memory."), "host"),
        (RuntimeError("the worker vanished"), "process"),
    ],
)
def test_the_cause_of_a_process_that_dies_as_it_starts_is_known(tmp_path, error, kind):
    trial = Trial("a trainable", stub=True)
    # In place of its session's folder, which needs a Ray.
    trial.storage = SimpleNamespace(trial_driver_staging_path=str(tmp_path))
    trial.handle_error(error)  # as Tune does, which pickles other errors alone
    found = error_of(trial)
    assert kind_of_error(found).startswith(kind) and str(error) in str(found)
