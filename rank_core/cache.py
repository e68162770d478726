"""Content-addressed folders on the local disk, built once for all processes."""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

SECONDS_BEFORE_WORD = 5.0
_log = logging.getLogger(__name__)


def cache_root() -> Path:
    """`$RANKSWEEP_CACHE`, or `~/.cache/ranksweep`."""
    return Path(os.environ.get("RANKSWEEP_CACHE") or Path.home() / ".cache" / "ranksweep")


@contextmanager
def _locked(path: Path, kind: str) -> Iterator[None]:
    """The lock of a build; a process that waits long for it says so on standard error."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=SECONDS_BEFORE_WORD)
    except Timeout:
        print(
            f"{kind}: waiting for another process, which is building {path.stem}", file=sys.stderr
        )
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def cached_directory(
    kind: str, key: str, build: Callable[[Path], None], *, resume: bool = False
) -> Path:
    """`<cache>/<kind>/<key>`, made by `build(empty_folder)` if it does not exist yet.

    The folder appears by one rename under a lock: no reader sees it half built, and the remains of
    a killed builder are never used. With `resume`, `build` is given the folder of a killed or
    interrupted builder and must check its files; after an error the folder is removed all the same.
    """
    home = cache_root() / kind
    final = home / key
    if final.is_dir():
        return final
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home / f"{key}.lock", kind):
        if final.is_dir():
            return final
        building = home / f"{key}.building-resumable" if resume else None
        for leftover in home.glob(f"{key}.building-*"):
            if leftover != building:
                shutil.rmtree(leftover, ignore_errors=True)
        if building is None:
            building = Path(tempfile.mkdtemp(prefix=f"{key}.building-", dir=home))
        building.mkdir(mode=0o700, exist_ok=True)
        _log.info("building %s (%s) for the cache", kind, key)
        try:
            build(building)
            building.rename(final)
        except BaseException as error:
            if not resume or isinstance(error, Exception):
                shutil.rmtree(building, ignore_errors=True)
            raise
    return final
