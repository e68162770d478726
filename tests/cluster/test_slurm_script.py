"""The Slurm script, run with stand-ins for srun and scontrol: its two nodes are this machine."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweeps.store.driver import STALE_SECONDS
from tests.cluster.test_cluster_files import SLURM, executable


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
        "SLURM_JOB_ID": str(free_job()),
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


def port_of(job):
    """The first of a job's three ports."""
    return 20000 + 3 * (int(job) % 4200)


def free_job(above=0):
    """The number of a job whose ports are free."""
    for job in range(max(above + 1, os.getpid() % 4000), 4200):
        if not any(listens(port_of(job) + k) for k in range(3)):
            return job
    raise AssertionError("no free ports")


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


DRIVER = """
import sys, time
import ray
ray.init(log_to_driver=False, logging_level="ERROR")
print("driver sees", len(ray.nodes()), "nodes with", ray.cluster_resources()["CPU"], "CPUs")
print("driver got", sys.argv[1:], flush=True)
try:
    time.sleep(900)
except KeyboardInterrupt:
    print("driver was interrupted", flush=True)
    sys.exit(130)
"""


@pytest.mark.ray
@pytest.mark.long
def test_two_slurm_jobs_share_a_machine_with_a_strangers_ray_and_leave_nothing_behind(
    slurm, tmp_path
):
    (tmp_path / "driver.py").write_text(DRIVER)
    first = int(slurm["SLURM_JOB_ID"])
    with socket.socket() as stranger:
        with suppress(OSError):  # else a stranger has the port of Ray's clients already
            stranger.bind(("", 10001))
            stranger.listen()
        with job_of(slurm, first, tmp_path) as one, job_of(slurm, free_job(first), tmp_path) as two:
            for job in (one, two):
                job.wait_for("driver got")
                assert all(any(mark in line for line in command_lines()) for mark in job.marks)
            for job in (one, two):
                job.process.send_signal(signal.SIGUSR1)  # Slurm does, two minutes before the end
                assert job.process.wait(300) == 130, job.text
                left = [line for line in command_lines() if any(m in line for m in job.marks)]
                assert left == []
                if job is one:  # the other's Ray is untouched
                    assert two.process.poll() is None
                    assert any(two.marks[0] in line for line in command_lines())
    for job in (one, two):
        assert "2 nodes joined" in job.text and "driver sees 2 nodes with 2.0 CPUs" in job.text
        assert "driver got ['--num-workers', '2', 'two words']" in job.text
        assert "driver was interrupted" in job.text
        assert f"requeue {job.number}" in (tmp_path / "scontrol").read_text()


@dataclass
class Job:
    """The script, as Slurm runs it for a job."""

    number: int
    process: subprocess.Popen
    log: Path

    @property
    def text(self):
        return self.log.read_text()

    @property
    def marks(self):
        """What is in the command lines of its processes: its folder, and its head's port."""
        return f"/ray-{self.number}/", f":{port_of(self.number)}"

    def wait_for(self, words):
        deadline = time.monotonic() + 300
        while words not in self.text:
            assert self.process.poll() is None and time.monotonic() < deadline, self.text
            time.sleep(0.2)


@contextmanager
def job_of(slurm, number, folder):
    log = folder / f"log-{number}"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", str(SLURM), "driver.py", "--num-workers", "2", "two words"],
            env=slurm | {"SLURM_JOB_ID": str(number)},
            stdout=output,
            stderr=subprocess.STDOUT,
            # A shell's background jobs ignore interrupts, and hand that down to this one.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        yield Job(number, process, log)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(300)
        shutil.rmtree(f"/tmp/ray-{number}", ignore_errors=True)


def run_script(env):
    words = ["bash", str(SLURM), "driver.py"]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=500)


def test_a_slurm_job_refuses_nodes_with_other_versions(slurm, tmp_path):
    executable(tmp_path / "bin" / "srun", "#!/bin/bash\necho Python 3.11.7\necho Python 3.12.1\n")
    done = run_script(slurm)
    assert done.returncode == 2
    assert "all nodes must run the same versions" in done.stderr and "3.12.1" in done.stderr


def test_a_slurm_job_completes_an_environment_whose_installation_failed(slurm, tmp_path):
    log, place = tmp_path / "log", tmp_path / ".venv" / "bin"
    (place / "ranksweep").unlink()
    executable(tmp_path / "bin" / "python3", f'#!/bin/bash\necho "python3 $*" >> {log}\n')
    executable(place / "python", f'#!/bin/bash\necho "$*" >> {log}; exit 1\n')
    for _ in range(2):  # the second job installs again
        done = run_script(slurm)
        assert done.returncode == 2 and "on the login node" in done.stderr
    lines = log.read_text().splitlines()
    assert [line.split()[:3] for line in lines] == 2 * [
        ["python3", "-m", "venv"],
        ["-m", "pip", "install"],
    ]


def test_a_requeued_job_waits_until_the_lost_nodes_driver_counts_as_dead(slurm, tmp_path):
    executable(tmp_path / "bin" / "sleep", f'#!/bin/bash\necho "$1" > {tmp_path}/slept; exit 9\n')
    assert run_script(slurm | {"SLURM_RESTART_COUNT": "1"}).returncode == 9
    assert float((tmp_path / "slept").read_text()) > STALE_SECONDS


def command_lines():
    """Of all processes of this machine; a process that ends meanwhile has none."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
