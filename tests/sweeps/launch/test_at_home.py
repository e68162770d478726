"""The lines that a sweep on a cluster's head prints for the reader's own machine."""

import shlex

import pytest

from sweeps.launch.at_home import CLUSTER, PORT, home_lines
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.tracking.client import default_tracking_uri

SWEEP = "window_stride/python-docs"


@pytest.fixture
def on_a_head(monkeypatch):
    monkeypatch.setenv(CLUSTER, "cluster/config.yaml")


def lines(storage, tracking_uri=None):
    records = Records(Storage(storage), SWEEP)
    printed = home_lines(records, tracking_uri or default_tracking_uri(records))
    return {words[0]: words[1:] for words in map(shlex.split, printed[1:])}


@pytest.mark.parametrize("root", ["/home/ubuntu/results", "/home/u/my results"])
def test_pages_and_results_have_a_line_that_a_shell_reads(on_a_head, root):
    printed = lines(root)
    name = root.rpartition("/")[2]
    home = ["ray", "rsync-down", "cluster/config.yaml", f"{root}/", f"{name}/"]
    assert printed["results"] == home
    *ray, command = printed["MLflow"]
    forward = ["--port-forward", str(PORT)]
    assert ray == ["ray", "exec", "cluster/config.yaml", *forward]
    ui = ["ranksweep", "ui", "--port", str(PORT), f"{root}/{SWEEP}"]
    assert shlex.split(command) == ui


def test_a_server_elsewhere_has_its_own_pages(on_a_head):
    assert list(lines("/home/ubuntu/results", "https://mlflow.example.org")) == ["results"]


def test_a_bucket_is_at_home_everywhere(on_a_head):
    assert lines("memory://bucket") == {}


def test_without_a_cluster_nothing_is_said(monkeypatch):
    monkeypatch.delenv(CLUSTER, raising=False)
    assert lines("/home/ubuntu/results") == {}
