"""Readers and writers of queries, qrels and runs as text files.

Files are UTF-8, gzipped if the name ends in `.gz`. Errors give file and line. Writes are atomic,
and equal content gives equal bytes.
"""

import codecs
import gzip
import io
import itertools
import json
import math
import os
import re
import shlex
import stat
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from numbers import Integral, Real
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from rank_core.arguments import path as path_of
from rank_core.arguments import takes
from rank_core.bounds import counted, lines_of
from rank_core.errors import BadInput, shown
from rank_core.files import atomic_write, unreadable
from rank_core.notes import say
from rank_core.records import Qrels, Run

MAX_NAME = 1000  # characters of an id; the longest ones are URLs
_GZIP = b"\x1f\x8b"
_PACKED = {
    b"\xfd7zXZ\x00": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"BZh91AY&SY": "compressed by bzip2",
    b"PK\x03\x04": "a zip file",
    b"\x04\x22\x4d\x18": "compressed by lz4",
    b"ARROW1": "a Feather file of Arrow",
    b"\x80\x04\x95": "a pickle of Python",
    b"\x80\x05\x95": "a pickle of Python",
    b"\xff\xfe": "in UTF-16",
    b"\xfe\xff": "in UTF-16",
}
"""{first bytes: what a file is that is not a text in UTF-8}."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ufeff]")  # and the invisible byte order mark
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_GRADE = re.compile(r"([+-]?[0-9]{1,9})(\.0*)?")
MAX_GRADE = 1_000_000  # measures count the documents of each grade up to the highest
EXACT = 1 << 53  # whole numbers below it are exact in a float
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HEADER = re.compile(r"(_?id|q_?id|query[_-]?id|topic[_-]?id)\t(text|query|title)", re.IGNORECASE)
_QRELS_HEADER = re.compile(
    r"(query[_-]id|qid) (corpus-id|doc_?id|docno) (relevance|score|label|rel)"
)

_TOPICS = (
    "; topics of TREC are marked up: ir_datasets has most of them (ir:ID), others are written as "
    "such lines"
)
_PRELS = (
    "; five columns are prels, judgments with a method and a probability of being sampled: cut "
    "them to query_id 0 doc_id relevance"
)
_NO_RANK = ("", "-", "_", "na", "nan", "none", "null", "<na>")  # in any case
_ITERATIONS = ("0", "q0", "iter", "-")  # what the second column has where it says nothing

_RankedLine = tuple[str, str, float, float, int]  # query_id, doc_id, rank, score, line number


def query_lines(path: Path, value: str = "text") -> Iterator[tuple[str, str, str]]:
    """(file and line, query_id, text) of a `query_id TAB text` file, or with another `value`."""
    for number, line in read_lines(path):
        fields = line.split("\t")
        if len(fields) != 2 or _HEADER.fullmatch(line.strip()):
            markup = line.lstrip().startswith("<")
            raise BadInput(
                f"{path}:{number}: a line must be `query_id TAB {value}`, without column names, "
                f"found {shown(line)}{_TOPICS if markup else ''}"
            )
        yield f"{path}:{number}", fields[0].strip(), fields[1].strip()


def gathered_queries(rows: Iterable[tuple[str, object, str]]) -> dict[str, str]:
    """{query_id: text} of (place, query_id, text); raises `BadInput` for empty ones and
    duplicates."""
    queries: dict[str, str] = {}
    for place, given, text in rows:
        query_id = identifier(place, "query_id", given)
        if not text.strip():
            raise BadInput(f"{place}: query {query_id!r} is empty")
        if query_id in queries:
            raise BadInput(f"{place}: duplicate query_id {query_id!r}")
        queries[query_id] = text
    return queries


def write_queries(path: Path, queries: Mapping[str, str]) -> None:
    """Writes `query_id TAB text` lines, with white space in texts collapsed."""
    _require_identifiers(path, "query_id", queries)
    write_lines(path, (f"{name}\t{' '.join(text.split())}" for name, text in queries.items()))


@takes(path=path_of)
def read_qrels(path: str | Path) -> Qrels:
    """The judgments of a `query_id 0 doc_id relevance` file, in file order. Raises `BadInput` with
    file and line for grades that are not whole numbers and documents judged twice.

    Examples:
        >>> from pathlib import Path
        >>> import ranksweep
        >>> _ = Path("my.qrels").write_text("q1 0 d2 1")
        >>> ranksweep.read_qrels("my.qrels")
        {'q1': {'d2': 1}}
    """
    return gathered_qrels(qrels_lines(Path(path)))


def qrels_lines(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """(file and line, query_id, doc_id, relevance) of a `query_id 0 doc_id relevance` file, or of
    three columns separated by tabs, which may have names (BEIR's)."""
    _, first = next(record_lines(path), (0, ""))
    beir = first.count("\t") == 2
    columns = "query_id doc_id relevance" if beir else "query_id 0 doc_id relevance"
    for number, fields in _rows(path, columns):
        if not (beir and _QRELS_HEADER.fullmatch(" ".join(fields))):
            of = "" if beir or fields[1].lower() in _ITERATIONS else f", second column {fields[1]}"
            yield f"{path}:{number}{of}", fields[0], fields[-2], fields[-1]


def gathered_qrels(rows: Iterable[tuple[str, object, object, object]]) -> Qrels:
    """The judgments of (place, query_id, doc_id, relevance) of a file, a data frame or a
    dictionary. Raises `BadInput` with the place for ids and grades that are none, and for documents
    judged twice."""
    qrels: Qrels = {}
    for place, query, document, relevance in rows:
        query_id = identifier(place, "query_id", query)
        doc_id = identifier(place, "doc_id", document)
        judged = qrels.setdefault(query_id, {})
        if doc_id in judged:
            raise BadInput(
                f"{place}: query {query_id!r} judges document {doc_id!r} twice; of several "
                "subtopics or judges, keep one grade for each document"
            )
        judged[doc_id] = grade_of(place, relevance)
    return qrels


def gathered_run(rows: Iterable[tuple[str, object, object, object, float]]) -> "RankedFile":
    """The run of (place, query_id, doc_id, score, rank) of a data frame or a dictionary, ordered as
    in `read_run`; equal ranks are in no order. Raises `BadInput` with the place."""
    ranked: dict[str, dict[str, tuple[float, float]]] = {}
    for place, query, document, score, rank in rows:
        query_id = identifier(place, "query_id", query)
        doc_id = identifier(place, "doc_id", document)
        of_query = ranked.setdefault(query_id, {})
        if doc_id in of_query:
            raise BadInput(f"{place}: query {query_id!r} ranks document {doc_id!r} twice")
        of_query[doc_id] = rank, score_of(place, score)
    against = [query_id for query_id, scores in ranked.items() if contradicts(scores.values())]
    return RankedFile({query_id: _in_order(scores) for query_id, scores in ranked.items()}, against)


def dictionary_rows(
    table: Mapping[Any, Any], where: str, of: str
) -> Iterator[tuple[str, Any, Any, Any]]:
    """(place, query_id, doc_id, value) of {query_id: {doc_id: value}}; `of` says what the values
    are."""
    for query_id, inner in table.items():
        if not isinstance(inner, Mapping):
            raise BadInput(
                f"{where}, {shown(query_id)}: {of} must be {{query_id: {{doc_id: number}}}}, found "
                f"{type(inner).__name__}"
            )
        for doc_id, value in inner.items():
            yield f"{where}, query {query_id!r}, document {doc_id!r}", query_id, doc_id, value


def identifier(place: str, kind: str, value: object) -> str:
    """An id as text: 301 for 301 and for the 301.0 that pandas makes of a column with a hole.
    Raises `BadInput` for what is not an id."""
    if isinstance(value, str):
        require_identifier(place, kind, value)
        return unicode_text(place, kind, value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
        if number.is_integer() and abs(number) < EXACT:
            return str(int(number))
        if number.is_integer():
            raise BadInput(
                f"{place}: {kind} {number!r} is a float too large to be exact; ids must be texts "
                "or whole numbers"
            )
    raise BadInput(
        f"{place}: {kind} must be a string (an id, a whole number), found {described(value)}"
    )


def unicode_text(place: str, kind: str, value: str) -> str:
    """The text; raises `BadInput` for one with half of a surrogate pair, which no file can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(
            f"{place}: {kind} must be valid Unicode, without half of a surrogate pair, found "
            f"{shown(value)}"
        ) from None
    return value


def rank_of(place: str, value: object) -> float:
    """A rank as a number, which only breaks ties; 0 where a file has none. Raises `BadInput` for a
    text that is no rank: the columns may be others."""
    if value is None or (isinstance(value, str) and value.strip().lower() in _NO_RANK):
        return 0
    if isinstance(value, Real) and math.isnan(value):
        return 0
    return score_of(place, value, "rank")


def grade_of(place: str, value: object, name: str = "relevance", hint: str = "") -> int:
    """A grade as a whole number. Raises `BadInput` for anything else; `hint` says what to do about
    a fraction or a word."""
    grade: int | None = None
    if isinstance(value, str) and (match := _GRADE.fullmatch(value.strip())):
        grade = int(match[1])
    elif isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        number = value if isinstance(value, Integral) else float(value)
        if isinstance(number, Integral) or number.is_integer():
            grade = int(number)
    if grade is None:
        helps = isinstance(value, Real | str) and value == value and not isinstance(value, bool)
        raise BadInput(
            f"{place}: {name} must be a whole number, found {described(value)}{hint * helps}"
        )
    if abs(grade) > MAX_GRADE:
        raise BadInput(
            f"{place}: {name} must be between {-MAX_GRADE:,} and {MAX_GRADE:,}, found {grade:,}"
        )
    return grade


def score_of(place: str, value: object, name: str = "score") -> float:
    """A score as a finite number. Raises `BadInput` for anything else."""
    score = math.nan
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        # float() would also accept 1_000 and the digits of other scripts, unlike other tools.
        score = float(value)
    elif isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        with suppress(OverflowError):
            score = float(value)
    if not math.isfinite(score):
        raise BadInput(
            f"{place}: {name} must be a finite number, found {described(value)}{point_hint(value)}"
        )
    return score


def point_hint(value: object) -> str:
    """What to do with a text that is a number with a decimal comma; "" for anything else."""
    comma = isinstance(value, str) and _NUMBER.fullmatch(value.strip().replace(",", ".", 1))
    return "; write decimals with a point" if comma and "," in str(value) else ""


def described(value: object) -> str:
    """A value of a file or of Python for a message; nested values may be too deep to be printed."""
    if isinstance(value, dict | list | tuple):
        return type(value).__name__
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return shown(value.item() if isinstance(value, np.generic) else value)


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Writes `query_id 0 doc_id relevance` lines, in the order of the mapping."""
    _require_identifiers(path, "query_id", qrels)
    for judged in qrels.values():
        _require_identifiers(path, "doc_id", judged)
    rows = ((query_id, *grade) for query_id, judged in qrels.items() for grade in judged.items())
    write_lines(path, (f"{query_id} 0 {doc_id} {grade}" for query_id, doc_id, grade in rows))


@takes(path=path_of)
def read_run(path: str | Path) -> Run:
    """The run of a `query_id Q0 doc_id rank score tag` file.

    A query's documents are ordered by score, as in all evaluation tools; ranks that contradict the
    scores or repeat are accepted. Ties, often due to rounding, are broken by rank, then by doc_id.
    Raises `BadInput` with file and line.

    Examples:
        >>> from pathlib import Path
        >>> import ranksweep
        >>> _ = Path("my.run").write_text("q1 Q0 d2 1 7.5 tag")
        >>> ranksweep.read_run("my.run")
        {'q1': {'d2': 7.5}}
    """
    return dict(iter_run(Path(path)))


@dataclass(frozen=True)
class RankedFile:
    """A run, and the queries whose ranks in the file contradict its scores."""

    run: Run
    contradicted: Collection[str] = ()


def read_ranked(path: Path) -> RankedFile:
    """As `read_run`, with a look at the ranks, which it does not use."""
    run: Run = {}
    contradicted: dict[str, bool] = {}
    for query_id, lines in _of_queries(path):
        run[query_id] = _ordered(path, lines)
        contradicted[query_id] = contradicts((rank, score) for _, _, rank, score, _ in lines)
    return RankedFile(run, [query_id for query_id, against in contradicted.items() if against])


def order_notes(file: RankedFile) -> Iterator[str]:
    """The notes on a run whose scores say another order than its ranks, or none, in most
    queries."""
    several = {query_id: scores for query_id, scores in file.run.items() if len(scores) > 1}
    if is_contradicted(file):
        yield CONTRADICTED
    if 2 * sum(len({*scores.values()}) == 1 for scores in several.values()) > len(several):
        yield (
            "all scores of a query are equal in most queries; documents are ordered by their ids, "
            "not by their ranks."
        )


def noted(where: str, file: RankedFile) -> Run:
    """The run of a table or a frame; says where its ranks and scores contradict each other."""
    if is_contradicted(file):
        say(f"{where}: {CONTRADICTED}")
    return file.run


def is_contradicted(file: RankedFile) -> bool:
    """True where scores and ranks are in two orders in most queries of several documents."""
    several = sum(len(scores) > 1 for scores in file.run.values())
    return 2 * len(file.contradicted) > several


CONTRADICTED = (
    "ranks and scores contradict each other in most queries; documents are ordered by descending "
    "score (negate scores of which smaller ones are better, such as distances)."
)


def contradicts(ranked: Iterable[tuple[float, float]]) -> bool:
    """Whether the (rank, score) of a query's documents are in two orders: a third of the neighbours
    by rank or more have a higher score behind a lower one. Equal ranks are in no order."""
    pairs = sorted(ranked)
    neighbours = [(a, b) for (r, a), (s, b) in itertools.pairwise(pairs) if r != s and a != b]
    return 3 * sum(a < b for a, b in neighbours) >= max(len(neighbours), 1)


def iter_run(path: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """(query_id, {doc_id: score}) of a run file, ordered as in `read_run`, with one query in memory
    at a time. If a query's lines are not adjacent, all queries are yielded again from there on; the
    last one counts. A note says where ranks and scores contradict each other."""
    contradicted: dict[str, bool] = {}  # of queries with several documents
    for query_id, lines in _of_queries(path):
        if len(lines) > 1:
            ranked = ((rank, score) for _, _, rank, score, _ in lines)
            contradicted[query_id] = contradicts(ranked)
        yield query_id, _ordered(path, lines)
    if 2 * sum(contradicted.values()) > len(contradicted):
        say(f"{path}: {CONTRADICTED}")


def is_run(path: Path) -> bool:
    """True if the first line of a file is that of a run."""
    try:
        _, line = next(record_lines(path), (0, ""))
    except BadInput:
        return False
    return is_ranked(line.split())


def is_ranked(fields: Sequence[str]) -> bool:
    """True for the fields of a line of a run, whose tag may have several words. Neither the second
    column nor the rank is read by other tools, so both may be anything that is no other column."""
    if len(fields) < 6 or not _NUMBER.fullmatch(fields[4]):
        return False
    has_rank = bool(_NUMBER.fullmatch(fields[3])) or fields[3].lower() in _NO_RANK
    return has_rank and (len(fields) == 6 or fields[1].lower() in _ITERATIONS)


def record_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, line) of a TREC file of judgments or of a run, without the comments that
    trec_eval 10 has: lines that begin with # and are none of a record."""
    for number, line in read_lines(path):
        if not (line.lstrip().startswith("#") and _is_comment(line.split())):
            yield number, line


def _is_comment(fields: Sequence[str]) -> bool:
    judgment = len(fields) in (3, 4) and _GRADE.fullmatch(fields[-1])
    return not (judgment or is_ranked(fields)) or fields[0] == "#"


def _of_queries(path: Path) -> Iterator[tuple[str, list[_RankedLine]]]:
    """(query_id, its lines), again from the first one if a query's lines are not adjacent."""
    begun: set[str] = set()
    for query_id, lines in groupby(_ranked_lines(path), key=itemgetter(0)):
        if query_id in begun:
            break
        begun.add(query_id)
        yield query_id, list(lines)
    else:
        return
    of_query: dict[str, list[_RankedLine]] = {}
    for line in _ranked_lines(path):
        of_query.setdefault(line[0], []).append(line)
    yield from of_query.items()


def _ordered(path: Path, lines: Iterable[_RankedLine]) -> dict[str, float]:
    """The documents of a query, best first."""
    ranked: dict[str, tuple[float, float]] = {}
    for query_id, doc_id, rank, score, number in lines:
        if doc_id in ranked:
            raise BadInput(f"{path}:{number}: query {query_id!r} ranks document {doc_id!r} twice")
        ranked[doc_id] = rank, score
    return _in_order(ranked)


def _in_order(ranked: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """{doc_id: score} of {doc_id: (rank, score)}: by score, then by rank, then by doc_id."""
    order = sorted(ranked.items(), key=lambda item: (-item[1][1], item[1][0], item[0]))
    return {doc_id: score for doc_id, (_, score) in order}


def _ranked_lines(path: Path) -> Iterator[_RankedLine]:
    for number, fields in _rows(path, "query_id Q0 doc_id rank score tag"):
        query_id, _, doc_id, rank, text, *_ = fields
        # float() would also accept 1_000 and the digits of other scripts, unlike other tools.
        score = float(text) if _NUMBER.fullmatch(text) else math.nan
        place = int(rank) if _WHOLE_NUMBER.fullmatch(rank) else rank_of(f"{path}:{number}", rank)
        if not math.isfinite(score):
            raise BadInput(
                f"{path}:{number}: a score must be a finite number, found "
                f"{shown(text)}{point_hint(text)}"
            )
        yield query_id, doc_id, place, score, number


def write_run(path: Path, run: Run, tag: str) -> None:
    """Writes a run in rank order, with scores that are read back exactly.

    Tied documents keep their order through the ranks. A query without documents has no line in this
    format and is missing when read back.
    """
    _require_identifiers(path, "tag", [tag])
    _require_identifiers(path, "query_id", run)
    lines = []
    for query_id, scores in run.items():
        _require_identifiers(path, "doc_id", scores)
        for rank, (doc_id, score) in enumerate(in_rank_order(scores).items(), start=1):
            if not math.isfinite(score):
                raise BadInput(f"{path}: a score must be finite, found {score} of {doc_id!r}")
            lines.append(f"{query_id} Q0 {doc_id} {rank} {float(score)!r} {tag}")
    write_lines(path, lines)


def in_rank_order(scores: Mapping[str, float]) -> dict[str, float]:
    """The documents of a query by descending score; ties keep their order."""
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def _rows(path: Path, columns: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of a file whose columns are separated by white space."""
    names = columns.split()
    places = [(i, names[i]) for i in (names.index("query_id"), names.index("doc_id"))]
    for number, line in record_lines(path):
        fields = line.split()
        if len(fields) > 1 and fields[1].startswith("qid:"):
            raise BadInput(
                f"{path}:{number}: a line must be `{columns}`, found one of LETOR, which names "
                "documents in a comment at most: write the judgments anew"
            )
        if len(fields) != len(names) and not (names[-1] == "tag" and is_ranked(fields)):
            prels = _PRELS if len(fields) == 5 and names[-1] == "relevance" else ""
            raise BadInput(
                f"{path}:{number}: a line must be `{columns}`, found {shown(line)}{prels}"
            )
        if len(line) > MAX_NAME or not line.isprintable():  # otherwise all ids are valid
            for i, kind in places:
                require_identifier(f"{path}:{number}", kind, fields[i])
        yield number, fields


def _require_identifiers(path: Path, kind: str, names: Iterable[str]) -> None:
    for name in names:
        require_identifier(str(path), kind, name)


def has_control(name: str) -> bool:
    """Whether a name has control characters, or the invisible byte order mark."""
    return bool(_CONTROL.search(name))


def require_identifier(place: str, kind: str, name: str) -> None:
    """Raises `BadInput` for an invalid id; `place` is a file, or a file and line."""
    if name.split() != [name] or len(name) > MAX_NAME or has_control(name):
        file = re.split(r":\d+|, ", place)[0]
        by_text = kind == "query_id" and len(name.split()) > 1 and os.path.isfile(file)
        to = f"{shlex.quote(file)} --queries QUERIES --to NEW.trec"
        raise BadInput(
            f"{place}: a {kind} must be one word without white space or control characters, of at "
            f"most {MAX_NAME} characters, found {shown(name)}"
            + (
                f"; of texts of queries `ranksweep convert {to}` makes ids (of a run: NEW.run)"
                if by_text
                else ""
            )
        )


@contextmanager
def open_content(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file as a stream, decompressed if its name ends in `.gz`. Raises `BadInput`
    for a pipe: files are read more than once, and the second reading would begin in its middle."""
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise BadInput(f"{path} is a pipe or a device; write its content into a file first")
        with path.open("rb") as file:
            if path.suffix != ".gz":
                yield file
                return
            if not path.stat().st_size:
                raise EOFError("it is empty")
            with gzip.open(file) as stream:
                yield counted(cast(IO[bytes], stream), path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(f"{path} is not a complete gzip file: {error}") from None
    except OSError as error:
        raise BadInput(f"{path} {unreadable(path, error)}") from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number from 1, line) of a UTF-8 file, without blank lines."""
    return ((number, line) for number, line in content_lines(path) if line.strip())


def content_lines(path: Path, *, returns: bool = False) -> Iterator[tuple[int, str]]:
    """(line number from 1, line) of a UTF-8 file; with `returns` a line may have CR inside, as
    quoted texts of CSV have."""
    with open_content(path) as stream:
        # str.splitlines() would also split at separators within a text.
        for number, content in enumerate(lines_of(stream, path), start=1):
            if number == 1:
                if content.startswith(_GZIP):
                    raise BadInput(f"{path} is gzipped; the name of a gzip file must end in .gz")
                for begins, what in _PACKED.items():
                    if content.startswith(begins):
                        raise BadInput(
                            f"{path} is {what}; it must be text in UTF-8, or gzipped (.gz)"
                        )
                content = content.removeprefix(codecs.BOM_UTF8)  # from Windows editors
            try:
                line = content.decode().removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                byte = content[error.start]
                raise BadInput(
                    f"{path}:{number}: text must be UTF-8; byte 0x{byte:02x} is not"
                ) from None
            if ("\r" in line and not returns) or "\0" in line:
                raise lone_return(path, number, line)
            yield number, line


def lone_return(path: Path, number: int, line: str) -> BadInput:
    """The error for a line with CR or NUL inside."""
    return BadInput(
        f"{path}:{number}: a line must end in LF or CR LF, and have no CR or NUL inside (UTF-16, "
        f"or a binary file?): {shown(line)}"
    )


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes UTF-8 lines atomically, gzipped if `path` ends in `.gz`."""
    content = "".join(f"{line}\n" for line in lines).encode()
    if path.suffix == ".gz":
        packed = io.BytesIO()
        # No name or time in the header, so that equal lines give equal bytes.
        with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as stream:
            stream.write(content)
        content = packed.getvalue()
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(content)
