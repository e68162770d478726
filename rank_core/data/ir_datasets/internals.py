"""All that reaches into private parts of ir_datasets.

ir_datasets has no public way to ask which files a dataset is read from, whether they have changed
since it made its extracts and document stores, or for the archive in which a web page lies; and it
deletes files that it takes for outdated. Its objects are searched, and for the time of one reading
patched, here and nowhere else; pyproject.toml bounds its version for this reason.
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

    @property
    def url(self) -> str | None:
        """Where it can be downloaded; None for a licensed file."""
        urls = [mirror.url for mirror in self.download.mirrors if hasattr(mirror, "url")]
        return urls[0] if urls else None

    @property
    def instructions(self) -> str:
        """What ir_datasets says about a file that it cannot download."""
        return " ".join(str(self.download.mirrors[0]._message or "").split())

    def present(self) -> Path | None:
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


def is_web(handler: Any) -> bool:
    """Whether the documents are crawled pages in archives that their ids name."""
    return hasattr(handler, "_docs_id_to_source_file")


def web_pages(handler: Any, names: set[str]) -> Iterator[Any]:
    """The pages of the archives that hold a wanted one, until the last of these in each."""
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
    """How one archive is read: in full, or by the index of ClueWeb12 where it is there."""
    if hasattr(handler, "_docs_ctxt_iter_gov2"):
        return lambda archive, _: handler._docs_ctxt_iter_gov2(archive)
    index = getattr(handler, "chk_dlc", None)
    if index is not None and Path(index.path(force=False)).exists():
        from ir_datasets.indices import ClueWebWarcIndex

        return lambda archive, wanted: ClueWebWarcIndex(
            archive, handler._docs_source_file_to_checkpoint(archive)
        ).get_many_iter(sorted(wanted), handler)
    return lambda archive, _: handler._docs_ctxt_iter_warc(archive)
