"""What Ray on this machine starts with: a folder whose sockets have short enough names, and workers
that import no library from the working directory."""

import json
import os
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

from ray.job_config import JobConfig

from rank_core.errors import BadInput
from sweeps.plan.terminal import say

SOCKET = f"ray/session_2026-01-01_00-00-00_000000_{os.getpid()}/sockets/plasma_store"
"""The longest name of a socket below Ray's folder."""
LONGEST = 107 - len(f"/{SOCKET}")
"""Bytes of the folder's name; Linux allows 107 for the name of a socket."""
SHORT = ("/tmp", "/var/tmp", "/dev/shm")


def ray_folder() -> str | None:
    """The folder for Ray's files, None for Ray's own choice: where TMPDIR is too long for the name
    of a socket, a private one that is shorter. Raises `BadInput` for a `RAY_TMPDIR` too long."""
    name = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
    folder = os.environ.get(name, "/tmp")
    length = len(os.fsencode(folder.rstrip("/")))
    if length <= LONGEST:
        return None
    for place in SHORT if name == "TMPDIR" else ():
        if private := _private_folder(Path(place)):
            say(f"Ray's files are in {private}: TMPDIR is too long for the names of its sockets")
            return private
    raise BadInput(
        f"{name} is too long for the names of Ray's sockets: {length} bytes, at most {LONGEST}. "
        "Set RAY_TMPDIR to a shorter folder that can be written, or run with --engine local"
    )


def _private_folder(place: Path) -> str | None:
    """The user's folder for Ray in a `place`; None where it cannot be written or is another's."""
    folder = place / f"ray-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
        if state.st_uid != os.getuid() or state.st_mode & 0o022 or folder.is_symlink():
            return None
        with tempfile.TemporaryFile(dir=folder):
            return str(folder)
    except OSError:
        return None


class _Folders(list[str]):
    """The folders that Ray puts before all others on the path of workers. It adds the working
    directory, whose modules would stand in for the libraries of their names, there and not in this
    process, which looks there last. The user's own code reaches workers as a copy."""

    def extend(self, folders: Iterable[str]) -> None:
        here = os.getcwd()
        super().extend(one for one in folders if one != here or _is_checkout(Path(here)))


def workers_path() -> JobConfig:
    """The job of this command, for `ray.init`."""
    job = JobConfig()
    job._py_driver_sys_path = _Folders()  # Ray has no public way
    return job


def _is_checkout(folder: Path) -> bool:
    """True for the folder that this package is imported from, and not by an installation: without
    it workers would not find the package."""
    if folder.resolve() != Path(__file__).resolve().parents[2]:
        return False
    try:
        origin = json.loads(distribution("ranksweep").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return True
    installed = url2pathname(urlparse(origin.get("url", "")).path)
    editable = origin.get("dir_info", {}).get("editable", False)
    return not (editable and Path(installed).resolve() == folder.resolve())
