"""Bounds on what a file unpacks to: bytes are counted while they are decompressed, the rows of
Parquet are read in its footer, before any of them is, and what a tokenizer makes of a text is
bounded by its steps, before it reads one."""

import base64
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rank_core.errors import BadInput

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

SMALL = 1 << 26
"""Bytes that any file may unpack to."""
TIMES = 200
"""What a larger one may unpack to, in bytes for each of its own. Texts reach 10, runs 20."""
SMALL_ROWS, ROWS_PER_BYTE = 1_000_000, 100
"""The same for rows of Parquet; tables of equal values reach 20 for each byte."""
ROW_BYTES = 64
"""The memory of a row of values."""
MOST_LINE = 1 << 28
"""Bytes of a line of text."""
MOST_GROWTH = 256
"""Characters that the steps of a tokenizer may make of one. Those of SentencePiece make 18 of one
(U+FDFA), and the usual replacements 2."""
_most: ContextVar[int | None] = ContextVar("most", default=None)


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """A block in which no file may unpack to more than `size` bytes: those of a stranger's bundle,
    whose files are packed twice."""
    token = _most.set(size)
    try:
        yield
    finally:
        _most.reset(token)


def _limit(usual: int) -> int:
    most = _most.get()
    return usual if most is None else min(usual, most)


class _Counted(io.RawIOBase):
    """A stream that counts what it gives."""

    def __init__(self, stream: IO[bytes], path: Path, most: int) -> None:
        self._stream, self._path, self._most, self._given = stream, path, most, 0

    def readable(self) -> bool:
        """True, as of any stream that is read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer; raises `BadInput` for more than the limit in all."""
        number: int = self._stream.readinto(buffer)  # type: ignore[attr-defined]
        self._given += number
        if self._given > self._most:
            raise BadInput(
                f"{self._path} unpacks to more than {self._most:,} bytes, {TIMES} times its own "
                "size or the limit of its bundle: it is damaged, or made to do harm; unpack it "
                "yourself if you know it"
            )
        return number


def counted(stream: IO[bytes], path: Path) -> IO[bytes]:
    """The decompressed content of a file, within its bounds."""
    most = _limit(SMALL + TIMES * path.stat().st_size)
    return io.BufferedReader(_Counted(stream, path, most), 1 << 16)


def lines_of(stream: IO[bytes], path: Path) -> Iterator[bytes]:
    """The lines of a stream, none longer than `MOST_LINE`."""
    number, most = 0, _limit(MOST_LINE)
    while line := stream.readline(most + 1):
        number += 1
        if len(line) > most:
            raise BadInput(
                f"{path}:{number}: a line must have at most {most:,} bytes: write a record in each"
            )
        yield line


def check_parquet(file: "ParquetFile", place: object, size: int) -> "ParquetFile":
    """The same Parquet file of `size` bytes; raises `BadInput` where its footer counts more rows or
    bytes than that many can hold."""
    metadata = file.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    unpacked = sum(group.total_byte_size for group in groups)
    most_rows = _limit((SMALL_ROWS + ROWS_PER_BYTE * size) * ROW_BYTES) // ROW_BYTES
    rows = max(metadata.num_rows, sum(group.num_rows for group in groups))
    if rows > most_rows or unpacked > _limit(SMALL + TIMES * size):
        raise BadInput(
            f"{place} unpacks to {rows:,} rows and {unpacked:,} bytes from {size:,} bytes: it is "
            "damaged, or made to do harm"
        )
    return file


def check_growth(path: Path, tokenizer: Mapping[str, Any]) -> None:
    """Raises `BadInput` for a `tokenizer.json` whose steps can make more than `MOST_GROWTH`
    characters of one: sixty replacements of one by two make 10^18 of it."""
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    growth = math.prod(_growth(step) for part in parts for step in _steps(tokenizer.get(part)))
    if growth > MOST_GROWTH:
        raise BadInput(
            f"{path} can make {growth:.3g} characters or tokens of one, more than {MOST_GROWTH}: "
            "it is damaged, or made to do harm"
        )


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """The steps of a part of a tokenizer, those of its sequences too."""
    open_parts = [part]
    while open_parts:
        step = open_parts.pop()
        if isinstance(step, list):
            open_parts += step
        elif isinstance(step, dict):
            yield step
            open_parts += [inner for inner in step.values() if isinstance(inner, list)]


def _growth(step: dict[str, Any]) -> int:
    """How many characters a step can make of one, where another such step makes more of them again;
    1 for what grows once only, as the forms of Unicode, and for what tokenizers refuses."""
    kind = step.get("type")
    if kind == "Replace":
        pattern, content = step.get("pattern"), len(str(step.get("content", "")))
        literal = pattern.get("String") if isinstance(pattern, dict) else None
        # A regular expression may match between any two characters.
        return -(-content // len(literal)) or 1 if literal else 1 + content
    if kind == "Prepend":
        return 1 + len(str(step.get("prepend", "")))
    if kind == "ByteLevel":
        return 2
    if kind == "Precompiled":
        return _longest(str(step.get("precompiled_charsmap", "")))
    if kind == "TemplateProcessing":
        return max(_repeats(step.get("single")), _repeats(step.get("pair")), 1)
    return 1


def _longest(charsmap: str) -> int:
    """The most characters that a map of SentencePiece has for one: behind its index, whose size the
    first four bytes are, stand the texts with a zero after each."""
    try:
        content = base64.b64decode(charsmap)
    except ValueError:
        return 1
    texts = content[4 + int.from_bytes(content[:4], "little") :].split(b"\0")
    return max(1, *(len(text.decode(errors="replace")) for text in texts))


def _repeats(pieces: Any) -> int:
    """How often a template has the same text."""
    listed = [piece for piece in pieces if isinstance(piece, dict)] if pieces else []
    named = [piece["Sequence"] for piece in listed if isinstance(piece.get("Sequence"), dict)]
    return max(Counter(str(one.get("id")) for one in named).values(), default=1)
