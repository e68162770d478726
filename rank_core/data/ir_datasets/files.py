"""The files behind a dataset: what state they are in, and how missing ones are had."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from rank_core.cache import cache_root
from rank_core.data.disk.document_store import STORE_VERSION
from rank_core.data.ir_datasets.internals import SourceFile
from rank_core.errors import BadInput
from rank_core.files import atomic_write

# Without a network a missing file must cost seconds, not minutes of retries.
ONE_SHORT_TRY = {
    "IR_DATASETS_DL_TRIES": "1",
    "IR_DATASETS_DL_403_TRIES": "1",
    "IR_DATASETS_DL_TIMEOUT": "10",
}


FileState = tuple[str, int, int]
"""(path, bytes, time of the last change in ns) of one file."""


def file_states(files: list[SourceFile]) -> list[FileState]:
    """The state of every file, of folders of each file in them; sorted."""
    states: list[FileState] = []
    for path in sorted({path for file in files if (path := file.present())}):
        members = sorted(_files_below(path)) if path.is_dir() else [path]
        for member in members:
            stat = member.stat()
            states.append((str(member), stat.st_size, stat.st_mtime_ns))
    return states


def state_key(names: list[str], states: list[FileState]) -> str:
    """16 hex digits that name files in a certain state, read for `names`."""
    import ir_datasets

    text = json.dumps([STORE_VERSION, ir_datasets.__version__, names, states])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def require_files(name: str, files: list[SourceFile]) -> None:
    """Refuse a licensed file that is not there; download the others, one process at a time."""
    for file in files:
        if file.present() is None and not file.url:
            raise BadInput(f"{name} needs {file.target}, which does not exist. {file.instructions}")
    if all(file.present() for file in files):
        return
    cache_root().mkdir(parents=True, exist_ok=True)
    with FileLock(cache_root() / "downloads.lock"), _one_short_try():
        for file in files:
            if file.present() is None:
                _download(name, file)


def _files_below(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder, followlinks=True):
        yield from (Path(root) / name for name in names)


def _download(name: str, file: SourceFile) -> None:
    try:
        path = Path(file.download.path())
        if path != file.target:  # a file without a place of its own, kept in a temporary one
            file.target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(file.target) as unfinished:
                shutil.copyfile(path, unfinished)
    except Exception as error:  # whatever the network, the disk or a checksum has to say
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadInput(
            f"{name} needs {file.target}, which does not exist and could not be downloaded "
            f"({reason[:160]}). Put the file of {file.url} there"
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
