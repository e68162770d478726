"""All uses of private parts of ir_datasets.

ir_datasets has no public way to ask which files a dataset is read from, whether they have changed
since it made its extracts and document stores, or in which archive a web page is; and it deletes
files that it considers outdated. This module searches its objects, and patches them while a source
is read; pyproject.toml pins its version for that reason.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

# An optional index into ClueWeb12 of several GB.
NOT_NEEDED = {"chk_dlc"}


class SourceFile(NamedTuple):
    """A file of a dataset, and the extracts that ir_datasets keeps of it."""

    download: Any  # ir_datasets.util.Download
    extracts: tuple[Any, ...]  # ir_datasets.util.Cache

    @property
    def target(self) -> Path:
        """The path where ir_datasets expects the file."""
        if self.download._cache_path is not None:
            return Path(self.download._cache_path)
        import ir_datasets

        return Path(ir_datasets.util.home_path()) / "downloads" / str(self.download.expected_md5)

    @property
    def url(self) -> str | None:
        """The URL of its download; None for a licensed file."""
        urls = [mirror.url for mirror in self.download.mirrors if hasattr(mirror, "url")]
        return urls[0] if urls else None

    @property
    def instructions(self) -> str:
        """ir_datasets' instructions for a file that it cannot download."""
        return " ".join(str(self.download.mirrors[0]._message or "").split())

    def present(self) -> Path | None:
        """The existing path: of the file itself, or of an extract."""
        places = [self.target, *(Path(extract._path) for extract in self.extracts)]
        return next((place for place in places if place.exists()), None)


def source_files(handler: Any) -> list[SourceFile]:
    """The files behind a handler (of documents, queries, qrels or scored documents)."""
    return [
        SourceFile(thing, extracts)
        for thing, extracts in _search(handler, (), set())
        if type(thing).__name__ == "Download"
    ]


def keep_what_the_user_put(dataset: Any) -> None:
    """Keeps ir_datasets from deleting files that the user provided. It considers a file without its
    version mark to be of an older release."""
    for thing, _ in _search(dataset, (), set()):
        if type(thing).__name__ == "Migrator":
            thing._state = "OK"


@contextlib.contextmanager
def reading_the_source_itself(handler: Any) -> Iterator[None]:
    """Makes `handler` read its source while the context is open, not an extract or document store:
    ir_datasets does not notice when a source has changed.
    """
    things = list(_search(handler, (), set()))
    patched: list[tuple[Any, str]] = []
    for thing, extracts in things:
        if type(thing).__name__ == "Lazy":
            thing._loaded = False  # cached ids from a file
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
    """An archive's member in a temporary file, because its readers need to seek."""
    import ir_datasets

    with tempfile.TemporaryFile(dir=ir_datasets.util.tmp_path()) as file:
        with streamer.stream() as stream:
            shutil.copyfileobj(stream, file)
        file.seek(0)
        yield file


class _NoStore:
    """A stand-in for a document store that was not built."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def built(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        # ir_datasets fills BEIR's stores from here, and can read documents only from them.
        return iter(self._handler._docs_iter())


def _search(
    thing: Any, extracts: tuple[Any, ...], seen: set[tuple[int, ...]]
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Downloads, lazy id sets and migrators, each with the extracts around it."""
    if isinstance(thing, list | tuple) and not hasattr(thing, "_fields"):
        for item in thing:
            yield from _search(item, extracts, seen)
        return
    # An archive is behind several extracts; each path to it counts.
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


def is_web(handler: Any) -> bool:
    """True for crawled pages in archives that their ids name."""
    return hasattr(handler, "_docs_id_to_source_file")


def web_pages(handler: Any, names: set[str]) -> Iterator[Any]:
    """The pages of the archives with wanted pages, each archive up to its last wanted one."""
    archives: dict[str, set[str]] = {}
    for name in sorted(names):
        archive = handler._docs_id_to_source_file(name)
        if archive is not None:
            archives.setdefault(str(archive), set()).add(name)
    read = _archive_reader(handler)
    for archive, wanted in archives.items():
        if not Path(archive).exists():
            continue
        for page in read(archive, wanted):
            yield page
            wanted.discard(page.doc_id)
            if not wanted:
                break


def _archive_reader(handler: Any) -> Callable[[str, set[str]], Iterator[Any]]:
    """The reader of an archive: in full, or by ClueWeb12's index if it exists."""
    if hasattr(handler, "_docs_ctxt_iter_gov2"):
        return lambda archive, _: handler._docs_ctxt_iter_gov2(archive)
    index = getattr(handler, "chk_dlc", None)
    if index is not None and Path(index.path(force=False)).exists():
        from ir_datasets.indices import ClueWebWarcIndex

        return lambda archive, wanted: ClueWebWarcIndex(
            archive, handler._docs_source_file_to_checkpoint(archive)
        ).get_many_iter(sorted(wanted), handler)
    return lambda archive, _: handler._docs_ctxt_iter_warc(archive)
