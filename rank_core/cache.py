"""Content-addressed folders on the local disk, built once however many processes want them."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def cache_root() -> Path:
    """`$RANKSWEEP_CACHE`, or `~/.cache/ranksweep`."""
    return Path(os.environ.get("RANKSWEEP_CACHE") or Path.home() / ".cache" / "ranksweep")


def cached_directory(kind: str, key: str, build: Callable[[Path], None]) -> Path:
    """`<cache>/<kind>/<key>`, made by `build(empty_folder)` if it is not there yet.

    The folder appears by one rename under a lock, so a reader never sees half of it and a killed
    builder leaves nothing that a later one would trust.
    """
    home = cache_root() / kind
    final = home / key
    if final.is_dir():
        return final
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / f"{key}.lock"):
        if final.is_dir():
            return final
        for leftover in home.glob(f"{key}.building-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        building = Path(tempfile.mkdtemp(prefix=f"{key}.building-", dir=home))
        try:
            build(building)
            building.rename(final)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
    return final
