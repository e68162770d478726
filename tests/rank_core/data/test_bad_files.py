"""Every way we know in which a file of a collection goes wrong, named by its file and line."""

import bz2
import codecs
import gzip
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rank_core.data.folder import load_folder
from rank_core.errors import BadInput

Spoil = Callable[[Path], object]

DOCUMENTS = {f"d{i}": f"document {i} of the harbour" for i in range(1, 7)}
QUERIES = {"train": ("t1", "t2"), "dev": ("v1", "v2"), "test": ("e1", "e2")}
RELEVANCE = (("d1", 1), ("d2", 0))
DOCS, RUN, QRELS, TEXTS = "docs.jsonl", "test/bm25.run", "test/qrels.trec", "test/queries.tsv"
LONG = "x" * 200_000


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


def document(number: int, **fields: object) -> Spoil:
    """Puts another JSON object in place of a document."""
    return line(number, json.dumps(fields))


KINDS: list[tuple[str, Spoil, int]] = [  # (file, how it is spoilt, its line that is named; 0: none)
    # gzip
    (DOCS, zipped(lambda data: data[:-9]), 0),
    (RUN, zipped(lambda data: data + b"more"), 0),
    (RUN, zipped(lambda data: b""), 0),
    (DOCS, recoded(gzip.compress), 0),
    # no UTF-8 text
    (TEXTS, content(b"e1\tfine\ne2\tcaf\xe9\n"), 2),
    (TEXTS, recoded(lambda data: codecs.BOM_UTF16_LE + data.decode().encode("utf-16-le")), 0),
    (QRELS, recoded(bz2.compress), 0),
    (DOCS, recoded(lzma.compress), 0),
    (RUN, recoded(lambda data: data + bytes(3)), 7),
    (DOCS, line(4, '{"doc_id": "d4", "text": "sea\\udc80"}'), 4),
    (QRELS, recoded(lambda data: data.replace(b"\n", b"\r")), 1),
    # nothing in it
    (DOCS, content(""), 0),
    (DOCS, recoded(lambda data: re.sub(rb'"document[^"]*"', b'" "', data)), 0),
    (QRELS, content(""), 0),
    (RUN, content(""), 0),
    # documents
    (DOCS, line(6, '{"doc_id": "d6", "te'), 6),
    (DOCS, line(2, '["d2", "x"]'), 2),
    (DOCS, recoded(lambda data: b"[" + data.replace(b"\n", b",\n")), 1),
    (DOCS, line(5, "[" * 100_000), 5),
    (DOCS, line(5, '{"doc_id": %s}' % ("9" * 5000)), 5),
    (DOCS, line(2, '{"doc_id": "d2", "text": "x", "text": "y"}'), 2),
    (DOCS, document(2, doc_id="d2", body="x"), 2),
    (DOCS, document(3, doc_id=True, text="x"), 3),
    (DOCS, document(3, doc_id="d3", text=None), 3),
    (DOCS, document(3, doc_id="d3", text="x", title={"en": 1}), 3),
    (DOCS, document(1, doc_id="d 1", text="x"), 1),
    (DOCS, document(1, doc_id=LONG, text="x"), 1),
    (DOCS, document(6, doc_id="d2", text="x"), 6),
    # queries
    (TEXTS, line(2, "e2\tlights\tof"), 2),
    (TEXTS, line(2, "e2\t"), 2),
    (TEXTS, line(2, "e1\tagain"), 2),
    (TEXTS, line(2, "\ufeffe2\tlights"), 2),
    # judgments
    (QRELS, line(1, "e1 Q0 d1 1 4.5 bm25"), 1),
    (QRELS, line(2, "e1 d2 0"), 2),
    (QRELS, line(2, "e1 0 d2 0.5"), 2),
    (QRELS, line(2, "e1 0 d2 " + "9" * 5000), 2),
    (QRELS, line(2, "e1 0 d1 0"), 2),
    (QRELS, recoded(lambda data: data.replace(b"0 d", b"0 x")), 1),
    (QRELS, line(3, "e9 0 d1 1"), 3),
    # runs
    (RUN, line(2, "e1 Q0 d2 2 3.5"), 2),
    (RUN, line(2, "e1 Q0 d2 2 NaN t"), 2),
    (RUN, line(2, "e1 Q0 d2 two 3.5 t"), 2),
    (RUN, line(2, "e1 Q0 d1 2 3.5 t"), 2),
    (RUN, line(2, "e1 Q0 d99 2 3.5 t"), 2),
    (RUN, line(2, "e9 Q0 d2 2 3.5 t"), 2),
]


@pytest.mark.parametrize(("file", "spoil", "number"), KINDS)
def test_a_bad_file_is_named_with_its_line_in_one_printable_line(folder, file, spoil, number):
    spoil(folder / file)
    with pytest.raises(BadInput) as caught:
        load_folder(folder)
    said = str(caught.value)
    assert said.startswith(f"{folder / file}:{number}: " if number else f"{folder / file}"), said
    assert said.isprintable() and len(said) < 800


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda home: (home / DOCS).unlink(), ["docs.jsonl"]),
        (lambda home: [(home / QRELS).unlink(), (home / TEXTS).unlink()], [QRELS, TEXTS]),
        (lambda home: (home / DOCS).rename(home / "elsewhere"), ["docs.jsonl"]),
        (lambda home: (home / f"{DOCS}.gz").write_text("x"), [DOCS, f"{DOCS}.gz"]),
        (lambda home: (home / "test" / "b.run").write_text("x"), ["b.run", "bm25.run"]),
        (lambda home: (home / TEXTS).write_text("v1\tlights\n"), ["'e1'"]),
    ],
)
def test_missing_files_and_too_many_are_named(folder, change, named):
    change(folder)
    with pytest.raises(BadInput) as caught:
        load_folder(folder)
    assert all(name in str(caught.value) for name in named)


@pytest.mark.parametrize(
    "name", ["Test/qrels.trec", "testing/qrels.tsv", "qrels/Test.tsv", "TEST.jsonl"]
)
def test_a_split_under_another_name_is_named_where_it_is_missing(folder, name):
    (folder / "test").rename(folder / "elsewhere")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("x")
    with pytest.raises(BadInput, match=f"{re.escape(name)} is not read, and there is no other tes"):
        load_folder(folder)
    (folder / name).unlink()
    assert {*load_folder(folder).splits} == {"train", "dev"}


@pytest.mark.parametrize("name", ["bm25.RUN", "bm25.trec", "bm25.res", "run.tsv", "bm25.run.xz"])
def test_a_first_stage_that_would_be_overlooked_is_refused(folder, name):
    (folder / RUN).rename(folder / "test" / name)
    with pytest.raises(BadInput, match=f"test/{name} is a run that is not read"):
        load_folder(folder)


@pytest.mark.parametrize("name", ["bm25.trec", "notes.txt", "bm25.run.bak"])
def test_what_stands_beside_a_run_and_is_none_is_left_alone(folder, name):
    is_run = name == "bm25.trec"
    if not is_run:
        (folder / RUN).unlink()
    expected = load_folder(folder)
    text = "e1 Q0 d3 1 2.5 other\n" if is_run else "some words\n"
    (folder / "test" / name).write_text(text)
    found = load_folder(folder)
    assert dict(found.splits["test"].candidates) == dict(expected.splits["test"].candidates)
    assert found.content_hash == expected.content_hash


def test_a_query_of_two_splits_is_refused(folder):
    (folder / TEXTS).write_text("e1\tlights\nv2\tlights\n")
    (folder / QRELS).write_text("e1 0 d1 1\nv2 0 d1 1\n")
    with pytest.raises(BadInput, match="'v2'"):
        load_folder(folder)


@pytest.mark.parametrize("name", ["absent", DOCS])
def test_what_is_no_folder_is_refused(folder, name):
    with pytest.raises(BadInput, match=name):
        load_folder(folder / name)


# (file, how it differs): read like the file as it was
HARMLESS: dict[str, tuple[str, Spoil]] = {
    "byte order mark": (TEXTS, recoded(lambda data: codecs.BOM_UTF8 + data)),
    "CR LF": (TEXTS, recoded(lambda data: data.replace(b"\n", b"\r\n"))),
    "spaces and tabs": (
        RUN,
        recoded(lambda data: data.replace(b" Q0", b" \t Q0").replace(b"\n", b" \n")),
    ),
    "empty lines": (QRELS, recoded(lambda data: b"\n" + data.replace(b"\n", b"\n \n"))),
    "lines in another order": (
        RUN,
        recoded(lambda data: b"\n".join(sorted(data.split(b"\n"))[::-1])),
    ),
    "ranks that repeat": (
        RUN,
        recoded(lambda data: data.replace(b" 2 ", b" 1 ").replace(b" 3 ", b" 1 ")),
    ),
    "names of the columns": (TEXTS, recoded(lambda data: b"query_id\ttext\n" + data)),
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


def test_empty_documents_and_missing_ones_are_counted_and_kept_in_the_measures(folder, capsys):
    document(6, doc_id="d6", text="")(folder / DOCS)
    for split in ("train", "test"):
        line(1, f"{QUERIES[split][0]} 0 d99 1")(folder / split / "qrels.trec")
    splits = load_folder(folder).splits
    assert splits["test"].qrels["e1"] == {"d99": 1, "d2": 0}
    assert splits["train"].qrels["t1"] == {"d2": 0}, "training cannot read it"
    said = capsys.readouterr().err
    assert "docs.jsonl: 1 of 6 documents are empty" in said
    assert "test: 1 of 4 judged documents are missing" in said and "test/qrels.trec:1" in said
    load_folder(folder)
    assert not capsys.readouterr().err, "said once"


def test_negative_grades_and_unjudged_queries_are_accepted(folder):
    (folder / QRELS).write_text("e1 0 d1 1\ne1 0 d3 -2\n")
    test = load_folder(folder).splits["test"]
    assert test.qrels == {"e1": {"d1": 1, "d3": -2}}
    assert list(test.queries) == ["e1"]
