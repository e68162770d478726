"""What Ray on this machine starts with: a private folder whose sockets have short enough names,
workers that import no library from the working directory, and no secret in what Ray writes."""

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

from ray.job_config import JobConfig
from ray.tune.execution import class_cache

from rank_core.errors import BadInput
from rank_core.parsing import parsed_json
from rank_core.secrets import is_secret_name
from sweeps.terminal.text import say

BELOW = "r"
"""Ray's own folder in the private one: Ray opens it to everyone."""
SOCKET = (
    f"ray-12345678/{BELOW}/session_2026-01-01_00-00-00_000000_{os.getpid()}/sockets/plasma_store"
)
"""The longest name of a socket below TMPDIR."""
LONGEST = 107 - len(f"/{SOCKET}")
"""Bytes of the name of TMPDIR; Linux allows 107 for the name of a socket."""
SHORT = ("/tmp", "/var/tmp", "/dev/shm")


def ray_folder() -> Path:
    """A new folder for Ray's files that only this user can enter: they have logs, sockets without
    passwords and a copy of the user's code. It is in `RAY_TMPDIR`, else in TMPDIR or, where that is
    too long for the name of a socket, in a place that is shorter. Raises `BadInput` where no place
    is short enough or can be written."""
    name = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
    place = Path(os.environ.get(name, "/tmp"))
    length = len(os.fsencode(place))
    if length <= LONGEST:
        try:
            place.mkdir(parents=True, exist_ok=True)
            return _private_folder(place)
        except OSError as error:
            raise BadInput(
                f"{name} must be a folder that can be written, for Ray's files: {error}"
            ) from None
    for short in SHORT if name == "TMPDIR" else ():
        with suppress(OSError):
            private = _private_folder(Path(short))
            say(f"Ray's files are in {private}: TMPDIR is too long for the names of its sockets")
            return private
    raise BadInput(
        f"{name} is too long for the names of Ray's sockets: {length} bytes, at most {LONGEST}. "
        "Set RAY_TMPDIR to a shorter folder that can be written, or run with --engine local"
    )


def _private_folder(place: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir=place))  # 0700, and new
    with tempfile.TemporaryFile(dir=folder):
        return folder


def keep_secrets_from_ray() -> None:
    """Takes the secrets out of the variables that Ray Tune hands to each process of a trial: Ray
    writes what it hands on into its logs. Processes on this machine inherit them; those of a
    cluster have the ones of their node."""
    handed = {one for one in class_cache.ENV_VARS_TO_PROPAGATE if not one.startswith("AWS_")}
    class_cache.ENV_VARS_TO_PROPAGATE = {one for one in handed if not is_secret_name(one)}


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
        origin = parsed_json(distribution("ranksweep").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return True
    installed = url2pathname(urlparse(origin.get("url", "")).path)
    editable = origin.get("dir_info", {}).get("editable", False)
    return not (editable and Path(installed).resolve() == folder.resolve())
