"""CUDA MPS: a daemon through which the kernels of several processes run on a GPU at once."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
SECONDS = 30.0  # for an answer of the daemon
IN_CONTAINERS = "/usr/local/nvidia/bin"  # where NVIDIA's runtime mounts the programs of a driver
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
Environment = dict[str, str]


class NoDaemon(Exception):
    """The daemon is not installed, or does not start."""


@contextlib.contextmanager
def without_mps() -> Iterator[Environment]:
    """The environment of processes that no daemon of this machine serves."""
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        yield {PIPES: folder}


@contextlib.contextmanager
def own_mps() -> Iterator[Environment]:
    """The environment of processes that share a GPU by a daemon of their own, which ends with the
    context. Raises `NoDaemon`."""
    path = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{IN_CONTAINERS}"
    if shutil.which(CONTROL, path=path) is None:
        raise NoDaemon(f"{CONTROL} is not installed")
    with tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as folder:
        own = {PIPES: f"{folder}/pipe", LOGS: f"{folder}/log", "PATH": path}
        for name in (PIPES, LOGS):
            Path(own[name]).mkdir()
        try:
            _start(own, Path(folder, "words"))
            yield own
        finally:
            _end(own)


def _of_daemon(own: Environment) -> Environment:
    """The environment of the daemon, without CUDA_VISIBLE_DEVICES: it would number its GPUs anew,
    and the processes that it serves have the numbers from before."""
    return {n: x for n, x in (os.environ | own).items() if n != "CUDA_VISIBLE_DEVICES"}


def _start(own: Environment, words: Path) -> None:
    # A file, not a pipe: the daemon may keep it open.
    with words.open("w") as file:
        output = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
        try:
            done = subprocess.run([CONTROL, "-d"], env=_of_daemon(own), timeout=SECONDS, **output)
        except subprocess.TimeoutExpired:
            raise NoDaemon(f"{CONTROL} -d has not returned in {SECONDS:g} s") from None
    if done.returncode:
        last = " ".join(words.read_text().split())
        raise NoDaemon(f"{CONTROL} -d ended with {done.returncode}: {last}")


def serves(own: Environment) -> bool:
    """Whether the daemon has a server, which it starts for the first process that uses a GPU."""
    return any(line.strip().isdigit() for line in asked(own, "get_server_list").splitlines())


def asked(own: Environment, command: str) -> str:
    """The daemon's answer to a command; empty where it gives none."""
    try:
        done = subprocess.run(
            [CONTROL],
            env=_of_daemon(own),
            input=f"{command}\n",
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip()


def _end(own: Environment) -> None:
    """Ends the daemon; by a signal to its process where it does not obey."""
    number = Path(own[PIPES], f"{CONTROL}.pid")
    asked(own, "quit -t 5")  # seconds for the processes that it serves
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(number.read_text()), signal.SIGTERM)
