"""The shipped Slurm scripts under Debian's Slurm: a controller and two node daemons on loopback."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests.cluster.machines import ROOT
from tests.cluster.slurm import Job, Slurm, missing, running
from tests.e2e.conftest import trials_of, values_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.timeout(2000),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

NODES = ("--nodes=2", "--gpus-per-node=0", "--cpus-per-task=1", "--mem=4G")
SCRIPT, WORKERS = "cluster/slurm.sh", "cluster/slurm-workers.sh"
SHORT = ("--smoke-test", "chunking.window=48", "chunking.stride=32")
LASTING = (*SHORT, "--num-seeds", "1", "training.max_steps=20000", "training.num_epochs=20000")
STOPPED = "is requeued, and the sweep resumes"


@pytest.fixture(scope="module")
def slurm(own_machine: None) -> Iterator[Slurm]:
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        with running(Path(folder), "n1", "n2") as slurm:
            yield slurm


def checkout(folder: Path) -> Path:
    """A folder to submit from, with this checkout's code and environment."""
    folder.mkdir()
    for name in ("cluster", "sweeps"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


Submit = Callable[..., Job]


@pytest.fixture(scope="module")
def inputs(own_machine: None, backbone_folder: Path, collection_folder: Path) -> tuple[str, ...]:
    """The flags of the inputs, which are prepared: a job that prepares some has got on."""
    flags = ("--collection", str(collection_folder), "--backbone", str(backbone_folder))
    words = (*flags, *LASTING, "--prepare", "--engine", "local")
    subprocess.run([sys.executable, "sweeps/window_stride.py", *words], cwd=ROOT, check=True)
    return flags


@pytest.fixture
def submit(slurm: Slurm, inputs: tuple[str, ...]) -> Iterator[Submit]:
    """Submits a sweep as a job; what is left of a job is cancelled, and its end waited for."""
    jobs: list[Job] = []

    def start(where: Path, storage: Path, *words: str, request: tuple[str, ...] = ()) -> Job:
        sweep = ("sweeps/window_stride.py", *inputs, "--storage", str(storage))
        jobs.append(slurm.submit(*NODES, *request, SCRIPT, *sweep, *words, cwd=where))
        return jobs[-1]

    yield start
    for job in jobs:
        subprocess.run(["scancel", job.number], env=dict(slurm.env), check=False)
        job.wait()


def ended_well(job: Job) -> None:
    """The job's last line is the sweep's, and neither processes nor files of its Ray are left."""
    assert job.wait() == "COMPLETED", job.text
    lines = job.text.rstrip().splitlines()
    assert lines[-1].endswith("/report/index.html"), job.text
    foreign = ("srun:", "slurmstepd", "INFO scripts.py", "SIGTERM", "Killed", "rpc_client")
    assert not [line for line in lines if any(word in line for word in foreign)], job.text
    nothing_left(job)


def nothing_left(job: Job) -> None:
    folder = f"/tmp/ray-{job.number}"
    assert not list(job.log.parent.glob("*.head"))
    deadline = time.monotonic() + 20  # an agent of Ray may see the end of its node a second late
    while left := [path for path in Path("/proc").glob("[0-9]*/cmdline") if _names(path, folder)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    assert not os.path.exists(folder)


def _names(command_line: Path, folder: str) -> bool:
    try:
        return folder.encode() in command_line.read_bytes()
    except OSError:  # it has ended meanwhile
        return False


def until(over: Callable[[], object], job: Job) -> None:
    job.wait(lambda: bool(over()))
    assert over(), f"{job.state}: {job.text}"


def statuses(storage: Path) -> list[str]:
    return trials_of(storage / "window_stride" / "woods")["status"].tolist()


def test_a_job_runs_a_sweep_on_two_nodes_to_its_report(submit: Submit, tmp_path: Path):
    job = submit(checkout(tmp_path / "checkout"), tmp_path / "results", *SHORT, "--num-seeds", "1")
    ended_well(job)
    assert "2 nodes joined" in job.text and "on 2 slots" in job.text
    assert statuses(tmp_path / "results") == ["done"] * 2


def test_a_job_from_a_folder_with_odd_letters_gets_on_where_nothing_is_exported(
    submit: Submit, tmp_path: Path
):
    folder = checkout(tmp_path / "it's a sweep")
    words = (*SHORT, "--num-seeds", "1")
    ended_well(submit(folder, folder / "the results", *words, request=("--export=NONE",)))
    assert statuses(folder / "the results") == ["done"] * 2


def test_a_job_that_got_nowhere_before_its_time_limit_ends_and_names_one_that_would_do(
    submit: Submit, tmp_path: Path
):
    limit = ("--time=1", "--signal=B:USR1@30")  # Slurm sends it up to a minute earlier
    folder, words = checkout(tmp_path / "checkout"), (*LASTING, "--checkpoint-minutes", "0")
    job = submit(folder, tmp_path / "results", *words, request=limit)
    assert job.wait() == "FAILED" and job.exit_code == 130, job.text
    last = job.text.splitlines()[-1]
    assert "nothing was finished or checkpointed" in last and "--time=" in last
    assert job.facts()["Restarts"] == "0"
    nothing_left(job)


def test_two_jobs_do_not_share_a_sweep_and_the_time_limit_requeues_one_that_got_on(
    submit: Submit, slurm: Slurm, tmp_path: Path
):
    folder, results = checkout(tmp_path / "checkout"), tmp_path / "results"
    job = submit(folder, results, *LASTING, "--checkpoint-minutes", ".02")
    until(lambda: list(results.glob("checkpoints/*/*")), job)
    other = submit(folder, results, *LASTING, "--checkpoint-minutes", ".02")
    assert other.wait() == "FAILED" and other.exit_code == 2, other.text
    assert "one command at a time may drive a sweep" in " ".join(other.text.split()[-80:])
    nothing_of = Path(f"/tmp/ray-{other.number}")
    assert not nothing_of.exists()
    slurm.call("scancel", "--batch", "--signal=USR1", job.number)  # as at its limit
    until(lambda: job.facts()["Restarts"] == "1", job)
    assert f"job {job.number} {STOPPED}" in job.text
    nothing_left(job)


def test_a_node_that_is_lost_costs_time_and_no_trial(submit: Submit, slurm: Slurm, tmp_path: Path):
    results = tmp_path / "results"
    words = (*SHORT, "--num-seeds", "2", "training.max_steps=60", "training.num_epochs=60")
    job = submit(checkout(tmp_path / "checkout"), results, *words)
    until(lambda: list(results.glob("trials/*/result.json")), job)
    slurm.call("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    until(lambda: job.facts()["Restarts"] == "1", job)

    def runs_again() -> bool:
        # The node may be back by itself, which Slurm answers with an error; a requeued job would
        # wait for two minutes.
        for now in ("NodeName=n2 State=RESUME", f"JobId={job.number} StartTime=now"):
            words = ["scontrol", "update", *now.split()]
            subprocess.run(words, env=dict(slurm.env), check=False, capture_output=True)
        return job.state == "RUNNING"

    until(runs_again, job)
    assert job.wait() == "COMPLETED", job.text
    assert set(statuses(results)) == {"done"}
    nothing_left(job)


DRIVER = """
import os, time
import ray
ray.init(log_to_driver=False, logging_level="ERROR")
@ray.remote(num_cpus=1)
def node():
    time.sleep(1)
    return ray.get_runtime_context().get_node_id()
def until(wanted):
    while (alive := [n["NodeID"] for n in ray.nodes() if n["Alive"]]) and len(alive) != wanted:
        time.sleep(.2)
    print(wanted, "nodes now", flush=True)
    return alive
alive = until(3)
used = set()
while used != set(alive):
    used |= set(ray.get([node.remote() for _ in alive]))
print("all were used", flush=True)
until(2)
"""


def test_jobs_of_an_array_join_the_cluster_of_a_sweep_and_leave_it(slurm: Slurm, tmp_path: Path):
    folder = checkout(tmp_path / "it's a checkout")
    (folder / "driver.py").write_text(DRIVER)
    one = ("--gpus-per-node=0", "--cpus-per-task=1", "--mem=1G")
    head = slurm.submit("--nodes=1", *one, SCRIPT, "driver.py", cwd=folder)
    until(lambda: (folder / f"ranksweep-{head.number}.head").exists(), head)
    assert (folder / f"ranksweep-{head.number}.head").stat().st_mode & 0o777 == 0o600
    assert os.stat(f"/tmp/ray-{head.number}").st_mode & 0o777 == 0o700
    first = slurm.submit("--array=1-2", *one, WORKERS, head.number, cwd=folder, array=True)
    second = Job(first.number[:-1] + "2", first.log.with_name(first.log.name[:-5] + "2.log"), slurm)
    head.wait_for("all were used")
    slurm.call("scancel", "--batch", "--signal=USR1", first.number)  # as at its limit
    head.wait_for("2 nodes now")
    assert head.wait() == "COMPLETED", head.text
    for job, reason in ((first, "time is up"), (second, f"job {head.number} has ended")):
        assert job.wait() == "COMPLETED", job.text
        lines = job.text.splitlines()
        assert lines[-1].startswith(f"leaves job {head.number}: ") and reason in lines[-1]
        assert lines[0].startswith(f"joins job {head.number} at ") and len(lines) == 2
        assert not os.path.exists(f"/tmp/ray-{job.facts()['JobId']}")
    nothing_left(head)
    late = slurm.submit("--array=1-1", *one, WORKERS, head.number, cwd=folder, array=True)
    assert late.wait() == "COMPLETED" and "there is nothing to join" in late.text


REQUEUED = """
import os, time
from pathlib import Path
import ray
ray.init(log_to_driver=False, logging_level="ERROR")
try:
    while (count := sum(node["Alive"] for node in ray.nodes())) < 2:
        time.sleep(.2)
    print("the array has joined start", os.environ.get("SLURM_RESTART_COUNT", "0"), flush=True)
    while "SLURM_RESTART_COUNT" not in os.environ:
        time.sleep(.2)
except KeyboardInterrupt:
    Path(os.environ["RANKSWEEP_PROGRESS_FILE"]).touch()
    raise SystemExit(130)
"""


def test_an_array_outlives_a_requeue_of_the_sweeps_job(slurm: Slurm, tmp_path: Path):
    """Both the task that has joined and the one that waits for its place."""
    folder = checkout(tmp_path / "checkout")
    (folder / "driver.py").write_text(REQUEUED)
    one = ("--gpus-per-node=0", "--cpus-per-task=1", "--mem=1G")
    head = slurm.submit("--nodes=1", *one, SCRIPT, "driver.py", cwd=folder)
    words = ("--array=1-2%1", f"--dependency=after:{head.number}", WORKERS, head.number)
    first = slurm.submit(*one, *words, cwd=folder, array=True)
    second = Job(first.number[:-1] + "2", first.log.with_name(first.log.name[:-5] + "2.log"), slurm)
    head.wait_for("the array has joined start 0")
    slurm.call("scancel", "--batch", "--signal=USR1", head.number)  # as at its time limit
    until(lambda: head.facts()["Restarts"] == "1", head)
    until(lambda: first.facts()["Restarts"] == "1", first)
    assert f"job {head.number} is PENDING: this task goes back to the queue" in first.text

    def again() -> bool:
        # A requeued job waits for two minutes; one whose end is not over must not begin.
        time.sleep(2)
        for job in (one for one in (head, first, second) if one.state == "PENDING"):
            words = ["scontrol", "update", f"JobId={job.number}", "StartTime=now"]
            subprocess.run(words, env=dict(slurm.env), check=False, capture_output=True)
        return "the array has joined start 1" in head.text

    until(again, head)
    assert head.wait() == "COMPLETED", head.text
    for job in (first, second):
        job.wait(lambda job=job: again() and False)
        assert job.state == "COMPLETED" and job.exit_code == 0, (job.text, job.facts())
        assert "\nerror" not in job.text
        assert job.text.endswith(f"job {head.number} has ended\n"), job.text
    nothing_left(head)


def test_nodes_with_disks_of_their_own_write_through_ray_and_the_values_are_the_same(
    inputs: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """No folder of the sweep is shared: the second node has a copy of the checkout, a cache of its
    own, and at the path of the results nothing."""
    sweep = ("sweeps/window_stride.py", *inputs, *SHORT, "--num-seeds", "2")
    alone = (sys.executable, *sweep, "--engine", "local", "--storage", str(tmp_path / "alone"))
    subprocess.run(alone, cwd=ROOT, check=True, capture_output=True)
    disks = {name: tmp_path / name for name in ("n1", "n2")}
    for disk in disks.values():
        disk.mkdir()
        checkout(disk / "checkout")
    here, results = disks["n1"], disks["n1"] / "results"
    monkeypatch.setenv("RANKSWEEP_CACHE", str(here / "cache"))
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as folder,
        running(Path(folder), *disks, disks=disks) as slurm,
    ):
        words = (*NODES, SCRIPT, *sweep, "--storage", str(results))
        job = slurm.submit(*words, cwd=here / "checkout")
        ended_well(job)
    assert "n2 writes it through Ray" in job.text and "on 2 slots" in job.text
    assert not (disks["n2"] / "results").exists() and (disks["n2"] / "cache").exists()
    attempts = (json.loads(file.read_text()) for file in results.glob("trials/*/attempt-*.json"))
    assert "n2" in {attempt["host"] for attempt in attempts}
    values = [values_of(root / "window_stride" / "woods") for root in (results, tmp_path / "alone")]
    pd.testing.assert_frame_equal(*values, check_exact=True)
