"""What the Slurm script does before it starts Ray, with stand-ins for other programs; the rest is
tested under Slurm (test_slurm.py)."""

import os
import subprocess
import sys
import time

import pytest

from sweeps.store.lock import STALE_SECONDS
from tests.cluster.test_cluster_files import NODE, SLURM, WORKERS, executable


@pytest.mark.parametrize("path", [SLURM, WORKERS], ids=lambda path: path.name)
def test_bash_can_read_the_slurm_scripts_and_slurm_their_requests(path):
    for one in (path, NODE):
        subprocess.run(["bash", "-n", str(one)], check=True)
    lines = path.read_text().splitlines()
    requests = [number for number, line in enumerate(lines) if line.startswith("#SBATCH --")]
    commands = [n for n, line in enumerate(lines) if line and not line.startswith("#")]
    assert len(requests) > 5 and max(requests) < min(commands)  # Slurm stops at the first command
    assert "ray stop" not in "\n".join(line.partition("#")[0] for line in lines)


@pytest.fixture
def slurm(tmp_path):
    """Environment of a batch job."""
    env = os.environ | {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "SLURM_JOB_ID": "1",
        "SLURM_SUBMIT_DIR": str(tmp_path),
    }
    executable(tmp_path / ".venv" / "bin" / "python", f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    executable(tmp_path / ".venv" / "bin" / "ranksweep", "")
    (tmp_path / "cluster").symlink_to(NODE.parent)
    return env


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


AWAY = "slurm_load_jobs error: Unable to contact slurm controller"
UNKNOWN = "slurm_load_jobs error: Invalid job id specified"


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        (["PENDING"], 0, "job 7 is PENDING: this task goes back to the queue"),
        ([AWAY, "COMPLETING", "PENDING"], 0, "job 7 is PENDING: this task goes back to the queue"),
        ([UNKNOWN], 0, "there is nothing to join: job 7 has ended"),
        (["RUNNING", "COMPLETING", ""], 0, "there is nothing to join: job 7 has ended"),
    ],
)
def test_a_node_waits_for_no_cluster_with_its_job_and_is_not_lost_to_the_sweep(
    slurm, tmp_path, answers, code, said
):
    log, left = tmp_path / "log", tmp_path / "answers"
    left.write_text("\n".join(answers) + "\n")
    executable(
        tmp_path / "bin" / "squeue",
        f"""#!/bin/bash
answer=$(head -n 1 {left}); sed -i 1d {left}
case $answer in *error*) echo "$answer" >&2; exit 1 ;; "") ;; *) echo "$answer" ;; esac
""",
    )
    executable(tmp_path / "bin" / "scontrol", f'#!/bin/bash\necho "$*" >> {log}\n')
    executable(tmp_path / "bin" / "sleep", "#!/bin/bash\n")
    done = subprocess.run(
        ["bash", str(WORKERS), "7"], env=slurm, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (code, f"{said}\n"), done.stderr
    assert log.exists() == ("back" in said)
    if "back" in said:
        assert log.read_text() == "requeue 1\n"


@pytest.mark.parametrize(
    ("words", "shares"),
    [
        ("--gpus-per-worker .5", True),
        ("--gpus-per-worker=0.25 --num-seeds 5", True),
        ("--gpus-per-worker 5e-1", True),
        ("--gpus-per-worker 1", False),
        ("--gpus-per-worker 1.0", False),
        ("--gpus-per-worker 0", False),
        ("--gpus-per-worker 0.0", False),
        ("training.margin=.5", False),
    ],
)
def test_only_parts_of_a_gpu_are_shared(words, shares):
    script = ["bash", str(NODE), "shares_gpus", "sweeps/seeds.py", *words.split()]
    assert subprocess.run(script).returncode == (0 if shares else 1)


@pytest.mark.parametrize(("mps", "starts"), [("yes", True), ("yes", False), ("no", True)])
def test_a_node_has_cuda_mps_from_before_ray_until_after_it(slurm, tmp_path, mps, starts):
    log, job = tmp_path / "log", f"mps-{os.getpid()}-{tmp_path.name}"
    executable(
        tmp_path / "bin" / "nvidia-cuda-mps-control",
        f"""#!/bin/bash
test -n "$1" || read -r word
echo "mps $1$word in $CUDA_MPS_PIPE_DIRECTORY, GPUs ${{CUDA_VISIBLE_DEVICES:-of the job}}" >> {log}
{"" if starts else "exit 1"}
""",
    )
    executable(
        tmp_path / ".venv" / "bin" / "python",
        f"""#!/bin/bash
trap 'echo "ray ends" >> {log}; exit 0' TERM
echo "ray in ${{CUDA_MPS_PIPE_DIRECTORY:-no MPS}}" >> {log}
touch {tmp_path}/ready
while :; do sleep 0.05; done
""",
    )
    env = slurm | {"SLURM_JOB_ID": job, "RANKSWEEP_MPS": mps, "CUDA_VISIBLE_DEVICES": "2,3"}
    words = ["bash", str(NODE), "run_ray", "--head"]
    with subprocess.Popen(
        words, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as node:
        deadline = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        errors = node.communicate("done\n", timeout=60)[1]
    assert node.returncode == 0
    place = f"/tmp/ray-{job}/mps-node"
    begin, end = (f"mps {word} in {place}, GPUs of the job" for word in ("-d", "quit -t 5"))
    end = end.replace("of the job", "2,3")  # which decide nothing any more
    if mps == "no":
        assert log.read_text().splitlines() == ["ray in no MPS", "ray ends"]
    elif starts:
        assert log.read_text().splitlines() == [begin, f"ray in {place}", "ray ends", end]
    else:
        assert log.read_text().splitlines() == [begin, "ray in no MPS", "ray ends"]
    assert ("compute in turns" in errors) == (mps == "yes" and not starts)
    assert not os.path.exists(f"/tmp/ray-{job}")
