"""The files behind a dataset: their state, and the download of missing ones."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from filelock import FileLock

from rank_core.cache import cache_root
from rank_core.data.disk.document_store import STORE_VERSION
from rank_core.data.ir_datasets.internals import SourceFile
from rank_core.errors import BadInput
from rank_core.files import atomic_write

# Without network, a missing file should fail within seconds.
ONE_SHORT_TRY = {
    "IR_DATASETS_DL_TRIES": "1",
    "IR_DATASETS_DL_403_TRIES": "1",
    "IR_DATASETS_DL_TIMEOUT": "10",
}


FileState = tuple[str, int, int]
"""(path, bytes, time of last change in ns) of a file."""


def file_states(files: list[SourceFile]) -> list[FileState]:
    """The states of all files, including those in folders, sorted."""
    states: list[FileState] = []
    for path in sorted({path for file in files if (path := file.present())}):
        members = sorted(_files_below(path)) if path.is_dir() else [path]
        for member in members:
            stat = member.stat()
            states.append((str(member), stat.st_size, stat.st_mtime_ns))
    return states


def state_key(names: list[str], states: list[FileState]) -> str:
    """16 hex digits that identify the state of source files."""
    import ir_datasets

    text = json.dumps([STORE_VERSION, ir_datasets.__version__, names, states])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def require_files(name: str, files: list[SourceFile]) -> None:
    """Downloads missing files, one process at a time; raises `BadInput` for licensed ones."""
    for file in files:
        if file.present() is None and not file.url:
            raise BadInput(f"{name} needs {file.target}, which does not exist. {file.instructions}")
    if all(file.present() for file in files):
        return
    cache_root().mkdir(parents=True, exist_ok=True)
    with FileLock(cache_root() / "downloads.lock"), _one_short_try():
        missing = [file for file in files if file.present() is None]
        for number, file in enumerate(missing):
            _download(name, file, missing[number + 1 :])


def _files_below(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder, followlinks=True):
        yield from (Path(root) / name for name in names)


def _download(name: str, file: SourceFile, further: Sequence[SourceFile]) -> None:
    try:
        path = Path(file.download.path())
        if path != file.target:  # ir_datasets keeps it in a temporary place
            file.target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file.target) as unfinished:
                shutil.copyfile(path, unfinished)
    except Exception as error:  # of the network, the disk or a checksum
        reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        more = "".join(f", {other.url} to {other.target}" for other in further)
        raise BadInput(
            f"{name} needs {file.target}, which does not exist and could not be downloaded "
            f"({reason}). Download {file.url} to that path{more}"
        ) from None


@contextlib.contextmanager
def _one_short_try() -> Iterator[None]:
    before = {variable: os.environ.get(variable) for variable in ONE_SHORT_TRY}
    os.environ.update({v: os.environ.get(v) or short for v, short in ONE_SHORT_TRY.items()})
    try:
        yield
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value
