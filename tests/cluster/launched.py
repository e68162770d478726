"""A cluster that Ray's launcher starts on machines of loopback, from a file of cluster/ as shipped
but for what it asks a reader to edit."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import distribution, distributions
from pathlib import Path

from tests.cluster.machines import HOME, ROOT, Machine, machines

# pip takes the value of this flag for the value of `build-isolation`.
OFFLINE = "[global]\nno-index = true\nno-build-isolation = false\n"
WORKING = ("raylet/raylet", "ray::")  # what runs trials
NO_TRIAL = ("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent", "ray::Disk", "ray::_join")


@dataclass(frozen=True)
class Cluster:
    """A laptop from which commands are given, and the nodes of its cluster."""

    laptop: Machine
    head: Machine
    workers: Sequence[Machine]
    config: str  # its file, as commands name it

    def run(self, *words: str, timeout: float = 300) -> str:
        """A command on the laptop that must succeed; returns its output."""
        done = subprocess.run(
            self.laptop.command(*words), capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def on_head(self, command: str) -> str:
        """A command on the head, by the launcher."""
        return self.run("ray", "exec", self.config, command)

    def nodes(self) -> list[dict]:
        """The living nodes as the cluster's own records have them."""
        output = self.on_head("ray list nodes --filter state=ALIVE --detail --format json")
        return json.loads(output[output.index("[") : output.rindex("]") + 1])


@contextmanager
def launched(
    folder: Path, shared: Path, config: str, text: str, workers: Sequence[str] = ("worker",)
) -> Iterator[Cluster]:
    """The cluster of `config`, a path from the root of the checkout whose content on the laptop is
    `text`, with the addresses of `{head}` and `{workers}`. The first worker joins with the head."""
    with machines(folder, shared, "laptop", "head", *workers) as (laptop, head, *others):
        for node in (head, *others):
            _install_packages(node.disk / "ranksweep" / ".venv")
            (node.disk / ".config" / "pip").mkdir(parents=True)
            (node.disk / ".config" / "pip" / "pip.conf").write_text(OFFLINE)
        text = text.replace("{head}", head.address).replace("{worker}", others[0].address)
        (laptop.disk / "cluster.yaml").write_text(text)
        laptop.mount(f"{HOME}/cluster.yaml", f"{ROOT}/{config}")
        installed = (f"{package.name}=={package.version}\n" for package in distributions())
        (laptop.disk / "constraints.txt").write_text("".join(installed))
        cluster = Cluster(laptop, head, others, config)
        cluster.run("ray", "get-auth-token", "--generate")
        cluster.run("ray", "up", "-y", "--no-config-cache", config)
        deadline = time.monotonic() + 300
        while len(cluster.nodes()) < 2:
            tail = head.command("sh", "-c", "tail -n 50 /tmp/ray/session_latest/logs/monitor.*")
            assert time.monotonic() < deadline, subprocess.run(tail, capture_output=True).stdout
        yield cluster


def _install_packages(venv: Path) -> None:
    """A virtual environment with the packages of this one, except the project itself."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    [site] = venv.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{distribution('ray').locate_file('')}\n")
    _, code = (Path(sys.executable).parent / "ray").read_text().split("\n", 1)
    ray = venv / "bin" / "ray"
    ray.write_text(f"#!{HOME}/ranksweep/.venv/bin/python\n{code}")
    ray.chmod(0o755)


def join(cluster: Cluster, machine: Machine, *words: str, versions: Mapping[str, str] = {}) -> None:
    """Starts Ray by hand on a machine that the file does not name, with the code of the others but
    other `versions` of packages, as its metadata have them."""
    for folder in ("ranksweep", ".ray"):
        copy = ["rsync", "-a", f"{cluster.workers[0].disk / folder}/", machine.disk / folder]
        subprocess.run(copy, check=True)
    [site] = machine.disk.glob("ranksweep/.venv/lib/python*/site-packages")
    for name, version in versions.items():
        about = site / f"{name.replace('-', '_')}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
    start_ray(cluster, machine, *words)


def start_ray(cluster: Cluster, machine: Machine, *words: str) -> None:
    """Starts Ray on a machine as the file's own commands do, again where it gives up: it waits for
    half a minute, which other work on this machine may take."""
    start = f"ray start --address={cluster.head.address}:6379 --object-store-memory=200000000"
    command = f". ~/ranksweep/env.sh; ray stop --force; {' '.join([start, *words])}"
    for _ in range(5):
        shell = machine.command("bash", "-c", command)
        done = subprocess.run(shell, capture_output=True, text=True)
        if done.returncode == 0:
            return
    raise AssertionError(done.stdout + done.stderr)


def processes(machine: Machine, *names: str) -> list[str]:
    """The command lines on a machine that have one of the names."""
    commands = machine.processes().values()
    return [command for command in commands if any(name in command for name in names)]


def trials_on(machine: Machine) -> list[int]:
    """The processes of trials on a machine, by the titles that Ray gives."""
    titles = machine.processes().items()
    own = ((pid, title) for pid, title in titles if title.startswith("ray::"))
    return [pid for pid, title in own if not title.startswith(NO_TRIAL)]
