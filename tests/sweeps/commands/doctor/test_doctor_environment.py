"""What the doctor says of machines: GPUs, storage, MLflow and the nodes of a cluster."""

import dataclasses
import socket
import sqlite3

import pytest

from sweeps.commands.doctor.environment import accelerators, environment, probed
from sweeps.commands.doctor.services import (
    Node,
    cluster,
    node_findings,
    running_address,
    tracking,
    unreachable,
)
from sweeps.store.trial_store import Store


@pytest.fixture
def closed_port():
    """A port of this machine at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def levels(findings):
    return [one.level for one in findings]


def test_this_environment_meets_the_requirements_of_the_project():
    found = list(environment())
    assert "error" not in levels(found), found
    assert "torch 2." in found[0].text and "ray 2." in found[0].text


@pytest.mark.parametrize(
    ("attached", "build", "hidden", "level", "words"),
    [
        (0, None, None, "note", "no GPU on this machine"),
        (2, None, None, "error", "torch is a CPU build"),
        (2, "12.8", None, "error", "torch is built for CUDA 12.8"),
        (2, "12.8", "", "note", "CUDA_VISIBLE_DEVICES is ''"),
    ],
)
def test_gpus_that_torch_does_not_see_have_a_reason(attached, build, hidden, level, words):
    [found] = accelerators(visible=0, attached=attached, build=build, hidden=hidden)
    assert found.level == level and words in found.text


def test_the_probe_lies_in_the_storage_for_as_long_as_it_is_needed(tmp_path):
    with probed(Store(str(tmp_path), "doctor")) as probe:
        assert probe.path.read_bytes() == b"ok"
        assert probe.path.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_storage_that_is_not_there_yet_is_not_made(tmp_path):
    with probed(Store(str(tmp_path / "new" / "results"), "doctor")) as probe:
        assert probe.path is None and levels(probe.findings) == ["ok"]
    assert list(tmp_path.iterdir()) == []


def test_a_storage_in_memory_is_probed_like_any_uri():
    store = Store("memory://bucket/results", "doctor")
    with probed(store) as probe:
        assert probe.path is None and levels(probe.findings) == ["ok"]
        assert len(store.fs.find("/bucket/results")) == 1
    assert store.fs.find("/bucket/results") == []


def test_a_tracking_database_is_looked_at_and_not_made(tmp_path):
    file = tmp_path / "mlflow.db"
    assert levels(tracking(f"sqlite:///{file}")) == ["ok"]
    assert not file.exists()
    file.write_text("not a database, but long enough to have been read as the head of one" * 9)
    [found] = tracking(f"sqlite:///{file}")
    assert found.level == "error" and "no MLflow database" in found.text
    file.unlink()
    with sqlite3.connect(file) as database:
        database.execute("create table experiments (name text)")
        database.execute("insert into experiments values ('Default')")
    database.close()
    [found] = tracking(f"sqlite:///{file}")
    assert found.level == "ok" and found.text.endswith("1 experiment")


def test_a_server_that_is_away_is_an_error_without_its_password(closed_port):
    for scheme in ("http", "postgresql"):
        [found] = tracking(f"{scheme}://me:hunter2@127.0.0.1:{closed_port}/base")
        assert found.level == "error" and "Connection refused" in found.text
        assert "hunter2" not in found.text and "ranksweep sync" in found.remedy


def test_no_tracking_is_a_note():
    assert levels(tracking("none")) == ["note"]


def test_something_that_listens_is_reachable(closed_port):
    assert "Connection refused" in unreachable("127.0.0.1", closed_port)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert unreachable("127.0.0.1", server.getsockname()[1]) == ""


def test_no_cluster_is_looked_for_beyond_what_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    for named, expected in ((None, None), ("local", None), ("auto", None), ("h:1", "h:1")):
        if named is None:
            monkeypatch.delenv("RAY_ADDRESS", raising=False)
        else:
            monkeypatch.setenv("RAY_ADDRESS", named)
        assert running_address() == expected
    monkeypatch.delenv("RAY_ADDRESS")
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.1:6379\n")
    assert running_address() == "10.0.0.1:6379"


def test_a_cluster_that_is_away_is_an_error_at_once(monkeypatch, closed_port):
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed_port}")
    [found] = cluster(None)
    assert found.level == "error" and "no Ray cluster at 127.0.0.1" in found.text


NODE = Node("head", 1.0, 1, {"python": "3.11.7", "torch": "2.13.0", "ranksweep": "0.1.0"}, True)


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({}, None, ""),
        ({"versions": NODE.versions | {"torch": "2.12.0"}}, "error", "torch differs between nodes"),
        ({"versions": {"python": "3.11.7", "torch": "2.13.0"}}, "error", "missing on worker"),
        ({"sees_storage": False}, "error", "not the same folder on worker"),
        ({"attached": 4}, "warning", "fewer GPUs than are attached on worker"),
    ],
)
def test_what_differs_between_nodes_is_named_with_the_node(change, level, words):
    worker = dataclasses.replace(NODE, name="worker", **change)
    first, *found = node_findings([NODE, worker])
    assert first.level == "ok" and "2 nodes, 2 GPUs" in first.text
    assert levels(found) == ([level] if level else [])
    assert all(words in one.text for one in found)


@pytest.mark.slow
def test_a_server_that_answers_is_fine_and_one_that_refuses_is_not(tmp_path):
    from sweeps.tracking.server import local_server

    with local_server(f"sqlite:///{tmp_path / 'mlflow.db'}") as (base, _):
        assert levels(tracking(base)) == ["ok"]
        assert levels(tracking(f"{base}/nowhere")) == ["error"]


def test_a_cluster_that_a_sweep_would_not_use_is_named_and_not_examined(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "ray").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        [found] = cluster(None)
    assert found.level == "note" and address in found.text


@pytest.mark.ray
def test_the_nodes_of_a_running_cluster_answer_for_themselves(tmp_path, monkeypatch):
    import ray

    context = ray.init(address="local", num_cpus=1, include_dashboard=False)
    address = context.address_info["gcs_address"]
    monkeypatch.setenv("RAY_ADDRESS", address)
    probe = tmp_path / "probe"
    probe.write_text("x")
    from sweeps.commands.doctor.services import node_answers

    try:
        [node] = node_answers(str(probe))
        [blind] = node_answers(str(tmp_path / "absent"))
    finally:
        ray.shutdown()
    assert node.sees_storage and not blind.sees_storage
    assert node.versions["ray"] == ray.__version__ and "ranksweep" in node.versions
