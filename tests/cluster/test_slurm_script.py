"""The Slurm script, run with stand-ins for srun and scontrol: its two nodes are this machine."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweeps.store.driver import STALE_SECONDS

SLURM = Path(__file__).parents[2] / "cluster" / "slurm.sh"


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_bash_can_read_the_slurm_script_and_slurm_its_requests():
    subprocess.run(["bash", "-n", str(SLURM)], check=True)
    lines = SLURM.read_text().splitlines()
    requests = [number for number, line in enumerate(lines) if line.startswith("#SBATCH --")]
    commands = [n for n, line in enumerate(lines) if line and not line.startswith("#")]
    assert len(requests) > 5 and max(requests) < min(commands)  # Slurm stops at the first command
    assert "ray stop" not in "\n".join(line.partition("#")[0] for line in lines)


@pytest.fixture
def slurm(tmp_path):
    """Environment of a batch job on two nodes that are both this machine."""
    env = os.environ | {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "SLURM_JOB_ID": str(free_port() - 20000),
        "SLURM_JOB_NODELIST": "node[0-1]",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_GPUS_ON_NODE": "0",
    }
    scontrol = (
        f'echo "$@" >> {tmp_path}/scontrol; if test "$1" = show; then echo node0; echo node1; fi'
    )
    executable(tmp_path / "bin" / "scontrol", f"#!/bin/bash\n{scontrol}\n")
    drop = 'while [[ "$1" == --* ]]; do shift; done; exec "$@"'
    executable(tmp_path / "bin" / "srun", f"#!/bin/bash\n{drop}\n")
    executable(tmp_path / ".venv" / "bin" / "python", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    executable(tmp_path / ".venv" / "bin" / "ranksweep", "")
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "constraints.txt").touch()
    return env


def free_port():
    """A port of the script's range that is free, with its dashboard's."""
    for port in range(20000 + os.getpid() % 10000, 40000):
        with socket.socket() as one, socket.socket() as other:
            if one.connect_ex(("127.0.0.1", port)) and other.connect_ex(
                ("127.0.0.1", port + 20000)
            ):
                return port
    raise AssertionError("no free port")


DRIVER = """
import sys, time
import ray
ray.init(log_to_driver=False, logging_level="ERROR")
print("driver sees", len(ray.nodes()), "nodes with", ray.cluster_resources()["CPU"], "CPUs")
print("driver got", sys.argv[1:], flush=True)
try:
    time.sleep(120)
except KeyboardInterrupt:
    print("driver was interrupted", flush=True)
    sys.exit(130)
"""


@pytest.mark.ray
@pytest.mark.long
def test_a_slurm_job_starts_ray_on_all_nodes_and_leaves_nothing_behind(slurm, tmp_path):
    (tmp_path / "driver.py").write_text(DRIVER)
    number, log = slurm["SLURM_JOB_ID"], tmp_path / "log"
    marks = (f"/ray-{number}/", f":{20000 + int(number)}")  # its folder, and its head's port
    words = ["bash", str(SLURM), "driver.py", "--num-workers", "2", "two words"]
    with log.open("w") as output:
        job = subprocess.Popen(
            words,
            env=slurm,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A shell's background jobs ignore interrupts, and hand that down to this one.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        deadline = time.monotonic() + 300
        while "driver got" not in log.read_text():
            assert job.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        running = list(command_lines())
        assert all(any(mark in line for line in running) for mark in marks)
        job.send_signal(signal.SIGUSR1)  # Slurm does, two minutes before the end
        assert job.wait(300) == 130, log.read_text()
    finally:
        if job.poll() is None:
            job.terminate()
            job.wait(300)
        shutil.rmtree(f"/tmp/ray-{number}", ignore_errors=True)
    text = log.read_text()
    assert "2 nodes joined" in text and "driver sees 2 nodes with 2.0 CPUs" in text
    assert "driver got ['--num-workers', '2', 'two words']" in text
    assert "driver was interrupted" in text
    assert f"requeue {number}" in (tmp_path / "scontrol").read_text()
    left = [line for line in command_lines() if any(mark in line for mark in marks)]
    assert left == []


def test_a_slurm_job_refuses_nodes_with_other_versions(slurm, tmp_path):
    executable(tmp_path / "bin" / "srun", "#!/bin/bash\necho Python 3.11.7\necho Python 3.12.1\n")
    words = ["bash", str(SLURM), "driver.py"]
    done = subprocess.run(words, env=slurm, capture_output=True, text=True, timeout=500)
    assert done.returncode == 2
    assert "all nodes must run the same versions" in done.stderr and "3.12.1" in done.stderr


def test_a_slurm_job_completes_an_environment_whose_installation_failed(slurm, tmp_path):
    log, place = tmp_path / "log", tmp_path / ".venv" / "bin"
    (place / "ranksweep").unlink()
    executable(tmp_path / "bin" / "python3", f'#!/bin/bash\necho "python3 $*" >> {log}\n')
    executable(place / "python", f'#!/bin/bash\necho "$*" >> {log}; exit 1\n')
    words = ["bash", str(SLURM), "driver.py"]
    for _ in range(2):  # the second job installs again
        done = subprocess.run(words, env=slurm, capture_output=True, text=True)
        assert done.returncode == 2 and "on the login node" in done.stderr
    lines = log.read_text().splitlines()
    assert [line.split()[:3] for line in lines] == 2 * [
        ["python3", "-m", "venv"],
        ["-m", "pip", "install"],
    ]


def test_a_requeued_job_waits_until_the_lost_nodes_driver_counts_as_dead(slurm, tmp_path):
    executable(tmp_path / "bin" / "sleep", f'#!/bin/bash\necho "$1" > {tmp_path}/slept; exit 9\n')
    words = ["bash", str(SLURM), "driver.py"]
    assert subprocess.run(words, env=slurm | {"SLURM_RESTART_COUNT": "1"}).returncode == 9
    assert float((tmp_path / "slept").read_text()) > STALE_SECONDS


def command_lines():
    """Of all processes of this machine; a process that ends meanwhile has none."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
