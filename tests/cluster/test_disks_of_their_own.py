"""cluster/config.yaml on machines of loopback, each with a disk and a cache of its own: the command
as README has it, nodes that join late and leave, kills, and a link that is cut. The values are
those of one machine, bit for bit."""

import json
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.cluster.launched import Cluster, join, launched, trials_on
from tests.cluster.machines import HOME, ROOT, Machine, link, link_bytes, missing
from tests.e2e.conftest import trials_of, values_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

CONFIG = "cluster/config.yaml"
LITERAL = ("ray", "submit", CONFIG, "sweeps/window_stride.py")
WORDS = (
    *"--smoke-test --num-seeds 4 --checkpoint-minutes 0.02".split(),
    *"chunking.window=48 chunking.stride=32 training.max_steps=60 training.num_epochs=60".split(),
)
TRIALS = 8
SWEEP = "window_stride/python-docs"


def on_loopback() -> str:
    """The file with what only AWS has replaced: machines, their types, their drivers of GPUs."""
    text = (ROOT / CONFIG).read_text()
    # Beside other work on this machine Ray's own niceness would starve the trials.
    text = text.replace(
        "RAY_USAGE_STATS_ENABLED=0", "RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0"
    )
    # As the node types have it: the head runs no trial.
    text = text.replace(
        "ray start --head", "RAY_enable_autoscaler_v2=0 ray start --head --num-cpus=0"
    )
    text = text.replace("ray start --address", "ray start --num-cpus=1 --address")
    config = yaml.safe_load(text)
    for name in ("head_node_type", "available_node_types", "max_workers", "upscaling_speed"):
        del config[name]
    config |= {
        "provider": {"type": "local", "head_ip": "{head}", "worker_ips": ["{worker}"]},
        "auth": {"ssh_user": "root", "ssh_private_key": "~/.ssh/ranksweep"},
        "worker_setup_commands": [],
    }
    config["file_mounts"]["~/ranksweep/constraints.txt"] = f"{HOME}/constraints.txt"
    return yaml.safe_dump(config)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder, shared = tmp_path_factory.mktemp("machines"), tmp_path_factory.mktemp("nothing")
    (ROOT / "results").mkdir(exist_ok=True)
    with launched(folder, shared, CONFIG, on_loopback(), ("worker", "late", "stale")) as cluster:
        for machine in (cluster.head, *cluster.workers):
            (machine.disk / ".cache").unlink()  # which machines of other tests share
        (cluster.laptop.disk / "results").mkdir()
        cluster.laptop.mount(f"{HOME}/results", f"{ROOT}/results")
        yield cluster


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The values of the sweep on one machine."""
    storage = tmp_path_factory.mktemp("undisturbed")
    command = [sys.executable, str(ROOT / "sweeps/window_stride.py"), *WORDS, "--engine", "local"]
    subprocess.run([*command, "--storage", str(storage)], check=True, capture_output=True)
    return values_of(storage / SWEEP)


@contextmanager
def submitted(
    cluster: Cluster, log: Path, *words: str, tmux: bool = False
) -> Iterator[subprocess.Popen]:
    """The command as typed, on a terminal of the laptop that closes with the block."""
    submit, script = LITERAL[:-1], LITERAL[-1]
    with log.open("w") as output:
        process = subprocess.Popen(
            cluster.laptop.command(*submit, *["--tmux"] * tmux, script, "--", *words),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(log: Path, process: subprocess.Popen, seen, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def kill(machine: Machine, pids: Sequence[int]) -> None:
    assert pids, machine.processes()
    subprocess.run(machine.command("kill", "-KILL", *map(str, pids)), check=True)


@contextmanager
def held(*machines: Machine) -> Iterator[None]:
    """The trials on these machines, also those that begin, stand still in the block."""
    over = threading.Event()

    def hold() -> None:
        while not over.wait(1.0):
            send("STOP", *machines)

    holding = threading.Thread(target=hold)
    holding.start()
    try:
        yield
    finally:
        over.set()
        holding.join()
        send("CONT", *machines)


def send(signal: str, *machines: Machine) -> None:
    """Sends a signal to the trials on these machines, if there are any."""
    for machine in machines:
        words = machine.command("kill", f"-{signal}", *map(str, trials_on(machine)))
        subprocess.run(words, capture_output=True)


def named(machine: Machine, title: str) -> list[int]:
    """The processes of a machine whose command line has this."""
    return [pid for pid, line in machine.processes().items() if title in line]


def assert_equal_values(storage: Path, undisturbed: pd.DataFrame) -> None:
    trials = trials_of(storage / SWEEP)
    assert set(trials["status"]) == {"done"}
    pd.testing.assert_frame_equal(values_of(storage / SWEEP), undisturbed, check_exact=True)


def hosts(storage: Path) -> set[str]:
    """Those of all attempts whose end a driver has seen."""
    files = storage.glob("trials/*/attempt-*.json")
    return {json.loads(file.read_text())["host"] for file in files} - {""}


def test_the_command_as_typed_and_the_results_come_home(
    cluster: Cluster, undisturbed: pd.DataFrame, tmp_path: Path
):
    worker = cluster.workers[0]
    before = link_bytes(cluster.laptop, worker)
    output = cluster.run(*LITERAL, "--", *WORDS, timeout=1500)
    per_trial = (link_bytes(cluster.laptop, worker) - before) / TRIALS
    print(f"{output}\n{per_trial / 1e6:.2f} MB over the worker's link per trial")
    storage = cluster.head.disk / "results"
    assert_equal_values(storage, undisturbed)
    assert not (worker.disk / "results").exists()
    assert hosts(storage) == {"worker"}
    assert not list(storage.rglob(".unfinished*"))
    home, look = printed(output, "results"), printed(output, "MLflow")
    cluster.run(*home)
    report = cluster.laptop.disk / "results" / SWEEP / "report/index.html"
    assert report.read_bytes() == (storage / SWEEP / "report/index.html").read_bytes()
    with subprocess.Popen(cluster.laptop.command(*look), stdout=subprocess.PIPE, text=True) as ui:
        try:
            address = next(found for line in ui.stdout if (found := re.search(r"http://\S+", line)))
            page = cluster.run("curl", "--silent", "--fail", address[0].partition("#")[0])
            assert "MLflow" in page
        finally:
            ui.terminate()


def printed(output: str, name: str) -> list[str]:
    """The words of the command that a sweep prints last under this name."""
    return shlex.split(re.findall(rf"^  {name} +(ray .*)$", output.replace("\r", ""), re.M)[-1])


def test_kills_a_late_node_and_a_cut_link_change_no_value(
    cluster: Cluster, undisturbed: pd.DataFrame, tmp_path: Path
):
    """The driver goes on without its terminal; then its writer, a trial, the link and the driver
    itself are lost, and the same command resumes."""
    worker, late, _ = cluster.workers
    log, storage = tmp_path / "log", cluster.head.disk / "killed"
    words = (*WORDS, "--storage", "killed")

    def ended() -> int:
        return len(list(storage.glob("trials/*/result.json")))

    with submitted(cluster, log, *words, tmux=True) as process:
        assert process.wait(300) == 0, log.read_text()
    eventually(lambda: trials_on(worker))
    kill(cluster.head, named(cluster.head, "ray::Disk"))
    eventually(lambda: (storage / "checkpoints").exists() and any(storage.glob("checkpoints/*/*")))
    kill(worker, trials_on(worker))
    join(cluster, late, "--num-cpus=1")
    eventually(lambda: trials_on(late))
    link(cluster.laptop, worker, up=False)
    time.sleep(30)
    link(cluster.laptop, worker, up=True)
    eventually(lambda: ended() >= 1)
    kill(cluster.head, named(cluster.head, "window_stride.py"))
    assert ended() < TRIALS
    output = cluster.run(*LITERAL, "--", *words, timeout=1500)
    assert "done" in output
    assert_equal_values(storage, undisturbed)
    assert hosts(storage) == {"worker", "late"}
    assert not list(storage.rglob(".unfinished*")) and not list(storage.glob("checkpoints/*"))


def test_a_node_with_another_version_joins_and_gets_no_trial(
    cluster: Cluster, undisturbed: pd.DataFrame, tmp_path: Path
):
    worker, late, stale = cluster.workers
    log, storage = tmp_path / "log", cluster.head.disk / "stale"
    with submitted(cluster, log, *WORDS, "--storage", "stale") as process:
        wait_for(log, process, lambda: " slot" in log.read_text())
        with held(worker, late):
            join(cluster, stale, "--num-cpus=1", versions={"ir-measures": "9.9"})
            wait_for(log, process, lambda: "stale gets no trial" in log.read_text())
        assert process.wait(1500) == 0, log.read_text()
    said = " ".join(log.read_text().split())
    assert "stale gets no trial: it has ir-measures 9.9; the driver has python" in said
    assert_equal_values(storage, undisturbed)
    assert "stale" not in hosts(storage)


def test_a_node_behind_a_link_that_stays_cut_is_lost_and_no_value(
    cluster: Cluster, undisturbed: pd.DataFrame, tmp_path: Path
):
    """Ray gives a node up after a minute; what is longer differs in nothing."""
    worker = cluster.workers[0]
    log, storage = tmp_path / "log", cluster.head.disk / "cut"
    with submitted(cluster, log, *WORDS, "--storage", "cut") as process:
        wait_for(log, process, lambda: trials_on(worker) and any(storage.glob("checkpoints/*/*")))
        link(cluster.laptop, worker, up=False)
        try:
            wait_for(log, process, lambda: "nodes have left" in log.read_text())
        finally:
            link(cluster.laptop, worker, up=True)
        assert process.wait(1500) == 0, log.read_text()
    assert_equal_values(storage, undisturbed)


def eventually(seen, seconds: float = 900) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def on(machine: Machine, command: str) -> str:
    """The output of a shell on a machine, at root's home, with the environment of its Ray."""
    words = machine.command("bash", "-c", f". ~/ranksweep/env.sh; cd; {command}")
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def waits_for_the_storage(*machines: Machine) -> int:
    """How often processes of trials there have written to their logs that they wait for it."""
    folders = [Path(f"/proc/{machine.pid}/root/tmp/ray") for machine in machines]
    logs = (log for folder in folders for log in folder.glob("session_2*/logs/worker-*.err"))
    return sum(log.read_text(errors="replace").count("trying again") for log in logs)


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("goes", "returns", "reason"),
    [
        pytest.param(
            "! cat /dev/zero > disturbed/filler 2> /dev/null",
            "rm disturbed/filler",
            "No space left on device",
            id="full",
        ),
        pytest.param(
            "mkdir -p elsewhere; mount --move disturbed elsewhere",
            "mount --move elsewhere disturbed",
            "this folder is missing or not mounted",
            id="away",
        ),
    ],
)
def test_a_storage_that_is_full_or_away_at_the_head_is_waited_for(
    cluster: Cluster, undisturbed: pd.DataFrame, tmp_path: Path, goes, returns, reason
):
    """It is a mount of the head, which no other machine sees; a trial ends meanwhile."""
    head, nodes, log = cluster.head, cluster.workers[:2], tmp_path / "log"
    on(head, "mkdir -p disturbed; mount -t tmpfs -o size=200m tmpfs disturbed")
    storage = Path(f"/proc/{head.pid}/root{HOME}/disturbed")
    before = waits_for_the_storage(*nodes)

    def one_stands_still() -> bool:
        send("STOP", *nodes)
        if not any(storage.glob("trials/*/progress.json")):
            send("CONT", *nodes)
            return False
        return True

    with submitted(cluster, log, *WORDS, "--storage", "disturbed") as process:
        wait_for(log, process, one_stands_still)
        on(head, goes)
        send("CONT", *nodes)
        wait_for(log, process, lambda: waits_for_the_storage(*nodes) > before)
        wait_for(log, process, lambda: "trying again" in log.read_text())
        on(head, returns)
        assert process.wait(1500) == 0, log.read_text()
    printed = " ".join(log.read_text().split())
    assert reason in printed and "disturbed is back" in printed
    assert_equal_values(storage, undisturbed)
    assert trials_of(storage / SWEEP)["attempts"].tolist() == [1] * TRIALS
    assert not list(storage.rglob(".unfinished*"))
    on(head, "umount disturbed")
    assert not list((head.disk / "disturbed").iterdir())  # below the mount


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file", "a file is there, not a folder"),
        ("file/below", "a file is there, not a folder"),
        ("locked/results", "Read-only file system"),
    ],
)
def test_a_storage_that_is_no_folder_of_the_head_is_refused_before_anything_starts(
    cluster: Cluster, name, reason
):
    on(cluster.head, "touch file; mkdir -p locked; mountpoint -q locked || "
       "mount -t tmpfs -o ro tmpfs locked")  # fmt: skip
    before = on(cluster.head, "find . -not -path '*/__pycache__*' | sort")
    script = '. ~/ranksweep/env.sh; cd; python ranksweep/sweeps/window_stride.py "$@"'
    words = cluster.head.command("bash", "-c", script, "bash", *WORDS, "--storage", name)
    done = subprocess.run(words, capture_output=True, text=True)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2 and text.startswith("error: --storage") and reason in text
    assert on(cluster.head, "find . -not -path '*/__pycache__*' | sort") == before


KINDS = {"A100": "NVIDIA A100-SXM4-80GB", "T4": "Tesla T4"}


def declare(cluster: Cluster, machine: Machine, name: str) -> None:
    """Starts Ray again on a machine, now as one of a kind of GPU that it does not have: by Ray's
    resource, and by the name of the device in the records of trials."""
    [site] = machine.disk.glob("ranksweep/.venv/lib/python*/site-packages")
    (site / "declared.pth").write_text(
        f"import platform; platform.machine = lambda: {KINDS[name]!r}\n"
    )
    resources = f"--resources='{{\"accelerator_type:{name}\": 1}}'"
    join(cluster, machine, "--num-cpus=1", resources)


def test_a_sweep_is_held_to_a_kind_and_a_comparison_of_two_kinds_says_so(
    cluster: Cluster, tmp_path: Path
):
    """The baseline runs on one kind; then, in the same folder, another window on the other."""
    worker, late, _ = cluster.workers
    for machine, name in ((late, "T4"), (worker, "A100")):  # a copy of the last one's code
        declare(cluster, machine, name)
    names = {f"accelerator_type:{name}" for name in KINDS}
    nodes = lambda: [set(node["resources_total"]) for node in cluster.nodes()]  # noqa: E731
    eventually(lambda: names <= set().union(*nodes()))
    storage = cluster.head.disk / "kinds"
    words = "--smoke-test --num-seeds 2 --storage kinds chunking.stride=32".split()

    def run(kind: str, *more: str) -> str:
        return cluster.run(*LITERAL, "--", *words, "--accelerator", kind, *more, timeout=900)

    first = run("A100", "chunking.window=48")
    assert hosts(storage) == {"worker"} and "Unlike machines" not in first
    second = run("T4", "chunking.window=64")
    assert hosts(storage) == {"worker", "late"}
    text = " ".join(second.split())
    assert "Unlike machines: in 1 comparison the two sides ran on different devices" in text
    assert f"on {KINDS['T4']}, " in text and f"on {KINDS['A100']}." in text
    with pytest.raises(AssertionError, match="error: unknown --accelerator of the cluster 'A10G'"):
        run("A10G")
