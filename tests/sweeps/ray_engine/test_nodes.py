"""A node of a cluster that cannot work gets no trial and is named; a trial that was there waits."""

import errno
import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.util.placement_group import validate_placement_group

from rank_core.checkpoints import Cadence
from rank_core.chunking.inputs import load_inputs
from rank_core.errors import BadInput
from sweeps.ray_engine import attempts as attempts_module
from sweeps.ray_engine import driver_disk, trial_process
from sweeps.ray_engine import nodes as module
from sweeps.ray_engine.nodes import CheckpointLoad, Expected, Nodes, Unfit
from sweeps.store import storage as storages
from sweeps.store.lock import only_driver
from sweeps.store.records import Records
from sweeps.store.storage import Storage, StorageAway
from tests.sweeps.ray_engine.test_attempts import failures, state

SWEEP = "window_stride/woods"


@pytest.fixture(autouse=True)
def fresh():
    module.check_node.cache_clear()


@pytest.fixture
def expected(tmp_path):
    """What a driver with a storage here expects."""
    records = Records(Storage(str(tmp_path / "s")), SWEEP)
    records.storage.open()
    with only_driver(records):
        yield module.expected_of(records)


def test_a_node_with_all_that_the_driver_has_is_fit(expected):
    module.check_node(expected)
    assert any(one.startswith("torch 2") and "+" not in one for one in expected.versions)


def _other_version(expected, monkeypatch):
    here = module.version
    monkeypatch.setattr(module, "version", lambda name: "1.0" if name == "torch" else here(name))
    return "it has torch 1.0; the driver has python"


def _no_cache(expected, monkeypatch):
    monkeypatch.setattr(module, "cache_root", lambda: Path("/proc/no"))
    return "RANKSWEEP_CACHE must be a writable folder, got /proc/no"


def _through_ray(expected, monkeypatch, *errors):
    """A node that reaches the storage through Ray; the first calls end with these errors."""
    coming, disk = list(errors), driver_disk.Disk(expected.storage)

    def call(self, method, *arguments, **options):
        if coming:
            raise OSError(number := coming.pop(0), os.strerror(number))
        return getattr(disk, method)(*arguments, **options)

    monkeypatch.setattr(driver_disk.DriverDisk, "_call", call)
    monkeypatch.setattr(module, "storage_here", lambda root, *_: driver_disk.through_ray(root))
    monkeypatch.setattr(storages, "FIRST_PAUSE", 0.01)


def _no_way_to_the_driver(expected, monkeypatch):
    _through_ray(expected, monkeypatch, *[errno.EHOSTUNREACH] * 9)
    monkeypatch.setattr(storages, "WAIT_SECONDS", 0.0)
    return "No route to host"


def _no_right_to_write(expected, monkeypatch):
    def refused(self, path, *content, **how):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.pipe_file", refused)
    return "--storage must be writable, got .*Permission denied"


@pytest.mark.parametrize(
    "fault", [_other_version, _no_cache, _no_way_to_the_driver, _no_right_to_write]
)
def test_a_node_that_lacks_something_says_what(expected, monkeypatch, fault):
    said = fault(expected, monkeypatch)
    with pytest.raises(BadInput, match=said):
        module.check_node(expected)


HEADS_FAULTS = (errno.ENOSPC, errno.ENODEV)


@pytest.mark.parametrize("fault", (*HEADS_FAULTS, errno.EHOSTUNREACH))
def test_a_node_waits_for_the_disk_of_the_driver(expected, monkeypatch, fault):
    _through_ray(expected, monkeypatch, fault, fault)
    module.check_node(expected)


@pytest.mark.parametrize("fault", HEADS_FAULTS)
def test_a_disk_that_stays_full_or_away_is_no_fault_of_a_node(expected, monkeypatch, fault):
    _through_ray(expected, monkeypatch, *[fault] * 9)
    monkeypatch.setattr(storages, "WAIT_SECONDS", 0.0)
    with pytest.raises(StorageAway, match=os.strerror(fault)) as away:
        module.check_node(expected)
    nodes = Nodes(expected)
    nodes._checks, nodes._known = {"task": module._Check("n1", "host-a")}, {"n1"}

    def ended(task):
        raise module.ray.exceptions.RayTaskError("_join", "", away.value)

    monkeypatch.setattr(module.ray, "wait", lambda tasks, **_: (tasks, []))
    monkeypatch.setattr(module.ray, "get", ended)
    [line] = nodes._answers(0.0)
    assert line.startswith("host-a waits for the storage: ") and not nodes.unfit
    assert not nodes._known  # it is checked again


def test_a_way_is_not_measured_where_there_is_no_room(expected, monkeypatch):
    _through_ray(expected, monkeypatch, errno.ENOSPC)
    assert module._bytes_per_second(Storage(driver_disk.through_ray(expected.storage))) == math.inf


def test_a_node_with_another_collection_says_so(small_trial):
    contents = module.contents_of(load_inputs(small_trial.collection, small_trial.model.backbone))
    module.check_inputs(small_trial, contents)
    with pytest.raises(BadInput, match="has another content than the driver's"):
        module.check_inputs(small_trial, ("another", contents[1]))
    with pytest.raises(BadInput, match="does not exist"):
        module.check_inputs(small_trial.override({"collection": "/nowhere"}), contents)
    with pytest.raises(BadInput, match="there is no file /nowhere/w"):
        module.check_inputs(small_trial.override({"training.init_from": "/nowhere/w"}), contents)


@pytest.fixture
def one_process(monkeypatch, expected, small_trial):
    """What the process of a trial reports on a cluster; it ends with its exit code."""
    reports = []
    monkeypatch.setattr(trial_process.tune, "report", lambda news: reports.append(news["report"]))

    def ends(code):
        raise SystemExit(code)

    monkeypatch.setattr(trial_process.os, "_exit", ends)
    context = SimpleNamespace(get_node_id=lambda: "n1")
    monkeypatch.setattr(module.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(module.socket, "gethostname", lambda: "host-a")

    def run(**config):
        contents = module.contents_of(
            load_inputs(small_trial.collection, small_trial.model.backbone)
        )
        task = trial_process.TrialTask(
            *("t-seed1", small_trial, False, expected.storage, SWEEP, 1),
            cadence=Cadence(minutes=0),
        )
        here = {"expected": expected, "ready": ["n1"], "contents": contents}
        given = {"task": task} | here | config
        try:
            trial_process.run_in_tune(given)
        except SystemExit:
            reports.append("ended")
        return reports

    return run


def test_a_process_on_an_unfit_node_reports_it_and_is_not_used_again(one_process):
    unfit, ended = one_process(contents=("another", ""))
    assert unfit.host == "host-a" and "another content" in unfit.reason and ended == "ended"


def test_a_process_on_a_node_that_still_prepares_leaves_it_at_once(one_process, monkeypatch):
    monkeypatch.setattr(trial_process, "prepare", lambda config: pytest.fail("on its GPU"))
    unfit, ended = one_process(ready=["n2"])
    assert unfit.for_now and unfit.host == "host-a" and ended == "ended"


def test_a_process_that_has_waited_for_the_storage_in_vain_says_so(one_process, monkeypatch):
    def away(expected):
        raise StorageAway("/results: no space")

    monkeypatch.setattr(trial_process, "check_node", away)
    [end] = one_process()
    assert end.kind == "storage" and "no space" in end.reason


def test_a_trial_on_an_unfit_node_is_no_attempt_and_goes_elsewhere(attempts):
    attempts.nodes.expected = Expected("s3://b", SWEEP, "c")
    trial = attempts.next("a")
    attempts.started("a", "alive")
    assert attempts.events.screen.running[trial.name] == "its node is checked"
    attempts.unfit("a", Unfit("n1", "host-a", "no cache"))
    attempts.failed("a", None)  # its process ends
    assert state(attempts, trial).num_attempts == 0 and not failures(attempts)
    assert attempts.next("b") is trial and "n1" in attempts.nodes.unfit
    text = attempts.events.screen.out.getvalue()
    assert text.count("host-a gets no trial: no cache") == 1
    attempts.started("b", "alive")
    attempts.formed("b")
    assert state(attempts, trial).num_attempts == 1


def test_a_node_that_joins_gets_trials_once_it_has_prepared_its_inputs(attempts, monkeypatch):
    """n1 has, and n2 joins; a trial is placed there before anything is known of it."""
    nodes, joins, alive = attempts.nodes, [], ["n1", "n2"]
    nodes.expected, nodes.ready, nodes._known = Expected("s3://b", SWEEP, "c"), {"n1"}, {"n1"}

    class Join:
        """A task that ends when the test says so."""

        def remote(self, *arguments):
            return "join"

    monkeypatch.setattr(module, "_on", lambda node, work, memory: Join())
    monkeypatch.setattr(module.ray, "wait", lambda tasks, **_: (joins, []))
    monkeypatch.setattr(module.ray, "get", lambda task: (1e9, False))
    host = {"n1": "host-a", "n2": "host-b"}
    monkeypatch.setattr(
        module.ray,
        "nodes",
        lambda: [{"NodeID": n, "Alive": True, "NodeManagerHostname": host[n]} for n in alive],
    )
    can_hold = lambda *out: len({*alive} - {*out[-1]})  # noqa: E731
    monkeypatch.setattr(attempts_module, "slots_now", lambda resources, out: (can_hold(out), 2))
    monkeypatch.setattr(attempts_module, "can_run", lambda *needs: bool(can_hold(*needs)))
    monkeypatch.setattr(attempts_module, "PREPARE_SECONDS", 0.0)
    first, second = attempts.next("a"), attempts.next("b")
    attempts.unfit("b", Unfit("n2", "host-b", "it prepares its inputs", for_now=True))
    running = attempts.events.screen.running
    assert running[second.name] == "waiting until host-b has prepared its inputs"
    attempts.failed("b", None)  # its process ends
    assert state(attempts, second).num_attempts == 0 and not nodes.unfit
    assert attempts.next("c") is None  # n1 has one slot
    attempts.got_no_workers("a")
    attempts.completed("a")
    assert attempts.next("d") is second and not attempts.live["d"].avoids
    attempts.got_no_workers("d")
    attempts.completed("d")
    alive.remove("n1")
    attempts._follow_cluster()
    assert attempts.next("e") is None  # it would wait for a third node
    joins.append("join")
    attempts._follow_cluster()
    assert attempts.next("f") not in (None, first, second)  # which wait behind the others
    assert not attempts.live["f"].avoids
    text = attempts.events.screen.out.getvalue()
    assert "no trial" not in text and "preparing" not in text  # it took a moment


def test_a_long_preparation_of_a_node_that_joins_is_said(monkeypatch):
    nodes, clock = Nodes(Expected("s3://b", SWEEP, "c")), [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    alive = [{"NodeID": "n1", "NodeManagerHostname": "host-a"}]
    assert not [*nodes._waits(alive)] and nodes.without_trials == {"n1"}
    clock[0] = module.LINE_SECONDS
    [line] = nodes._waits(alive)
    assert line.startswith("preparing inputs on host-a, without a GPU")
    assert not [*nodes._waits(alive)]
    nodes.ready.add("n1")
    clock[0] *= 3
    assert not [*nodes._waits(alive)] and not nodes.without_trials


def test_no_trial_waits_for_a_node_that_can_run_none():
    nodes = Nodes(Expected("s3://b", SWEEP, "c"), needs={"CPU": 2.0, "GPU": 1.0})
    for number, gpus in enumerate((0.0, 1.0)):
        node = {"NodeID": "n1", "NodeManagerHostname": "host-a"}
        assert not [*nodes._waits([node | {"Resources": {"CPU": 8.0, "GPU": gpus}}])]
        assert len(nodes.waiting) == number


def test_a_node_whose_preparation_is_lost_gets_trials_which_prepare_it(monkeypatch):
    nodes = Nodes(Expected("s3://b", SWEEP, "c"))
    nodes._checks = {"task": module._Check("n1", "host-a")}

    def lost(task):
        raise module.ray.exceptions.WorkerCrashedError

    monkeypatch.setattr(module.ray, "wait", lambda tasks, **_: (tasks, []))
    monkeypatch.setattr(module.ray, "get", lost)
    assert ["lost while it prepared" in line for line in nodes._answers(0.0)] == [True]
    assert nodes.ready == {"n1"}


def test_ray_is_asked_for_any_node_but_the_unfit_ones():
    assert module.avoiding([]) == {}
    ids = ["a" * 56, "b" * 56]
    selector = module.avoiding(ids)
    assert selector == {"ray.io/node-id": f"!in({ids[0]},{ids[1]})"}
    validate_placement_group([{"CPU": 1.0}], bundle_label_selector=[selector])


def way(storage, rate, slots, **load):
    nodes = Nodes(Expected(storage, SWEEP, "c"), checkpoint=CheckpointLoad(**load))
    nodes.slowest = (rate, "://" not in storage, "worker")
    lines = list(nodes._way(slots))
    assert list(nodes._way(slots)) == []  # once
    return " ".join(lines)


def test_the_way_to_the_storage_is_said_with_the_cost_of_a_checkpoint():
    text = way("/results", 100e6, 2, bytes=1_760_000_000, minutes=1.0)
    assert "worker writes it through Ray" in text and "95.4 MiB/s" in text
    assert "a checkpoint of 1.6 GiB at most takes 18 s" in text
    # 17.6 s on its way, after 88 s, so that it is on its way a fifth of the time.
    assert text.endswith("a lost node costs each of its trials about 1 min 5 s of work")


def test_a_small_checkpoint_takes_no_0_seconds():
    assert "takes less than 1 s;" in way("/results", 100e6, 2, bytes=19_000_000, minutes=1.0)


def test_more_checkpoints_than_the_link_carries_propose_a_uri():
    text = way("/results", 100e6, 8, bytes=1_760_000_000, minutes=1.0)
    assert "checkpoints of 8 slots are 223.8 MiB/s at --checkpoint-minutes 1" in text
    assert "a URI such as s3://bucket/path carries more" in text
    assert "carries more" not in way("s3://b/p", 100e6, 8, bytes=1_760_000_000, minutes=1.0)


def test_no_checkpoints_cost_nothing():
    assert "checkpoint" not in way("/results", 100e6, 8, bytes=10**9, minutes=0.0)
    assert "checkpoint" not in way("/results", 100e6, 8)
