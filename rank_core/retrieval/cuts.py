"""Where documents are cut into the texts that an embedding model reads.

Windows are cut at token offsets in the text, so that any other program that embeds the same texts
gets the same vectors. With `chunking.snap` they end where a sentence or a paragraph ends
(semantic-text-splitter); with `chunking.title` each begins with its document's title, whose tokens
count as part of the window.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.cache import cached_directory
from rank_core.chunking.chunks import chunk_spans
from rank_core.chunking.token_store import tokenizer_hash
from rank_core.data.store import MappedTable, TableWriter, batches
from rank_core.errors import not_installed
from rank_core.progress import reported
from rank_core.retrieval.vectors import KEY, Text
from rank_core.settings.config import Chunking

VERSION = 1
STARTS, ENDS, TOKENS, TITLES, KEYS = "starts", "ends", "tokens", "titles", "keys"


class Cut(NamedTuple):
    """A chunk of a document: the characters [start, end) of its text, and its tokens."""

    start: int
    end: int
    tokens: int  # with those of the title before it


class Cuts(NamedTuple):
    """The chunks of a document, and the characters [0, title) of its text that are the title before
    each of them."""

    title: int
    chunks: list[Cut]


class WholeDocument(NamedTuple):
    """A cutting in which a document is one chunk, of which a model reads the first `limit`
    tokens."""

    limit: int


Cutting = Chunking | WholeDocument


def step_of(window: int, overlap: float) -> int:
    """The tokens between the starts of neighbouring windows that share the fraction `overlap` of
    their tokens.

    Examples:
        >>> step_of(256, 0.5), step_of(256, 0.125), step_of(75, 0.25)
        (128, 224, 57)
    """
    return max(1, window - overlap_tokens(window, overlap))


def overlap_tokens(window: int, overlap: float) -> int:
    """The tokens of a window that the next one repeats, rounded down.

    Examples:
        >>> overlap_tokens(256, 0.25), overlap_tokens(75, 0.25), overlap_tokens(100, 0.29)
        (64, 18, 29)
    """
    return int(round(overlap * window, 9))  # .29 x 100 is 28.999999999999996


def chunk_text(text: str, title: int, start: int, end: int, cutting: Cutting) -> Text:
    """What a model embeds of a document's text for a chunk of it."""
    if isinstance(cutting, WholeDocument):  # the model cuts it
        return Text("", text)
    return Text(text[:title], text[start:end])


def cut_texts(
    texts: list[str], titles: list[int], tokenizer: Any, cutting: Cutting
) -> Iterator[Cuts]:
    """The cuts of texts. The first `titles` characters of a text are its title; 0: it has none, or
    it is read as part of the text."""
    found = tokenizer(
        texts,
        add_special_tokens=False,
        truncation=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )["offset_mapping"]
    for text, title, offsets in zip(texts, titles, found, strict=True):
        yield _cuts(text, title, np.array(offsets, np.int64).reshape(-1, 2), tokenizer, cutting)


def _cuts(
    text: str, title: int, offset_T2: NDArray[np.int64], tokenizer: Any, how: Cutting
) -> Cuts:
    if isinstance(how, WholeDocument):
        read = min(len(offset_T2), how.limit)
        end = int(offset_T2[read, 0]) if read < len(offset_T2) else len(text)
        return Cuts(0, [_stripped(text, 0, end, read)])
    # A title takes at most half of a window; the rest of it is not read.
    title_tokens = int((offset_T2[:, 0] < title).sum())
    read = min(title_tokens, how.window // 2)
    start_T, window = offset_T2[title_tokens:, 0], how.window - read
    if how.snap:
        chunks = [*_snapped(text, title, start_T, tokenizer, window, how.overlap)]
    else:
        # Between two tokens may be letters that the tokenizer drops: they stay with the first.
        bound_T = [title, *start_T[1:].tolist(), len(text)]
        spans = chunk_spans(len(start_T), window, step_of(window, how.overlap))
        chunks = [
            _stripped(text, bound_T[span.start], bound_T[span.end], span.end - span.start)
            for span in spans
        ]
    if read < title_tokens:
        title = len(text[: offset_T2[read, 0]].rstrip())
    return Cuts(title, [chunk._replace(tokens=chunk.tokens + read) for chunk in chunks])


def _stripped(text: str, start: int, end: int, tokens: int) -> Cut:
    """A chunk without the white space around it."""
    if not tokens:
        return Cut(0, 0, 0)
    chunk = text[start:end]
    return Cut(
        start + len(chunk) - len(chunk.lstrip()), end - len(chunk) + len(chunk.rstrip()), tokens
    )


def _snapped(
    text: str, start: int, start_T: NDArray[np.int64], tokenizer: Any, window: int, overlap: float
) -> Iterator[Cut]:
    """Chunks of at most `window` tokens that end with a sentence where one fits."""
    splitter = _splitter(tokenizer, window, overlap_tokens(window, overlap))
    pieces = splitter.chunk_indices(text[start:])
    if not pieces or not len(start_T):
        yield Cut(0, 0, 0)
        return
    for place, piece in pieces:
        first, last = start + place, start + place + len(piece)
        # Counted in the document: a word that a cut divides may be other tokens alone.
        inside = np.searchsorted(start_T, (first, last))
        yield Cut(first, last, int(inside[1] - inside[0]))


@lru_cache(maxsize=256)
def _splitter(tokenizer: Any, window: int, overlap: int) -> Any:
    try:
        from semantic_text_splitter import TextSplitter
    except ModuleNotFoundError:
        raise not_installed("semantic-text-splitter, which chunking.snap needs,", "st") from None
    from tokenizers import Tokenizer

    counting = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    counting.no_truncation()
    counting.no_padding()
    return TextSplitter.from_huggingface_tokenizer(counting, window, overlap=overlap)


class CutTable:
    """The chunks of all documents of a collection, in its order: memory-mapped columns with an
    entry per chunk."""

    def __init__(self, folder: Path, cutting: Cutting) -> None:
        self.cutting = cutting
        table = MappedTable(folder)
        columns = {name: table.column(name) for name in (STARTS, ENDS, TOKENS, TITLES)}
        self.starts, self.ends, self.tokens, self.titles = (
            columns[name].values for name in (STARTS, ENDS, TOKENS, TITLES)
        )
        self.keys = table.column(KEYS).values.view(KEY)
        self.offsets: NDArray[np.int64] = columns[STARTS].offsets

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, number: int, document: str) -> Text:
        """The text of a chunk of `document`."""
        row = int(np.searchsorted(self.offsets, number, side="right")) - 1
        title, start, end = (
            int(value) for value in (self.titles[row], self.starts[number], self.ends[number])
        )
        return chunk_text(document, title, start, end, self.cutting)

    def median_characters(self) -> int:
        """The median length of a chunk; the last ones of documents, which may be short, count only
        where there are no others."""
        lengths = np.asarray(self.ends) - np.asarray(self.starts)
        inner = np.ones(len(lengths), bool)
        inner[self.offsets[1:] - 1] = False
        return int(np.median(lengths[inner] if inner.any() else lengths))

    @property
    def num_documents(self) -> int:
        """The number of documents, each of which has a chunk."""
        return len(self.offsets) - 1


def cut_documents(
    documents: Mapping[str, str],
    titles: Mapping[str, int],
    tokenizer: Any,
    cutting: Cutting,
    content_hash: str,
) -> CutTable:
    """The chunks of all documents, cut once per machine. `content_hash` names texts and titles;
    `titles` has the characters of the title with which a text starts."""
    how = [*cutting] if isinstance(cutting, WholeDocument) else _shaping(cutting)
    recipe = [VERSION, content_hash, tokenizer_hash(tokenizer), *how]
    key = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]
    build = _writer(documents, titles, tokenizer, cutting)
    return CutTable(cached_directory("chunks", key, build), cutting)


def _shaping(chunking: Chunking) -> list[Any]:
    return [chunking.window, chunking.overlap, chunking.snap, chunking.title]


def _writer(
    documents: Mapping[str, str], titles: Mapping[str, int], tokenizer: Any, cutting: Cutting
) -> Callable[[Path], None]:
    with_titles = isinstance(cutting, Chunking) and cutting.title

    def rows(batch: list[tuple[str, str]]) -> dict[str, list[NDArray[Any]]]:
        lengths = [titles.get(doc_id, 0) if with_titles else 0 for doc_id, _ in batch]
        texts = [text for _, text in batch]
        parts = cut_texts(texts, lengths, tokenizer, cutting)  # ends of sentences take minutes
        found = [*reported(parts, "chunks: documents of this batch", total=len(texts))]
        chunks = [np.array(own.chunks, np.int32) for own in found]
        columns = {
            name: [np.ascontiguousarray(row[:, place]) for row in chunks]
            for place, name in enumerate((STARTS, ENDS, TOKENS))
        }
        columns[TITLES] = [np.array([own.title], np.int32) for own in found]
        keys = [
            [
                chunk_text(text, own.title, chunk.start, chunk.end, cutting).key
                for chunk in own.chunks
            ]
            for text, own in zip(texts, found, strict=True)
        ]
        return columns | {KEYS: [np.frombuffer(b"".join(own), np.uint8) for own in keys]}

    def build(folder: Path) -> None:
        pairs: Iterable[tuple[str, str]] = documents.items()
        columns: dict[str, Any] = dict.fromkeys((STARTS, ENDS, TOKENS, TITLES), np.int32)
        with TableWriter(folder, **columns, **{KEYS: np.uint8}) as table:
            for batch in batches(reported(pairs, "chunks: documents", total=len(documents))):
                table.append([doc_id for doc_id, _ in batch], **rows(batch))

    return build
