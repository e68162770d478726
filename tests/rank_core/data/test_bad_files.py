"""Every way we know in which a file of a collection folder goes wrong: one line, with its place.

A kind is a file, a way to spoil it, the line that is to blame (0: the whole file), and the message.
"""

import codecs
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rank_core.data.folder import load_folder
from rank_core.errors import BadInput

Spoil = Callable[[Path], object]

DOCUMENTS = {f"d{i}": f"document {i} of the harbour" for i in range(1, 7)}
QUERIES = {"train": ("t1", "t2"), "dev": ("v1", "v2"), "test": ("e1", "e2")}
DOCS, RUN, QRELS, TEXTS = "docs.jsonl", "test/bm25.run", "test/qrels.trec", "test/queries.tsv"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A good collection: 6 documents, 2 queries a split, 2 judgments and 3 candidates a query."""
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "good"
    folder.mkdir()
    lines = [json.dumps({"doc_id": doc_id, "text": text}) for doc_id, text in DOCUMENTS.items()]
    (folder / DOCS).write_text("\n".join(lines) + "\n")
    for split, query_ids in QUERIES.items():
        (folder / split).mkdir()
        files = {
            "queries.tsv": [f"{q}\tlights of harbour {q}" for q in query_ids],
            "qrels.trec": [f"{q} 0 {d} {grade}" for q in query_ids for d, grade in RELEVANCE],
            "bm25.run": [
                f"{q} Q0 d{rank} {rank} {5 - rank}.5 bm25" for q in query_ids for rank in (1, 2, 3)
            ],
        }
        for name, rows in files.items():
            (folder / split / name).write_text("\n".join(rows) + "\n")
    return folder


RELEVANCE = (("d1", 1), ("d2", 0))


def line(number: int, text: str) -> Spoil:
    """Puts another line in place of one."""

    def spoil(path: Path) -> None:
        lines = path.read_text().split("\n")
        lines[number - 1] = text
        path.write_text("\n".join(lines))

    return spoil


def content(data: str | bytes) -> Spoil:
    """Puts another content in place of the whole."""
    return lambda path: path.write_bytes(data.encode() if isinstance(data, str) else data)


def recoded(change: Callable[[bytes], bytes]) -> Spoil:
    """Changes the bytes of the file."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def zipped(change: Callable[[bytes], bytes]) -> Spoil:
    """Puts a changed gzip file in place of the plain one."""

    def spoil(path: Path) -> None:
        path.with_name(f"{path.name}.gz").write_bytes(change(gzip.compress(path.read_bytes())))
        path.unlink()

    return spoil


def replaced(make: Spoil) -> Spoil:
    """Puts something that is no file under the file's name."""

    def spoil(path: Path) -> None:
        path.unlink()
        make(path)

    return spoil


def document(number: int, **fields: object) -> Spoil:
    """Puts another JSON object in place of a document."""
    return line(number, json.dumps(fields))


def unreadable(path: Path) -> None:
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")


def failing(path: Path) -> None:
    """The memory of this process, a file whose first byte cannot be read."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("no /proc here")
    path.symlink_to("/proc/self/mem")


class Kind(NamedTuple):
    """A file, how it is spoilt, the line to blame (0: no line) and the rest of the message."""

    file: str
    spoil: Spoil
    line: int
    message: str


GZ = ".gz is no complete gzip file: "
ONE_OBJECT = "a line must be one JSON object"
NO_LINK = " is a symbolic link to a missing file (nowhere)"
ONE_WORD = "must be one word without white space"
COLUMNS = {QRELS: "`query_id 0 doc_id relevance` (4 columns), found"}
COLUMNS |= {RUN: "`query_id Q0 doc_id rank score tag` (6 columns), found"}
LONG = "x" * 200_000

KINDS = {
    # gzip
    "gzip that is cut off": Kind(DOCS, zipped(lambda data: data[:-9]), 0, GZ + "Compressed file"),
    "gzip with a flipped byte": Kind(
        DOCS, zipped(lambda data: data[:40] + bytes([data[40] ^ 255]) + data[41:]), 0, GZ
    ),
    "gzip with something behind it": Kind(
        RUN, zipped(lambda data: data + b"more"), 0, GZ + "Not a gzipped file (b'mo')"
    ),
    "plain text named gzip": Kind(
        RUN, zipped(gzip.decompress), 0, GZ + "Not a gzipped file (b'e1')"
    ),
    "empty file named gzip": Kind(RUN, zipped(lambda data: b""), 0, GZ + "it is empty"),
    "gzip named plain text": Kind(
        DOCS, recoded(gzip.compress), 0, " is gzipped; the name of a gzip file must end in .gz"
    ),
    "gzip in gzip": Kind(DOCS, zipped(gzip.compress), 0, ".gz is gzipped"),
    # no file, or no file that can be read
    "missing documents": Kind(DOCS, Path.unlink, 0, "lacks docs.jsonl (or docs.jsonl.gz); a coll"),
    "missing judgments": Kind(QRELS, Path.unlink, 0, "lacks test/qrels.trec; a collection folder"),
    "missing queries": Kind(TEXTS, Path.unlink, 0, "lacks test/queries.tsv; a collection folder"),
    "folder for documents": Kind(DOCS, replaced(Path.mkdir), 0, " is a folder, not a file"),
    "folder for a run": Kind(RUN, replaced(Path.mkdir), 0, " is a folder, not a file"),
    "pipe for queries": Kind(TEXTS, replaced(os.mkfifo), 0, " is a pipe, socket"),
    "link of documents to nowhere": Kind(
        DOCS, replaced(lambda path: path.symlink_to("nowhere")), 0, NO_LINK
    ),
    "link of a run to nowhere": Kind(
        RUN, replaced(lambda path: path.symlink_to("nowhere")), 0, NO_LINK
    ),
    "link to itself": Kind(
        QRELS, replaced(lambda path: path.symlink_to(path)), 0, " cannot be read: Too many levels"
    ),
    "no permission": Kind(QRELS, unreadable, 0, " cannot be read: Permission denied"),
    "disk that fails": Kind(QRELS, replaced(failing), 0, " cannot be read: Input/output error"),
    "documents plain and gzip": Kind(
        DOCS,
        lambda path: path.with_name("docs.jsonl.gz").write_bytes(b""),
        0,
        ": a collection may have only one file of documents, found docs.jsonl and docs.jsonl.gz",
    ),
    "two runs for a split": Kind(
        RUN,
        lambda path: path.with_name("b.run").write_text(""),
        0,
        ": a split may have only one run file, found b.run and bm25.run",
    ),
    # no UTF-8 text
    "Latin-1": Kind(TEXTS, content(b"e1\tfine\ne2\tcaf\xe9\n"), 2, "text must be UTF-8; byte 0xe9"),
    "UTF-16": Kind(
        TEXTS,
        recoded(lambda data: codecs.BOM_UTF16_LE + data.decode().encode("utf-16-le")),
        1,
        "a NUL byte at byte 4 of the line (UTF-16",
    ),
    "NUL bytes in a run": Kind(RUN, recoded(lambda data: data + bytes(3)), 7, "a NUL byte"),
    "NUL byte in a query": Kind(TEXTS, line(2, "e2\tlight\0house"), 2, "a NUL byte at byte 9"),
    "NUL byte in a document": Kind(
        DOCS, line(3, '{"doc_id": "d3", "text": "light\0house"}'), 3, "a NUL byte"
    ),
    "surrogate half": Kind(
        DOCS, line(4, '{"doc_id": "d4", "text": "sea\\udc80"}'), 4, "text must be valid Unicode"
    ),
    "old Mac line ends": Kind(
        QRELS, recoded(lambda data: data.replace(b"\n", b"\r")), 1, "a line must end in LF or CR LF"
    ),
    "CR in a query": Kind(
        TEXTS, line(2, "e2\tlights\rof"), 2, "return (CR) inside: 'e2\\tlights\\rof'"
    ),
    "CR in a document": Kind(
        DOCS, line(2, '{"doc_id": "d2",\r "text": "x"}'), 2, "a line must end"
    ),
    # nothing in it
    "empty documents": Kind(DOCS, content(""), 0, " has no documents"),
    "documents of white space": Kind(DOCS, content(" \n\t\n \n"), 0, " has no documents"),
    "empty queries": Kind(TEXTS, content(""), 0, " has no queries"),
    "queries of white space": Kind(TEXTS, content(" \n \n"), 0, " has no queries"),
    "empty judgments": Kind(QRELS, content(""), 0, " has no relevant document"),
    "empty run": Kind(RUN, content(""), 0, " has no lines"),
    # documents
    "cut off JSON": Kind(DOCS, line(6, '{"doc_id": "d6", "te'), 6, "string starting at char"),
    "array for an object": Kind(DOCS, line(2, '["d2", "x"]'), 2, f"{ONE_OBJECT}, found list"),
    "text for an object": Kind(DOCS, line(2, '"d2"'), 2, f"{ONE_OBJECT}, found str"),
    "one array of all documents": Kind(
        DOCS, recoded(lambda data: b"[" + data.replace(b"\n", b",\n")), 1, f"{ONE_OBJECT}: Exp"
    ),
    "JSON over several lines": Kind(
        DOCS, content(json.dumps({"doc_id": "d1", "text": "x"}, indent=1)), 1, f"{ONE_OBJECT}: Exp"
    ),
    "two objects on a line": Kind(
        DOCS, line(1, '{"doc_id": "d1", "text": "x"} {}'), 1, f"{ONE_OBJECT}: Extra data"
    ),
    "nested without end": Kind(
        DOCS, line(5, "[" * 100_000), 5, f"{ONE_OBJECT}: 'maximum recursion"
    ),
    "number of 5000 digits": Kind(
        DOCS, line(5, '{"doc_id": %s}' % ("9" * 5000)), 5, f"{ONE_OBJECT}: 'Exceeds the limit"
    ),
    "field that stands twice": Kind(
        DOCS, line(2, '{"doc_id": "d2", "text": "x", "text": "y"}'), 2, "it has a duplicate field"
    ),
    "no text": Kind(
        DOCS, document(2, doc_id="d2", body="x"), 2, "must have text, found doc_id, body"
    ),
    "no doc_id": Kind(DOCS, document(2, text="x"), 2, "must have doc_id, found text"),
    "fields with strange names": Kind(
        DOCS, document(2, **{"doc\nid": "d2", "": "x"}), 2, "text, found 'doc\\nid', ''"
    ),
    "number for a doc_id": Kind(
        DOCS, document(3, doc_id=3.5, text="x"), 3, "a string or a whole number, found 3.5"
    ),
    "number for a text": Kind(DOCS, document(3, doc_id="d3", text=1.5), 3, "a string, found 1.5"),
    "null for a text": Kind(DOCS, document(3, doc_id="d3", text=None), 3, "a string, found null"),
    "list for a text": Kind(
        DOCS, document(3, doc_id="d3", text=["x"]), 3, "a string, found a list"
    ),
    "object for a title": Kind(
        DOCS,
        document(3, doc_id="d3", text="x", title={"en": 1}),
        3,
        "title must be a string, found",
    ),
    "empty text": Kind(DOCS, document(4, doc_id="d4", text=""), 4, "document 'd4' is empty"),
    "text of white space": Kind(DOCS, document(4, doc_id="d4", text=" \n\u3000"), 4, "is empty"),
    "doc_id with white space": Kind(DOCS, document(1, doc_id="d 1", text="x"), 1, ONE_WORD),
    "empty doc_id": Kind(DOCS, document(1, doc_id="", text="x"), 1, f"{ONE_WORD}, found ''"),
    "doc_id with an escape sequence": Kind(
        DOCS, document(1, doc_id="d\x1b[31m", text="x"), 1, "or control characters, found 'd\\x1b["
    ),
    "doc_id of 200,000 characters": Kind(
        DOCS, document(1, doc_id=LONG, text="x"), 1, "of at most 1000 characters, found 200000"
    ),
    "a document twice": Kind(
        DOCS, document(6, doc_id="d2", text="x"), 6, "doc_id 'd2' is a duplicate of /"
    ),
    # queries
    "query without a tab": Kind(
        TEXTS, line(2, "e2 lights"), 2, "(2 columns), found 1: 'e2 lights'"
    ),
    "tab in a query": Kind(TEXTS, line(2, "e2\tlights\tof"), 2, "(2 columns), found 3"),
    "query without text": Kind(TEXTS, line(2, "e2\t"), 2, "query 'e2' is empty"),
    "a query twice": Kind(TEXTS, line(2, "e1\tagain"), 2, "duplicate query_id 'e1'"),
    "query_id with white space": Kind(TEXTS, line(1, "e 1\tlights"), 1, f"query_id {ONE_WORD}"),
    "line of column names": Kind(
        TEXTS,
        recoded(lambda data: b"query_id\ttext\n" + data),
        1,
        "the first line has column names",
    ),
    "byte order mark inside": Kind(
        TEXTS, line(2, "\ufeffe2\tlights"), 2, "or control characters, found '\\ufeffe2'"
    ),
    "huge line": Kind(TEXTS, line(2, LONG), 2, "(2 columns), found 1: 'xxx"),
    "query of another split": Kind(TEXTS, line(3, "v2\tlights\n"), 3, "query 'v2' is also in"),
    # judgments
    "run for judgments": Kind(QRELS, line(1, "e1 Q0 d1 1 4.5 bm25"), 1, f"{COLUMNS[QRELS]} 6"),
    "judgment of three columns": Kind(QRELS, line(2, "e1 d2 0"), 2, f"{COLUMNS[QRELS]} 3: 'e1 d2"),
    "doc_id with white space in judgments": Kind(
        QRELS, line(2, "e1 0 d 2 0"), 2, f"{COLUMNS[QRELS]} 5: 'e1 0 d 2 0'"
    ),
    "column names over judgments": Kind(
        QRELS, recoded(lambda data: b"q 0 d rel\n" + data), 1, "a whole number, found 'rel'"
    ),
    "grade that is a fraction": Kind(
        QRELS, line(2, "e1 0 d2 0.5"), 2, "a whole number, found '0.5'"
    ),
    "grade that is a word": Kind(QRELS, line(2, "e1 0 d2 yes"), 2, "a whole number, found 'yes'"),
    "grade beyond all bounds": Kind(
        QRELS, line(2, "e1 0 d2 " + "9" * 5000), 2, "a whole number of at most 9 digits, found '999"
    ),
    "a judgment twice": Kind(QRELS, line(2, "e1 0 d1 0"), 2, "duplicate judgment of document 'd1'"),
    "judged document that is unknown": Kind(
        QRELS, line(3, "e2 0 d99 1"), 3, "unknown document 'd99'"
    ),
    "judged query that is unknown": Kind(QRELS, line(3, "e9 0 d1 1"), 3, "unknown query 'e9'"),
    "nothing relevant": Kind(
        QRELS, content("e1 0 d1 0\ne2 0 d1 -1\n"), 0, " has no relevant document"
    ),
    # runs
    "judgments for a run": Kind(RUN, line(1, "e1 0 d1 1"), 1, f"{COLUMNS[RUN]} 4: 'e1 0 d1 1'"),
    "run without tag": Kind(
        RUN, line(2, "e1 Q0 d2 2 3.5"), 2, f"{COLUMNS[RUN]} 5: 'e1 Q0 d2 2 3.5'"
    ),
    "tag with white space": Kind(RUN, line(2, "e1 Q0 d2 2 3.5 my run"), 2, f"{COLUMNS[RUN]} 7"),
    "NaN for a score": Kind(
        RUN, line(2, "e1 Q0 d2 2 NaN t"), 2, "a score must be finite, found 'N"
    ),
    "infinite score": Kind(RUN, line(2, "e1 Q0 d2 2 -inf t"), 2, "must be finite, found '-inf'"),
    "score beyond floats": Kind(
        RUN, line(2, "e1 Q0 d2 2 1e999 t"), 2, "must be finite, found '1e9"
    ),
    "word for a score": Kind(
        RUN, line(2, "e1 Q0 d2 2 high t"), 2, "must be a number, found 'high'"
    ),
    "comma in a score": Kind(RUN, line(2, "e1 Q0 d2 2 3,5 t"), 2, "must be a number, found '3,5'"),
    "digits of Python in a score": Kind(RUN, line(2, "e1 Q0 d2 2 1_0 t"), 2, "found '1_0'"),
    "rank and score swapped": Kind(
        RUN, line(2, "e1 Q0 d2 3.5 2 t"), 2, "a rank must be a whole number, found '3.5'"
    ),
    "column names over a run": Kind(
        RUN, recoded(lambda data: b"qid Q0 docno rank score tag\n" + data), 1, "a rank must be a wh"
    ),
    "a candidate twice": Kind(RUN, line(3, "e1 Q0 d1 3 1 t"), 3, "document 'd1' is ranked twice"),
    "candidate that is unknown": Kind(RUN, line(5, "e2 Q0 d7 2 3 t"), 5, "unknown document 'd7"),
    "candidates of an unknown query": Kind(RUN, line(4, "e9 Q0 d1 1 3 t"), 4, "unknown query 'e9'"),
    "run of another split": Kind(
        RUN, content("v1 Q0 d1 1 1 t\nv2 Q0 d1 1 1 t\n"), 1, "; 2 of 2 are unknown"
    ),
    "run of another collection": Kind(
        RUN,
        content("".join(f"e1 Q0 MARCO_{i} {i} {-i} t\n" for i in range(9)) + "e1 Q0 d1 9 -9 t\n"),
        1,
        "'MARCO_0', which is not in the documents; 9 of 10 are unknown",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_file_is_refused_in_one_line_that_names_it(folder, kind):
    file, spoil, number, message = KINDS[kind]
    load_folder(folder)  # what was read before must not hide what has happened since
    spoil(folder / file)
    with pytest.raises(BadInput) as caught:
        load_folder(folder)
    said = str(caught.value)
    assert said.isprintable() and len(said) < len(str(folder)) * 2 + 300
    assert message in said
    assert said.startswith(str(folder))
    if number:
        assert f"{file}:{number}: " in said
    else:
        assert Path(file).stem.split(".")[0] in said


# (file, how it differs): read like the file as it was
HARMLESS: dict[str, tuple[str, Spoil]] = {
    "byte order mark": (TEXTS, recoded(lambda data: codecs.BOM_UTF8 + data)),
    "byte order mark before documents": (DOCS, recoded(lambda data: codecs.BOM_UTF8 + data)),
    "CR LF": (TEXTS, recoded(lambda data: data.replace(b"\n", b"\r\n"))),
    "CR LF in documents": (DOCS, recoded(lambda data: data.replace(b"\n", b"\r\n"))),
    "CR LF in a run": (RUN, recoded(lambda data: data.replace(b"\n", b"\r\n"))),
    "tabs for spaces": (QRELS, recoded(lambda data: data.replace(b" ", b"\t"))),
    "spaces and tabs": (
        RUN,
        recoded(lambda data: data.replace(b" Q0", b" \t Q0").replace(b"\n", b" \n")),
    ),
    "empty lines": (QRELS, recoded(lambda data: b"\n" + data.replace(b"\n", b"\n \n"))),
    "no line end at the end": (RUN, recoded(bytes.rstrip)),
    "lines in another order": (
        RUN,
        recoded(lambda data: b"\n".join(sorted(data.split(b"\n"))[::-1])),
    ),
    "ranks that repeat": (
        RUN,
        recoded(lambda data: data.replace(b" 2 ", b" 1 ").replace(b" 3 ", b" 1 ")),
    ),
    "ranks that contradict scores": (RUN, recoded(lambda data: data.replace(b" 3 ", b" -1 "))),
    "another tag and fields nobody reads": (
        DOCS,
        recoded(lambda data: data.replace(b"}", b', "n": [1]}')),
    ),
    "a gzip file in two members": (
        RUN,
        zipped(
            lambda data: (
                gzip.compress(gzip.decompress(data)[:9]) + gzip.compress(gzip.decompress(data)[9:])
            )
        ),
    ),
    "a link to the file": (
        DOCS,
        lambda path: (path.rename(path.with_name("elsewhere")), path.symlink_to("elsewhere")),
    ),
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_files_that_differ_only_in_form_are_read_alike(folder, kind):
    file, change = HARMLESS[kind]
    good = load_folder(folder)
    change(folder / file)
    same = load_folder(folder)
    assert same.documents == good.documents
    assert list(same.splits.items()) == list(good.splits.items())
    for split, of_split in same.splits.items():
        for query_id, ranked in of_split.candidates.items():
            assert list(ranked) == list(good.splits[split].candidates[query_id])


def test_negative_grades_and_unjudged_queries_are_accepted(folder):
    (folder / QRELS).write_text("e1 0 d1 1\ne1 0 d3 -2\n")
    test = load_folder(folder).splits["test"]
    assert test.qrels == {"e1": {"d1": 1, "d3": -2}}
    assert list(test.queries) == ["e1"]
