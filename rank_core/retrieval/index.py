"""The chunks of a collection and their vectors as an index that is searched exactly."""

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rank_core import distributed
from rank_core.arrays import Singles
from rank_core.cache import cache_root
from rank_core.data.store import Stored
from rank_core.errors import BadInput
from rank_core.lines import beside
from rank_core.retrieval.cuts import CutTable
from rank_core.retrieval.evidence import Place, Read
from rank_core.retrieval.search import Found, IndexBlock, Scoring, Top, better, empty, search
from rank_core.retrieval.stored import (
    BINARY,
    FP32,
    INT8,
    Ranges,
    binary_codes,
    binary_values,
    int8_codes,
    int8_values,
    ranges_of,
    vector_bytes,
)
from rank_core.retrieval.vectors import Text, Vectors, VectorStore
from rank_core.units import size_text

SCORES = 1 << 24
"""Scores of a block: queries times chunks."""
FEWEST = 1024  # chunks of a block
CODED = 8192  # vectors that are coded at once
PARTS, SMALLEST_PART, LARGEST_PART = 64, 16, 1024
"""The parts of a collection, and the documents of one: each is embedded by one process at a time,
so that many make work for many; small ones make small calls of the encoder."""
TIMED = 50  # queries whose time is measured


class TextModel(Protocol):
    """What an index needs of an embedding model; `EmbeddingModel` is one."""

    @property
    def vectors_hash(self) -> str:
        """What names the vectors of `encode_whole`."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    @property
    def dimensions(self) -> int:
        """The size of a vector: how many of the first of `all_dimensions` are kept."""

    @property
    def all_dimensions(self) -> int:
        """The size of a vector of `encode_whole`."""

    @property
    def max_length(self) -> int:
        """The tokens of a row with prompt and special tokens."""

    @property
    def max_window(self) -> int:
        """The tokens of a document that fit behind prompt and special tokens."""

    @property
    def similarity(self) -> str:
        """cosine, dot, euclidean or manhattan."""

    def encode_queries(self, texts: Sequence[str]) -> Singles:
        """vector_QD of queries."""

    def encode_whole(self, texts: Sequence[str], titles: Sequence[str] | None = None) -> Singles:
        """vector_ND of texts, each behind its title, in all dimensions."""

    def scores(self, query_QD: Singles, document_ND: Singles) -> Singles:
        """score_QN."""


@dataclass(frozen=True)
class IndexCost:
    """What an index costs."""

    documents: int
    vectors: int
    dimensions: int
    stored: str  # the precision of the vectors
    characters: int  # of a chunk, the median without each document's last
    tokens: int  # that the encoder reads to build it, with special tokens and prompt
    embedded_tokens: int  # of these, read by this trial: the rest was known

    @property
    def bytes(self) -> int:
        """The size of its vectors as they are stored."""
        return self.vectors * vector_bytes(self.stored, self.dimensions)

    def record(self) -> dict[str, Any]:
        """All figures for JSON."""
        return asdict(self) | {
            "bytes": self.bytes,
            "vectors_per_document": self.vectors / max(1, self.documents),
        }


class DenseIndex:
    """The chunks of `documents` and their vectors, which a search reads as they are `stored`: fp32,
    int8 or binary. In a process group every worker embeds and searches its share of the documents,
    and all of them get the results. Raises `BadInput` for signs that are compared by a distance."""

    def __init__(
        self,
        model: TextModel,
        documents: Mapping[str, str],
        cuts: CutTable,
        stored: str = FP32,
    ) -> None:
        if stored == BINARY and model.similarity not in ("cosine", "dot"):
            raise BadInput(
                "model.stored=binary needs a model that compares vectors by cosine or dot, got "
                f"one that compares them by {model.similarity}"
            )
        self.model, self.cuts, self._documents = model, cuts, documents
        self.stored = stored
        self._ranges: Ranges | None = None  # of int8
        self._store = VectorStore(model.vectors_hash)
        rank, workers = distributed.world()
        bounds = np.arange(workers + 1) * len(cuts) // workers
        ends = np.searchsorted(cuts.offsets, bounds)  # a document belongs to one worker
        self._first, self._last = int(ends[rank]), int(ends[rank + 1])
        self._start, self._end = cuts.offsets[[self._first, self._last]].tolist()
        self.embedded_tokens = 0

    @property
    def encoder_tokens(self) -> int:
        """The encoder tokens of all chunks, with special tokens and prompt."""
        return int(self._read(np.asarray(self.cuts.tokens)).sum())

    @property
    def vector_bytes(self) -> int:
        """The size of a vector as it is stored."""
        return vector_bytes(self.stored, self.model.dimensions)

    @property
    def cost(self) -> IndexCost:
        """What the index costs, over all workers."""
        [embedded] = distributed.sum_numbers([float(self.embedded_tokens)])
        return IndexCost(
            documents=self.cuts.num_documents,
            vectors=len(self.cuts),
            dimensions=self.model.dimensions,
            stored=self.stored,
            characters=self.cuts.median_characters(),
            tokens=self.encoder_tokens,
            embedded_tokens=int(embedded),
        )

    def _read(self, tokens: NDArray[Any]) -> NDArray[np.int64]:
        """The encoder tokens of chunks."""
        around = self.model.max_length - self.model.max_window
        return np.minimum(tokens.astype(np.int64) + around, self.model.max_length)

    def unread(self, known: NDArray[np.bytes_]) -> tuple[int, NDArray[np.bytes_]]:
        """The encoder tokens of the chunks that are neither stored nor `known`, and their keys."""
        keys = self._keys()
        missing = self._store.missing(keys)
        new = missing[~np.isin(keys[missing], known)]
        tokens = self.cuts.tokens[self._start : self._end]
        return int(self._read(tokens[new]).sum()), keys[new]

    def seconds_per_token(self, tokens: int) -> float:
        """The time of embedding a sample of chunks with so many tokens or more."""
        order = np.linspace(0, len(self.cuts) - 1, min(len(self.cuts), 512)).astype(np.int64)
        lengths = self._read(self.cuts.tokens[order])
        sample = order[: int(np.searchsorted(np.cumsum(lengths), tokens)) + 1]
        self._encode(self._texts(order[:1]))  # the first call prepares the device
        start = time.perf_counter()
        self._encode(self._texts(sample))
        return (time.perf_counter() - start) / float(lengths[: len(sample)].sum())

    @cached_property
    def vectors(self) -> Vectors:
        """The vectors of this worker's chunks, embedded where they are not stored yet. Raises
        `BadInput` where the disk has no room for them."""
        keys = self._keys()
        missing = self._store.missing(keys)
        need, free = 4 * len(missing) * self.model.all_dimensions, _free_bytes()
        if need > free:
            raise BadInput(
                f"{len(missing):,} vectors need {size_text(need)}, and {cache_root()} has "
                f"{size_text(free)} free; set RANKSWEEP_CACHE to a larger disk, or choose "
                "larger windows or a smaller overlap"
            )
        if len(missing):
            beside(self._size_line(len(missing)))
        embedded = self._store.embed(keys, self._parts(missing), self._texts, self._encode)
        tokens = self.cuts.tokens[self._start : self._end]
        self.embedded_tokens += int(self._read(tokens[embedded]).sum())
        return self._store.open(keys)

    def _parts(self, places: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Places of chunks by ranges of documents, which all cells of a collection have alike."""
        documents = self.cuts.num_documents
        size = min(max(documents // PARTS, SMALLEST_PART), LARGEST_PART)
        rows = np.searchsorted(self.cuts.offsets, places + self._start, side="right") - 1
        numbers, first = np.unique(rows // size, return_index=True)
        ranges = pairwise([*first.tolist(), len(places)])
        return {
            f"{documents}-{number}": places[start:end]
            for number, (start, end) in zip(numbers.tolist(), ranges, strict=True)
        }

    def _size_line(self, missing: int) -> str:
        num_bytes = self.vector_bytes * len(self.cuts)
        text = f"index: {len(self.cuts):,} vectors, {num_bytes:,} bytes; {missing:,} to embed"
        return text + ("" if self.fits_memory else "; larger than memory, searched from the disk")

    @property
    def fits_memory(self) -> bool:
        """Whether this worker's vectors, which a search reads in fp32, fit in half of the machine's
        memory."""
        num_bytes = 4 * (self._end - self._start) * self.model.dimensions
        return num_bytes <= memory_bytes() / 2

    def _keys(self) -> NDArray[np.bytes_]:
        return self.cuts.keys[self._start : self._end]

    def _texts(self, places: NDArray[np.int64]) -> list[Text]:
        numbers = places + self._start
        rows = np.searchsorted(self.cuts.offsets, numbers, side="right") - 1
        return [
            self.cuts.text(number, self._document(row))
            for row, number in zip(rows.tolist(), numbers.tolist(), strict=True)
        ]

    def _document(self, row: int) -> str:
        documents = self._documents
        if isinstance(documents, Stored):
            return documents.value(row)
        return documents[self._ids[row]]

    @cached_property
    def _ids(self) -> list[str]:
        return [*self._documents]

    def doc_id(self, row: int) -> str:
        """The id of a document by its place."""
        documents = self._documents
        return documents.table.id_of(row) if isinstance(documents, Stored) else self._ids[row]

    def _encode(self, texts: Sequence[Text]) -> Singles:
        # On a CPU one text at a time: its vector then depends on nothing else, and a sweep that was
        # killed or shares vectors has the same bits.
        size = 1 if self.model.device.type == "cpu" else len(texts)
        parts = []
        for start in range(0, len(texts), size):
            some = texts[start : start + size]
            titles = [text.title for text in some] if any(text.title for text in some) else None
            parts.append(self.model.encode_whole([text.text for text in some], titles))
        return np.concatenate(parts)

    def search(self, queries: Singles, *, depth: int, num_chunks: int = 0) -> Found:
        """The best documents and chunks of all workers, by their places in the collection."""
        score = self._scoring(queries)
        blocks = self._blocks(max(1, len(queries)))
        top = search(blocks, score, len(queries), depth=depth, num_chunks=num_chunks)
        found = Found(empty(len(queries)), empty(len(queries)))
        for other in distributed.gather(top):
            documents = better(found.documents, other.documents, depth)
            found = Found(documents, better(found.chunks, other.chunks, num_chunks))
        return found

    def _scoring(self, query_QD: Singles) -> Scoring:
        if self.stored == INT8 and self._ranges is None:
            self._ranges = self._all_ranges()  # every worker, also one without documents
        if self.model.similarity != "cosine":
            return lambda block: self.model.scores(query_QD, block)
        unit_QD = unit(query_QD)
        return lambda block: unit_QD @ block.T  # of unit vectors, once and not for every query

    def _blocks(self, num_queries: int) -> Iterator[IndexBlock]:
        size = max(FEWEST, SCORES // num_queries)
        row, offsets = self._first, self.cuts.offsets
        while row < self._last:
            start = int(offsets[row])
            end = int(np.searchsorted(offsets, start + size, side="right")) - 1
            end = min(max(end, row + 1), self._last)
            relative = offsets[row:end] - start
            yield IndexBlock(row, start, relative, self._vectors(start, int(offsets[end])))
            row = end

    def _vectors(self, start: int, end: int) -> Singles:
        if self.fits_memory:
            return self._in_memory[start - self._start : end - self._start]
        return self._block(start - self._start, end - self._start)

    @cached_property
    def _in_memory(self) -> Singles:
        return self._block(0, self._end - self._start)

    def _block(self, start: int, end: int) -> Singles:
        """The vectors of some of this worker's chunks, as a search reads them."""
        vector_ND = self._exact(start, end)
        if self.stored != FP32:
            for first in range(0, len(vector_ND), CODED):
                some = slice(first, first + CODED)
                vector_ND[some] = self._as_stored(vector_ND[some])
        return vector_ND

    def _exact(self, start: int, end: int) -> Singles:
        vector_ND = self.vectors.block(start, end, self.model.dimensions)
        return unit(vector_ND) if self.model.similarity == "cosine" else vector_ND

    def _as_stored(self, vector_ND: Singles) -> Singles:
        if self.stored == INT8:
            assert self._ranges is not None, "known before the first search"
            return int8_values(int8_codes(vector_ND, self._ranges), self._ranges)
        return binary_values(binary_codes(vector_ND), vector_ND.shape[1])

    def _all_ranges(self) -> Ranges:
        """The ranges of the vectors of all workers."""
        count, dimensions = self._end - self._start, self.model.dimensions
        starts = range(0, count, CODED)
        blocks = (self._exact(first, min(first + CODED, count)) for first in starts)
        parts = distributed.gather(ranges_of(blocks, dimensions))
        return Ranges(
            np.min([own.low_D for own in parts], axis=0),
            np.max([own.high_D for own in parts], axis=0),
        )

    def scores_of(self, query_D: Singles, rows: Iterable[int]) -> list[float]:
        """The scores of documents, by their places in the collection, for the vector of a query;
        in a process group, of this worker's share."""
        score, offsets = self._scoring(query_D[None]), self.cuts.offsets
        return [
            float(score(self._vectors(int(offsets[row]), int(offsets[row + 1]))).max())
            for row in rows
        ]

    def run(self, found: Top, query_ids: Sequence[str]) -> dict[str, dict[str, float]]:
        """{query_id: {doc_id: score}} of the best documents."""
        return {
            query_id: {
                self.doc_id(row): score
                for row, score in zip(rows.tolist(), scores.tolist(), strict=True)
            }
            for query_id, rows, scores in zip(query_ids, *found, strict=True)
        }

    def chunks(self, found: Top, query_ids: Sequence[str]) -> dict[str, list[Read]]:
        """{query_id: its best chunks}, best first."""
        rows_QK = np.searchsorted(self.cuts.offsets, found.items, side="right") - 1
        return {
            query_id: [
                self._read_chunk(row, number)
                for row, number in zip(rows.tolist(), numbers.tolist(), strict=True)
            ]
            for query_id, rows, numbers in zip(query_ids, rows_QK, found.items, strict=True)
        }

    def _read_chunk(self, row: int, number: int) -> Read:
        cuts = self.cuts
        place = Place(self.doc_id(row), int(cuts.starts[number]), int(cuts.ends[number]))
        return Read(place, int(cuts.tokens[number]))

    def query_seconds(self, queries: Sequence[str], depth: int) -> list[float]:
        """The seconds that each of some queries takes alone: its vector and the search."""
        self.search(self.model.encode_queries(list(queries[:1])), depth=depth)  # opens the files
        seconds = []
        for query in queries[:TIMED]:
            start = time.perf_counter()
            self.search(self.model.encode_queries([query]), depth=depth)
            seconds.append(time.perf_counter() - start)
        return seconds


def unit(vector_ND: Singles) -> Singles:
    """The vectors at length 1; those of length 0 stay."""
    length_N1 = np.linalg.norm(vector_ND, axis=1, keepdims=True)
    return vector_ND / np.maximum(length_N1, np.float32(1e-12))


def memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _free_bytes() -> int:
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(root).free
