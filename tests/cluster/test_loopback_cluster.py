"""The shipped cluster/local.yaml, brought up, used and taken down on three machines on loopback.

The machines are namespaces of this one. Their root has the packages that a machine with a network
would download; everything else is what the file says.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.launched import WORKING, Cluster, launched, processes, trials_on
from tests.cluster.machines import HOME, ROOT, SHARED, missing
from tests.e2e.conftest import trials_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

CONFIG = "cluster/local.yaml"
MAKING_TINY = 1500  # seconds that the first sweep of a machine may take for its backbone
EDITED = {  # what cluster/local.yaml asks a reader to edit
    "head_ip: 192.168.1.10": "head_ip: {head}",
    "worker_ips: [192.168.1.11, 192.168.1.12]": "worker_ips: [{worker}]",
    "ssh_user: ubuntu": "ssh_user: root",
    # Beside other work on this machine Ray's own niceness would starve the trials.
    "RAY_USAGE_STATS_ENABLED=0": "RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0",
    # The nodes share the packages of this environment, which may be newer than the file's.
    "constraints.txt: cluster/constraints.txt": f"constraints.txt: {HOME}/constraints.txt",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Iterator[Cluster]:
    text = (ROOT / CONFIG).read_text()
    for shipped, ours in EDITED.items():
        assert text.count(shipped) == 1
        text = text.replace(shipped, ours)
    with launched(tmp_path_factory.mktemp("machines"), shared, CONFIG, text) as cluster:
        yield cluster


def _statuses(sweep: Path) -> set[str]:
    return set(trials_of(sweep)["status"])


def test_the_nodes_run_the_copy_of_the_project_that_travelled(cluster: Cluster):
    where = cluster.on_head(
        "python -c 'import sweeps, rank_core, ranksweep as r; print(sweeps.__file__, r.__file__)'"
    )
    for package in ("sweeps", "ranksweep"):
        assert f"{HOME}/ranksweep/{package}/__init__.py" in where


@pytest.mark.timeout(600 + MAKING_TINY)
def test_ray_submit_runs_a_sweep_on_every_node_of_the_cluster(cluster: Cluster, shared: Path):
    cpus = int(sum(node["resources_total"]["CPU"] for node in cluster.nodes()))
    output = cluster.run(
        *("ray", "submit", CONFIG, "sweeps/window_stride.py", "--"),
        *("--smoke-test", "--storage", f"{SHARED}/submitted"),
        timeout=300 + MAKING_TINY,
    )
    assert f"on {cpus} slot" in output
    sweep = shared / "submitted" / "window_stride/python-docs"
    assert _statuses(sweep) == {"done"}
    assert (sweep / "report" / "index.html").exists()
    # The script travelled alone, and stands where Ray puts it.
    assert (cluster.head.disk / "window_stride.py").exists()
    assert not (cluster.head.disk / "sweeps").exists()


@pytest.mark.timeout(900)
def test_own_code_travels_to_the_nodes_that_do_not_have_it(
    cluster: Cluster, shared: Path, backbone_folder: Path
):
    shutil.copytree(backbone_folder, shared / "backbone")
    cluster.run("ray", "rsync-up", CONFIG, f"{ROOT}/docs/examples/", f"{HOME}/")
    words = f"--smoke-test --backbone {SHARED}/backbone --storage {SHARED}/own"
    submit = ("ray", "submit", CONFIG, "docs/examples/own_sweep.py", "--", *words.split())
    output = cluster.run(*submit, timeout=400)
    output += cluster.on_head(f"python -m sweeps run own_sweep.toml {words}")
    assert output.count("inputs on 2 nodes") == 2 and "SmoothMaxP 24/12" in output
    for name in ("smooth_chunks", "smooth_windows"):
        assert _statuses(shared / "own" / name / "notes") == {"done"}
    assert (cluster.head.disk / "own_model.py").exists()
    assert not (cluster.workers[0].disk / "own_model.py").exists()


@pytest.mark.timeout(1500)
def test_a_node_killed_in_mid_sweep_costs_time_and_no_trial(cluster: Cluster, shared: Path):
    """Two workers per trial, on whichever nodes; then one node's raylet is killed."""
    words = "--smoke-test --num-seeds 2 --num-workers 2 chunking.window=48 chunking.stride=32"
    lasting = "training.max_steps=60 training.num_epochs=60"
    worker, sweep = cluster.workers[0], shared / "killed" / "window_stride/python-docs"
    log = shared / "killed.log"
    submit = ["ray", "submit", CONFIG, "sweeps/window_stride.py", "--", *words.split()]
    with log.open("w") as output:
        driver = subprocess.Popen(
            cluster.laptop.command(
                *(*submit, *lasting.split(), "--storage", f"{SHARED}/killed"),
            ),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 400
        while " slot" not in log.read_text() or not trials_on(worker):
            assert driver.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        running = worker.processes().items()
        [raylet] = [pid for pid, command in running if "raylet/raylet" in command]
        subprocess.run(worker.command("kill", "-KILL", str(raylet)), check=True)
        killed_in_time = "[4/4]" not in log.read_text()
        assert driver.wait(900) == 0, log.read_text()
    finally:
        driver.kill()
        driver.wait()
    assert killed_in_time
    trials = trials_of(sweep)
    assert trials["status"].tolist() == ["done"] * 4
    assert trials["attempts"].max() >= 2, log.read_text()  # the kill hit a trial
    assert len(list(sweep.parents[1].glob("trials/*-seed*/result.json"))) == 4
    fetched = f"{HOME}/fetched"
    cluster.run(
        "ray", "rsync-down", CONFIG, f"{SHARED}/killed/window_stride/python-docs/report/", fetched
    )
    page = (cluster.laptop.disk / "fetched" / "index.html").read_bytes()
    assert page == (sweep / "report" / "index.html").read_bytes() and b"MaxP 48/32" in page


def test_after_ray_down_no_process_takes_work(cluster: Cluster):
    cluster.run("ray", "down", "-y", CONFIG)
    assert processes(cluster.head, "gcs_server", "dashboard", "monitor.py", *WORKING) == []
    # Nobody logs in to the workers: their Ray ends by itself when the head does not come back.
    deadline = time.monotonic() + 240
    while (left := processes(cluster.workers[0], *WORKING)) and time.monotonic() < deadline:
        time.sleep(1)
    assert left == []
