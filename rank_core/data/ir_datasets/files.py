"""Which files an ir_datasets handler reads: where they are, what state they are in, who has them.

ir_datasets knows this but does not say it, so its objects are searched for downloads here.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from filelock import FileLock

from rank_core.cache import cache_root
from rank_core.errors import BadInput
from rank_core.files import atomic_write

# Without a network a missing file must cost seconds, not minutes of retries.
ONE_SHORT_TRY = {
    "IR_DATASETS_DL_TRIES": "1",
    "IR_DATASETS_DL_403_TRIES": "1",
    "IR_DATASETS_DL_TIMEOUT": "10",
}
# An optional index into ClueWeb12 of several GB.
NOT_NEEDED = {"chk_dlc"}

FileState = tuple[str, int, int]
"""(path, bytes, time of the last change in ns) of one file."""


class SourceFile(NamedTuple):
    """A file of a dataset, and the copy that ir_datasets keeps of one of its members."""

    download: Any  # ir_datasets.util.Download
    extracts: tuple[Any, ...]  # ir_datasets.util.Cache

    @property
    def target(self) -> Path:
        """Where ir_datasets looks for the file."""
        if self.download._cache_path is not None:
            return Path(self.download._cache_path)
        import ir_datasets

        return Path(ir_datasets.util.home_path()) / "downloads" / str(self.download.expected_md5)

    def found(self) -> Path | None:
        """The file that is there: the file itself or else an extract of it."""
        places = [self.target, *(Path(extract._path) for extract in self.extracts)]
        return next((place for place in places if place.exists()), None)


def source_files(handler: Any) -> list[SourceFile]:
    """The files behind one handler (documents, queries, qrels or scored documents)."""
    return [
        SourceFile(thing, extracts)
        for thing, extracts in _search(handler, (), set())
        if type(thing).__name__ == "Download"
    ]


def file_states(files: list[SourceFile]) -> list[FileState]:
    """The state of every file, of folders of each file in them; sorted."""
    states: list[FileState] = []
    for path in sorted({path for file in files if (path := file.found())}):
        members = sorted(_files_below(path)) if path.is_dir() else [path]
        for member in members:
            stat = member.stat()
            states.append((str(member), stat.st_size, stat.st_mtime_ns))
    return states


def require_files(name: str, files: list[SourceFile]) -> None:
    """Refuse a licensed file that is not there; download the others, one process at a time."""
    for file in files:
        if file.found() is None and not _url(file):
            instructions = " ".join(str(file.download.mirrors[0]._message or "").split())
            raise BadInput(f"{name} needs {file.target}, which does not exist. {instructions}")
    if all(file.found() for file in files):
        return
    cache_root().mkdir(parents=True, exist_ok=True)
    with FileLock(cache_root() / "downloads.lock"), _one_short_try():
        for file in files:
            if file.found() is None:
                _download(name, file)


def keep_what_the_user_put(dataset: Any) -> None:
    """Stop ir_datasets from deleting files that were there before its own first download.

    It takes a file without its version mark beside it for one of an older release.
    """
    for thing, _ in _search(dataset, (), set()):
        if type(thing).__name__ == "Migrator":
            thing._state = "OK"


def reading_the_source_itself(handler: Any) -> contextlib.AbstractContextManager[None]:
    """While this is open, `handler` reads neither a kept extract nor a kept document store.

    ir_datasets does not notice when their source has changed.
    """
    return _bypass(handler)


@contextlib.contextmanager
def _bypass(handler: Any) -> Iterator[None]:
    things = list(_search(handler, (), set()))
    patched: list[tuple[Any, str]] = []
    for thing, extracts in things:
        if type(thing).__name__ == "Lazy":
            thing._loaded = False  # ids that were read from a file
            continue
        file = SourceFile(thing, extracts)
        if type(thing).__name__ != "Download" or not file.target.exists():
            continue
        if thing._cache_path is None and thing._path is None:
            thing._path = str(file.target)
        for extract in extracts:
            extract.stream = partial(_extracted_again, extract._streamer)
            patched.append((extract, "stream"))
    if hasattr(handler, "docs_store"):
        handler.docs_store = lambda *_, **__: _NoStore(handler)
        patched.append((handler, "docs_store"))
    try:
        yield
    finally:
        for thing, name in patched:
            vars(thing).pop(name, None)


@contextlib.contextmanager
def _extracted_again(streamer: Any) -> Iterator[IO[bytes]]:
    """A member of an archive in a temporary file, since its readers expect that they can seek."""
    import ir_datasets

    with tempfile.TemporaryFile(dir=ir_datasets.util.tmp_path()) as file:
        with streamer.stream() as stream:
            shutil.copyfileobj(stream, file)
        file.seek(0)
        yield file


class _NoStore:
    """Stands for a document store that was not built."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def built(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        # Where ir_datasets can read documents from a store alone (BEIR), this is what fills it.
        return iter(self._handler._docs_iter())


def _search(
    thing: Any, extracts: tuple[Any, ...], seen: set[tuple[int, ...]]
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Downloads, lazy sets of ids and migrators, each with the extracts around it."""
    if isinstance(thing, list | tuple) and not hasattr(thing, "_fields"):
        for item in thing:
            yield from _search(item, extracts, seen)
        return
    # An archive is behind several extracts: each way to it counts.
    way = (id(thing), *map(id, extracts))
    if way in seen or not type(thing).__module__.startswith("ir_datasets"):
        return
    seen.add(way)
    kind = type(thing).__name__
    if kind == "Download":
        yield thing, extracts
        return
    values = [value for name, value in vars(thing).items() if name not in NOT_NEEDED]
    if kind == "Migrator":
        yield thing, extracts
    if kind == "Lazy":  # a filter of queries by the ids in another file
        yield thing, extracts
        values = [cell.cell_contents for cell in thing._fn.__closure__ or ()]
    if kind == "Cache":
        extracts = (*extracts, thing)
    for value in values:
        yield from _search(value, extracts, seen)


def _files_below(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder, followlinks=True):
        yield from (Path(root) / name for name in names)


def _url(file: SourceFile) -> str | None:
    urls = [mirror.url for mirror in file.download.mirrors if hasattr(mirror, "url")]
    return urls[0] if urls else None


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
            f"({reason[:160]}). Put the file of {_url(file)} there"
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
