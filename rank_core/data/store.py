"""A memory-mapped table of rows with ids, whose values have different lengths.

A column is two files: `NAME.DTYPE` has the values of all rows, one after the other, and
`NAME.offsets` where each row begins. The ids are a column as well; beside it are the hashes of all
ids in ascending order, and their rows. Files are memory-mapped: opening takes milliseconds and no
memory per row, and all processes of a machine share the pages. A table never changes once written.
Texts, tokens, judgments and candidates are such tables: those of 300,000 training queries take 4 GB
per process as Python dictionaries, and 0.4 GB per machine here.
"""

import hashlib
import re
import shutil
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rank_core.cache import cached_directory, remove_folder
from rank_core.data.trec import in_rank_order
from rank_core.errors import BadInput
from rank_core.progress import reported
from rank_core.records import Qrels, Run, Split

HASH_BYTES = 8  # of 3 million ids, a collision in one of four million collections
IDS, HASHES, ORDER = "ids", "index.hashes", "index.rows"
ROWS_AT_ONCE = 512
BLANK = 64  # bytes below which a text may be blank
CHARACTERS_AT_ONCE = 1 << 22  # tokenizers need 100 to 700 bytes of memory per token

Value = TypeVar("Value")


class Rows:
    """A column: an array of values per row, read-only."""

    def __init__(self, folder: Path, name: str) -> None:
        files = [path for path in folder.glob(f"{name}.*") if path.suffix != ".offsets"]
        self.offsets: NDArray[np.int64] = _mapped(folder / f"{name}.offsets", np.int64)
        self.values = _mapped(files[0], files[0].suffix[1:]) if files else self.offsets[:0]
        if not files or not len(self.offsets) or len(self.values) != self.offsets[-1]:
            raise _incomplete(folder)
        # A memoryview gives Python integers, several times as fast as numpy's.
        self._offsets = self.offsets.data

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self._offsets[row] : self._offsets[row + 1]]

    def __iter__(self) -> Iterator[NDArray[Any]]:
        return (self[row] for row in range(len(self)))

    def lengths(self) -> NDArray[np.int64]:
        """The number of values in each row."""
        return np.diff(self.offsets)


def _incomplete(folder: Path) -> BadInput:
    return BadInput(f"{folder} is incomplete; delete it, and it will be built again")


class MappedTable:
    """The ids and columns in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ids = folder, Rows(folder, IDS)
        self._columns: dict[str, Rows] = {}
        self._hashes = _mapped(folder / HASHES, np.uint64).data
        self._order = _mapped(folder / ORDER, np.int64).data
        if not len(self._hashes) == len(self._order) == len(self.ids):
            raise _incomplete(folder)

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[str]:
        return (_decoded(name) for name in self.ids)

    def column(self, name: str) -> Rows:
        """A column by its name, opened once."""
        if name not in self._columns:
            self._columns[name] = Rows(self.folder, name)
        return self._columns[name]

    def id_of(self, row: int) -> str:
        """The id of a row."""
        return _decoded(self.ids[row])

    def find(self, name: object) -> int:
        """The row of an id; -1 for an unknown one."""
        if isinstance(name, str):
            content = id_bytes(name)
            target = _hash(content)
            # A binary search in mapped memory touches some twenty pages, whatever the size of the
            # table; a dictionary of ids would be a copy per process.
            place = bisect_left(self._hashes, target)
            while place < len(self._hashes) and self._hashes[place] == target:
                row = self._order[place]
                if self.ids[row].tobytes() == content:  # not merely a collision
                    return row
                place += 1
        return -1

    def repeated_id(self) -> str | None:
        """An id that two rows have; None if all are distinct."""
        hashes = np.asarray(self._hashes)
        for place in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
            name, following = map(self.id_of, self._order[place : place + 2])
            if name == following:
                return name
        return None


class TableWriter:
    """Writes a table to an empty folder, which is complete when the context ends."""

    def __init__(self, folder: Path, **columns: DTypeLike) -> None:
        self._folder = folder
        types = {name: np.dtype(dtype) for name, dtype in {IDS: np.uint8, **columns}.items()}
        self._sizes = {name: dtype.itemsize for name, dtype in types.items()}
        self._ends = dict.fromkeys(types, 0)
        self._values = {
            name: (folder / f"{name}.{dtype.name}").open("xb") for name, dtype in types.items()
        }
        self._offsets = {name: (folder / f"{name}.offsets").open("xb") for name in types}
        for file in self._offsets.values():
            file.write(bytes(8))

    def append(self, ids: Sequence[str], **columns: Sequence[Any]) -> None:
        """Adds rows: their ids, and per column an array (or the bytes) of each row."""
        names = [id_bytes(name) for name in ids]
        for column, rows in {IDS: names, **columns}.items():
            content, lengths = b"".join(rows), [*map(len, rows)]
            if len(rows) != len(ids) or len(content) != sum(lengths) * self._sizes[column]:
                raise ValueError(f"{column} must have a row of its own type per id")
            ends = self._ends[column] + np.cumsum(lengths, dtype=np.int64)
            self._values[column].write(content)
            self._offsets[column].write(ends.tobytes())
            self._ends[column] += sum(lengths)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in (*self._values.values(), *self._offsets.values()):
            file.close()
        if kind is not None:
            return
        ids = Rows(self._folder, IDS)
        hashes = np.fromiter((_hash(name.tobytes()) for name in ids), np.uint64, count=len(ids))
        # Written last: a table whose writer was killed has no index, and counts as incomplete.
        order = np.argsort(hashes, kind="stable")
        (self._folder / HASHES).write_bytes(hashes[order].tobytes())
        (self._folder / ORDER).write_bytes(order.astype(np.int64).tobytes())


class Stored(Mapping[str, Value]):
    """{id: value} of a table, read on access, in the order of its rows. It is pickled as its
    folder, and opened at the first look-up in each process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder,)

    @abstractmethod
    def value(self, row: int) -> Value:
        """The value of a row."""

    @cached_property
    def table(self) -> MappedTable:
        """The table in the folder."""
        return MappedTable(self.folder)

    def row(self, name: object) -> int:
        """The row of an id; raises KeyError for an unknown one."""
        row = self.table.find(name)
        if row < 0:
            raise KeyError(name)
        return row

    def rows(self, names: Iterable[str]) -> NDArray[np.int64]:
        """The rows of ids; -1 for unknown ones."""
        return np.array([self.table.find(name) for name in names], dtype=np.int64)

    def ids_of(self, rows: NDArray[np.integer[Any]]) -> list[str]:
        """The ids of rows."""
        return [self.table.id_of(row) for row in rows.tolist()]

    def __getitem__(self, name: str) -> Value:
        return self.value(self.row(name))

    def __contains__(self, name: object) -> bool:
        return self.table.find(name) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def items(self) -> ItemsView[str, Value]:
        """All ids and values, read in order and without look-ups."""
        return _InOrder(self)


class _InOrder(ItemsView[str, Value]):
    def __init__(self, stored: Stored[Value]) -> None:
        super().__init__(stored)
        self._stored = stored

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        rows = range(len(self._stored))
        return zip(self._stored, map(self._stored.value, rows), strict=True)


def batches(pairs: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Batches of ids and texts, limited in number and in characters."""
    batch: list[tuple[str, str]] = []
    size = 0
    for pair in pairs:
        batch.append(pair)
        size += len(pair[1])
        if len(batch) == ROWS_AT_ONCE or size >= CHARACTERS_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def id_bytes(name: str) -> bytes:
    """A string as unique bytes; half of a surrogate pair is kept."""
    return name.encode("utf-8", "surrogatepass")


def _decoded(name: NDArray[np.uint8]) -> str:
    return name.tobytes().decode("utf-8", "surrogatepass")


def _hash(name: bytes) -> int:
    return int.from_bytes(hashlib.sha256(name).digest()[:HASH_BYTES], "little")


def _mapped(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """A file as a read-only array; a plain view, because `memmap` is slow to index."""
    size = path.stat().st_size if path.exists() else 0
    if size < np.dtype(dtype).itemsize:
        empty = np.zeros(0, dtype=dtype)  # empty files cannot be mapped
        empty.flags.writeable = False
        return empty
    shape = (size // np.dtype(dtype).itemsize,)  # a copy may end within a value
    return np.memmap(path, dtype=dtype, mode="r", shape=shape).view(np.ndarray)


STORE_VERSION = 3
TEXTS, HASH = "texts", "hash.txt"
STORES, SOURCES = f"documents-{STORE_VERSION}", "document-sources"


class DocumentStore(Stored[str]):
    """{doc_id: text}, read-only and in source order."""

    @cached_property
    def content_hash(self) -> str:
        """16 hex digits that identify all ids and texts."""
        return (self.folder / HASH).read_text(encoding="ascii")

    def num_blank(self) -> int:
        """The number of texts of nothing but a little white space."""
        short = np.flatnonzero(self.table.column(TEXTS).lengths() < BLANK)
        return sum(not self.value(row).strip() for row in short.tolist())

    def value(self, row: int) -> str:
        """The text of a row."""
        return self.table.column(TEXTS)[row].tobytes().decode()


class First(Mapping[str, str]):
    """The first documents of a collection, without the texts of pairs, which no first stage
    ranks."""

    def __init__(self, documents: Mapping[str, str], number: int) -> None:
        self._documents, self._number = documents, number

    def __getitem__(self, doc_id: str) -> str:
        return self._documents[doc_id]

    def __iter__(self) -> Iterator[str]:
        return islice(self._documents, self._number)

    def __len__(self) -> int:
        return self._number


class _TextsTable(TableWriter):
    """A table of texts, with other columns, that writes the content hash of ids and texts."""

    def __init__(self, folder: Path, **columns: DTypeLike) -> None:
        super().__init__(folder, **{TEXTS: np.uint8, **columns})
        self._digest = hashlib.sha256()

    def add(self, ids: Sequence[str], texts: Sequence[str], **columns: Sequence[Any]) -> None:
        """Adds rows; half of a surrogate pair becomes a question mark."""
        contents = [text.encode("utf-8", "replace") for text in texts]
        self.append(ids, **{TEXTS: contents, **columns})
        for name, text in zip(map(id_bytes, ids), contents, strict=True):
            # With the lengths: ids and texts that are cut elsewhere must not give the same bytes.
            self._digest.update(b"%d %d\n" % (len(name), len(text)) + name + text)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        (self._folder / HASH).write_text(self._digest.hexdigest()[:16], encoding="ascii")


def write_document_store(
    folder: Path,
    documents: Iterable[tuple[str, str]],
    *,
    source: str,
    repeated: Callable[[str], object] | None = None,
) -> DocumentStore:
    """Writes (doc_id, text) pairs to an empty folder. `source` names them in messages; `repeated`
    may raise a more detailed error for a duplicate id."""
    with _TextsTable(folder) as table:
        for batch in batches(reported(_checked(documents, source), source)):
            table.add([name for name, _ in batch], [text for _, text in batch])
    written = MappedTable(folder)
    if not len(written):
        raise BadInput(f"{source} has no documents")
    if (twice := written.repeated_id()) is not None:
        if repeated is not None:
            repeated(twice)
        raise BadInput(f"{source}: duplicate doc_id {twice!r}")
    return DocumentStore(folder)


def stored_documents(
    key: str,
    documents: Callable[[], Iterable[tuple[str, str]]],
    *,
    source: str,
    repeated: Callable[[str], object] | None = None,
) -> DocumentStore:
    """The store of a source in the state that `key` identifies, built on first use. Sources with
    equal documents share a store."""

    def write(folder: Path) -> DocumentStore:
        return write_document_store(folder, documents(), source=source, repeated=repeated)

    def build(folder: Path) -> None:
        new = folder / "new"
        new.mkdir()
        store = write(new)
        # Two folders: the source's key, known before reading, points to the content's hash, known
        # only after.
        move = partial(shutil.copytree, new, dirs_exist_ok=True, copy_function=shutil.move)
        cached_directory(STORES, store.content_hash, move, restores=False)
        (folder / HASH).write_text(store.content_hash, encoding="ascii")
        shutil.rmtree(new)

    def write_again(folder: Path) -> None:  # where that part of the cache was deleted
        write(folder)

    content_hash = _hash_in(cached_directory(SOURCES, key, build))
    if not content_hash:
        remove_folder(SOURCES, key)
        content_hash = _hash_in(cached_directory(SOURCES, key, build, restores=False))
    return DocumentStore(cached_directory(STORES, content_hash, write_again))


def _hash_in(folder: Path) -> str:
    """The content hash in a folder of a source; "" for a damaged one."""
    file = folder / HASH
    text = file.read_bytes().decode("ascii", "replace") if file.is_file() else ""
    return text if re.fullmatch("[0-9a-f]{16}", text) else ""


def _checked(documents: Iterable[tuple[str, str]], source: str) -> Iterator[tuple[str, str]]:
    """The same pairs; raises `BadInput` for ids that are not one word."""
    for doc_id, text in documents:
        if doc_id.split() != [doc_id] or "\0" in doc_id:
            raise BadInput(
                f"{source}: a doc_id must be one word without white space, found {doc_id!r}"
            )
        yield doc_id.encode("utf-8", "replace").decode(), text


JUDGED, RANKED, SCORES, GROUPS = "judged", "ranked", "scores", "groups"


class Splits(dict[str, Split]):
    """The splits of a collection; access to a missing one raises `BadInput` with their names."""

    def __init__(self, name: str, splits: dict[str, Split]) -> None:
        super().__init__(splits)
        self._name = name

    def __missing__(self, split: str) -> Split:
        raise BadInput(
            f"{self._name} has no {split} split, only {', '.join(self)}: divide its judgments by "
            "`ranksweep split`, or test all of its queries with evaluation.folds=5"
        )

    def __reduce__(self) -> tuple[type["Splits"], tuple[str, dict[str, Split]]]:
        return Splits, (self._name, dict(self))


class JudgmentStore(Stored[dict[str, int]]):
    """{query_id: {doc_id: grade}}."""

    def value(self, row: int) -> dict[str, int]:
        """The judgments of a row."""
        words = self.table.column(JUDGED)[row].tobytes().decode().split()
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))


class GroupStore(Stored[str]):
    """{query_id: group}."""

    def value(self, row: int) -> str:
        """The group of a row."""
        return self.table.column(GROUPS)[row].tobytes().decode()


class RunStore(Stored[dict[str, float]]):
    """{query_id: {doc_id: score}} in rank order."""

    def __init__(self, folder: Path, documents: DocumentStore) -> None:
        super().__init__(folder)
        self.documents = documents

    def __reduce__(self) -> tuple[Any, ...]:
        return RunStore, (self.folder, self.documents)

    def rows_of(self, query_id: str) -> NDArray[np.int32]:
        """The documents' rows of a query's candidates, best first."""
        return self.table.column(RANKED)[self.row(query_id)]

    def value(self, row: int) -> dict[str, float]:
        """The candidates of a row."""
        ranked, scores = self.table.column(RANKED)[row], self.table.column(SCORES)[row]
        return dict(zip(self.documents.ids_of(ranked), scores.tolist(), strict=True))


def num_ranked(run: Mapping[str, Mapping[str, float]], query_id: str) -> int:
    """The number of candidates of a query, without reading them."""
    if isinstance(run, RunStore):
        return len(run.rows_of(query_id))
    return len(run.get(query_id, ()))


def ranked_rows(
    scored: Mapping[str, float], documents: DocumentStore
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The documents' rows and scores of a query's candidates, best first."""
    ranked = in_rank_order(scored)
    rows = documents.rows(ranked).astype(np.int32)
    return rows, np.fromiter(ranked.values(), dtype=np.float64, count=len(ranked))


def write_split(
    folder: Path,
    queries: Mapping[str, str],
    qrels: Qrels,
    run: Iterable[tuple[str, Mapping[str, float]]],
    documents: DocumentStore,
    groups: Mapping[str, str] | None = None,
) -> None:
    """Writes a split to a new folder; a query missing from `run` has no candidates. Every candidate
    must be one of the documents. `groups` has every query or is empty. Memory use is 12 bytes per
    candidate."""
    candidates = {query_id: ranked_rows(scored, documents) for query_id, scored in run}
    none = ranked_rows({}, documents)
    folder.mkdir(parents=True)
    types = {JUDGED: np.uint8, RANKED: np.int32, SCORES: np.float64}
    types |= {GROUPS: np.uint8} if groups else {}
    with _TextsTable(folder, **types) as table:
        for query_id, text in queries.items():
            judged = "".join(f"{doc_id} {grade}\n" for doc_id, grade in qrels[query_id].items())
            rows, scores = candidates.get(query_id, none)
            row: dict[str, Sequence[Any]] = {JUDGED: [judged.encode()], RANKED: [rows]}
            row |= {GROUPS: [groups[query_id].encode()]} if groups else {}
            table.add([query_id], [text], **row | {SCORES: [scores]})


def open_split(folder: Path, documents: DocumentStore) -> Split:
    """The split in a folder: mappings in place of dictionaries, read on access."""
    judged, candidates = JudgmentStore(folder), RunStore(folder, documents)
    groups = GroupStore(folder) if (folder / f"{GROUPS}.offsets").exists() else {}
    return Split(DocumentStore(folder), cast(Qrels, judged), cast(Run, candidates), groups)
