"""A Slurm of this machine's own packages: a controller and node daemons, all on loopback.

Munge, controller and daemons run as the user of the tests, with ports, keys and folders of their
own, so that a Slurm which the machine may have is untouched. They end with the context.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel")
START_SECONDS, WAIT_SECONDS = 60.0, 900.0

# One machine is several nodes, each with ports of its own. Slurm tells its users' processes by
# their parents here: control groups would need the machine's own.
CONF = """
ClusterName=ranksweep
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,batch_sched_delay=0,sched_min_interval=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
PlugStackConfig={folder}/plugstack.conf
ReturnToService=2
JobRequeue=1
KillWait=10
OverTimeLimit=0
MinJobAge=3600
FirstJobId={job}
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} {size}\n"
SIZE = "CPUs=2 RealMemory=8000"  # of a node
PARTITION = "PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP\n"
LIVES = ("PENDING", "CONFIGURING", "RUNNING", "SIGNALING", "COMPLETING", "REQUEUED")


@cache
def missing() -> str:
    """Why there can be no Slurm here; empty where there can."""
    absent = [tool for tool in TOOLS if shutil.which(tool, path=SYSTEM_PATH) is None]
    if absent:
        return f"needs {', '.join(absent)} (Debian: slurm-wlm, munge)"
    return "" if os.geteuid() == 0 else "needs root: Slurm's daemons set the user of each job"


@dataclass
class Job:
    """A job that was submitted, or a task of an array (`12_3`)."""

    number: str
    log: Path
    slurm: "Slurm" = field(repr=False)

    @property
    def text(self) -> str:
        """All that the job has printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def state(self) -> str:
        """Slurm's word for its state, such as RUNNING or COMPLETED."""
        return self.facts().get("JobState", "GONE")

    def facts(self) -> dict[str, str]:
        """Slurm's record of the job."""
        shown = self.slurm.call("scontrol", "show", "job", "-o", self.number)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    @property
    def exit_code(self) -> int:
        """The exit code of the ended job."""
        return int(self.facts()["ExitCode"].partition(":")[0])

    def wait_for(self, words: str, seconds: float = WAIT_SECONDS) -> None:
        """Waits for words in its output; raises where it ends without them."""
        self.wait(lambda: words in self.text, seconds)
        assert words in self.text, f"{self.state}: {self.text}"

    def wait(self, over: Callable[[], bool] = lambda: False, seconds: float = WAIT_SECONDS) -> str:
        """Waits until the job has ended, or something else is over; returns its state."""
        deadline = time.monotonic() + seconds
        while not over():
            state = self.state
            if state not in LIVES:
                return state
            assert time.monotonic() < deadline, f"{state}: {self.text}"
            time.sleep(0.3)
        return self.state


@dataclass(frozen=True)
class Slurm:
    """A running Slurm and the environment of those who use it."""

    folder: Path
    env: Mapping[str, str]

    def call(self, *words: str, **options: Any) -> str:
        """The output of a command that must succeed."""
        done = subprocess.run(
            words, capture_output=True, text=True, env=self.env, timeout=60, **options
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def submit(self, *words: str, cwd: Path, array: bool = False) -> Job:
        """A job, submitted from a folder; its log has the script's own name there."""
        number = self.call("sbatch", "--parsable", *words, cwd=cwd).strip()
        task = "_1" if array else ""
        return Job(number + task, cwd / f"ranksweep-{number}{task}.log", self)


@contextmanager
def running(folder: Path, *names: str, disks: Mapping[str, Path] = {}) -> Iterator[Slurm]:
    """A Slurm with nodes of these names, in a folder with a short path. At the first of the paths
    of `disks` each later node has its own instead, and its name as that of its host."""
    host, user = socket.gethostname().partition(".")[0], "root"
    free = iter(_free_ports(1 + len(names)))
    conf = folder / "slurm.conf"
    # The scripts take ports and folders by the job's number.
    first = 1000 + os.getpid() % 3000
    text = CONF.format(host=host, user=user, folder=folder, controller=next(free), job=first)
    for name in names:
        text += NODE.format(name=name, host=host, port=next(free), size=SIZE)
    conf.write_text(text + PARTITION.format(names=",".join(names)))
    (folder / "plugstack.conf").touch()
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    kept = ("HOME", "USER", "LOGNAME", "TMPDIR", "RANKSWEEP_CACHE", "OMP_NUM_THREADS")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {"PATH": SYSTEM_PATH, "SLURM_CONF": str(conf), "LANG": "C.UTF-8"}
    slurm = Slurm(folder, env)
    with ExitStack() as stack:
        start = lambda *words: stack.enter_context(_daemon(folder, env, *words))  # noqa: E731
        # A folder below /tmp is not as private as munge would have it: its key is for this test.
        names_of = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munged.pid",
                    "log-file": "munged.log", "seed-file": "munged.seed"}  # fmt: skip
        files = [f"--{option}={folder / name}" for option, name in names_of.items()]
        start("munged", "--foreground", "--force", *files)
        _wait(lambda: (folder / "munge.socket").exists(), folder)
        start("slurmctld", "-D", "-c")
        for name in names:
            start(*_apart(name, disks), "slurmd", "-D", "-N", name)
        _wait(lambda: _idle(slurm) == set(names), folder)
        try:
            yield slurm
        finally:
            subprocess.run(["scancel", "--full", "--user", user], env=env, timeout=60)
            _wait(lambda: not slurm.call("squeue", "--noheader"), folder)


def _apart(name: str, disks: Mapping[str, Path]) -> tuple[str, ...]:
    """The words before those of a node's daemon that give it a disk of its own."""
    if not disks or disks[name] == (seen := next(iter(disks.values()))):
        return ()
    own = f'hostname {name} && mount --bind {disks[name]} {seen} && exec "$@"'
    return ("unshare", "--mount", "--uts", "sh", "-c", own, "sh")


def _idle(slurm: Slurm) -> set[str]:
    done = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"],
        capture_output=True, text=True, env=slurm.env,
    )  # fmt: skip
    return set(done.stdout.split())


def _wait(over: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not over():
        if time.monotonic() > deadline:
            logs = {path.name: path.read_text()[-2000:] for path in folder.glob("*.log")}
            raise RuntimeError(f"Slurm did not start or end: {logs}")
        time.sleep(0.1)


@contextmanager
def _daemon(folder: Path, env: Mapping[str, str], *words: str) -> Iterator[None]:
    with (folder / f"{'-'.join(words[::2])}.out".replace("/", "-")[:80]).open("w") as out:
        process = subprocess.Popen(words, env=env, stdout=out, stderr=out, cwd=folder)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    """Ports below those that Linux gives to connections."""
    found: list[int] = []
    for port in range(17000 + os.getpid() % 900 * 3, 20000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("no free ports")
