"""Readers and writers of the text files of a retrieval experiment: queries, qrels and runs.

A name that ends in `.gz` is gzip; every write appears at once (a rename) and is byte for byte the
same for the same content.
"""

import gzip
import io
import math
import os
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rank_core.data.collection import Qrels, Run
from rank_core.errors import BadInput

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")


def read_queries(path: Path) -> dict[str, str]:
    """{query_id: text} of a `query_id TAB text` file, in file order."""
    queries: dict[str, str] = {}
    for number, line in read_lines(path):
        fields = line.split("\t")
        if len(fields) != 2:
            raise BadInput(
                f"{path}:{number}: a line must be `query_id TAB text` (2 columns), "
                f"found {len(fields)}: {_shown(line)}"
            )
        query_id, text = fields[0].strip(), fields[1].strip()
        if not is_identifier(query_id):
            raise BadInput(
                f"{path}:{number}: a query_id must be one word without white space, "
                f"found {query_id!r}"
            )
        if not text:
            raise BadInput(f"{path}:{number}: a query must not be empty, found query {query_id!r}")
        if query_id in queries:
            raise BadInput(
                f"{path}:{number}: a query_id may occur once, found {query_id!r} a second time"
            )
        queries[query_id] = text
    return queries


def write_queries(path: Path, queries: Mapping[str, str]) -> None:
    """Write `query_id TAB text` lines; white space inside a text becomes single spaces."""
    _require_identifiers(path, "query_id", queries)
    write_lines(
        path, (f"{query_id}\t{' '.join(text.split())}" for query_id, text in queries.items())
    )


def read_qrels(path: Path) -> Qrels:
    """The judgments of a `query_id 0 doc_id relevance` file, in file order."""
    qrels: Qrels = {}
    for number, fields in _rows(path, "query_id 0 doc_id relevance"):
        query_id, _, doc_id, relevance = fields
        if not _WHOLE_NUMBER.fullmatch(relevance):
            raise BadInput(
                f"{path}:{number}: relevance must be a whole number, found {relevance!r}"
            )
        judged = qrels.setdefault(query_id, {})
        if doc_id in judged:
            raise BadInput(
                f"{path}:{number}: a document may be judged once for a query, "
                f"found {doc_id!r} a second time for query {query_id!r}"
            )
        judged[doc_id] = int(relevance)
    return qrels


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Write `query_id 0 doc_id relevance` lines, in the order of the mapping."""
    _require_identifiers(path, "query_id", qrels)
    for judged in qrels.values():
        _require_identifiers(path, "doc_id", judged)
    write_lines(
        path,
        (
            f"{query_id} 0 {doc_id} {relevance}"
            for query_id, judged in qrels.items()
            for doc_id, relevance in judged.items()
        ),
    )


def read_run(path: Path) -> Run:
    """The run of a `query_id Q0 doc_id rank score tag` file.

    The documents of a query are ordered by score, ties by doc_id; the file's ranks are not used.
    """
    scores: Run = {}
    for number, fields in _rows(path, "query_id Q0 doc_id rank score tag"):
        query_id, _, doc_id, _, score, _ = fields
        ranked = scores.setdefault(query_id, {})
        if doc_id in ranked:
            raise BadInput(
                f"{path}:{number}: a document may be ranked once for a query, "
                f"found {doc_id!r} a second time for query {query_id!r}"
            )
        ranked[doc_id] = _finite(score, f"{path}:{number}")
    return {query_id: in_rank_order(ranked) for query_id, ranked in scores.items()}


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run in rank order, with scores that read back to the same number.

    A query without documents has no line in this format and is absent when read again.
    """
    _require_identifiers(path, "tag", [tag])
    _require_identifiers(path, "query_id", run)
    write_lines(path, _run_lines(path, run, tag))


def _run_lines(path: Path, run: Run, tag: str) -> Iterator[str]:
    for query_id, scores in run.items():
        _require_identifiers(path, "doc_id", scores)
        for rank, (doc_id, score) in enumerate(in_rank_order(scores).items(), start=1):
            if not math.isfinite(score):
                raise BadInput(
                    f"{path}: a score must be finite, found {score} "
                    f"for query {query_id!r} and document {doc_id!r}"
                )
            yield f"{query_id} Q0 {doc_id} {rank} {float(score)!r} {tag}"


def in_rank_order(scores: Mapping[str, float]) -> dict[str, float]:
    """The documents of one query by score, best first; equal scores by doc_id."""
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))


def is_identifier(name: str) -> bool:
    """Whether `name` survives a file whose columns are split at white space."""
    return name.split() == [name]


def read_content(path: Path) -> bytes:
    """The bytes of a file, decompressed where its name ends in `.gz`."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist") from None
    except IsADirectoryError:
        raise BadInput(f"{path} must be a file, found a folder") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(f"{path} must be one whole gzip file: {error}") from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, line) of a UTF-8 file, from 1; lines of white space alone are left out."""
    content = read_content(path)
    try:
        text = content.decode("utf-8-sig")  # Windows editors write a byte order mark
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"{path}:{number}: text must be UTF-8, found byte 0x{content[error.start]:02x}"
        ) from None
    # Not splitlines(): that also splits at separators which may stand inside a text.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line.removesuffix("\r")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write UTF-8 lines so that `path` never holds half of them, gzip where it ends in `.gz`."""
    content = "".join(f"{line}\n" for line in lines).encode()
    if path.suffix == ".gz":
        packed = io.BytesIO()
        # No name and no time in the header: the same lines give the same bytes.
        with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as stream:
            stream.write(content)
        content = packed.getvalue()
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _rows(path: Path, columns: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of a file whose columns are separated by white space."""
    num_columns = len(columns.split())
    for number, line in read_lines(path):
        fields = line.split()
        if len(fields) != num_columns:
            raise BadInput(
                f"{path}:{number}: a line must be `{columns}` ({num_columns} columns), "
                f"found {len(fields)}: {_shown(line)}"
            )
        yield number, fields


def _finite(text: str, place: str) -> float:
    try:
        score = float(text)
    except ValueError:
        raise BadInput(f"{place}: a score must be a number, found {text!r}") from None
    if not math.isfinite(score):
        raise BadInput(f"{place}: a score must be finite, found {text!r}")
    return score


def _require_identifiers(path: Path, kind: str, names: Iterable[str]) -> None:
    for name in names:
        if not is_identifier(name):
            raise BadInput(f"{path}: a {kind} must be one word without white space, found {name!r}")


def _shown(line: str) -> str:
    return repr(line if len(line) <= 80 else line[:77] + "...")
