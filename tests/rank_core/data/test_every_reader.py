"""The law of readers: equal content gives equal values, whatever form it is handed in; content with
a fault is refused at its place, in every form; and no field that could change the meaning is passed
over in silence.

A table is handed in as a file of each kind, as a data frame and as a dictionary. `HARMLESS` has the
differences in form that must change nothing, `FAULTS` what must be refused where it stands.
"""

import codecs
import gzip
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rank_core.data.readers import (
    dictionary_qrels,
    documents,
    frame_qrels,
    pairs_of,
    parse_fields,
    qrels_of,
    queries_of,
    run_of,
)
from rank_core.errors import BadInput
from sweeps.report.comparison import compare_runs
from sweeps.systems.sources import ranking_of, training_runs

Row = dict[str, Any]
Rows = list[Row]

TABLES: dict[str, Rows] = {
    "documents": [
        {"doc_id": "001", "title": "Cats", "text": "cats, \"sleep\"; a lot"},
        {"doc_id": "NA", "title": "Dogs", "text": "dogs\nbark é"},
        {"doc_id": "all", "title": "Both", "text": ""},
    ],
    "queries": [
        {"query_id": "1e3", "text": "who, sleeps; \"most\""},
        {"query_id": "None", "text": "was heißt Hund"},
        {"query_id": "all", "text": "cats"},
    ],
    "judgments": [
        {"query_id": "1e3", "doc_id": "001", "relevance": 2},
        {"query_id": "1e3", "doc_id": "NA", "relevance": 0},
        {"query_id": "None", "doc_id": "nan", "relevance": 1},
        {"query_id": "all", "doc_id": "all", "relevance": -1},
    ],
    "run": [
        {"query_id": "1e3", "doc_id": "001", "score": 2.5},
        {"query_id": "1e3", "doc_id": "NA", "score": 7.25},
        {"query_id": "None", "doc_id": "nan", "score": 1e-7},
        {"query_id": "all", "doc_id": "all", "score": -3.0},
    ],
    "pairs": [
        {"query": "who sleeps", "positive": "cats, \"do\"", "negative_1": "no", "negative_2": "é"},
        {"query": "who barks", "positive": "dogs;\ndo", "negative_1": "cats", "negative_2": "no"},
        {"query": "who sleeps", "positive": "all", "negative_1": "NA", "negative_2": "001"},
    ],
}  # fmt: skip
ROW = 1  # the row that is spoilt


@dataclass(frozen=True)
class Form:
    """A form of a table: what writes it and how it names a row."""

    write: Callable[[Rows, Path], Any]
    place: Callable[[Row], str]
    ending: str = ""

    def handed_in(self, rows: Rows, folder: Path) -> Any:
        path = folder / f"train{self.ending}"
        given = self.write(rows, path)
        return path if self.ending else given


def text_of(rows: Rows, mark: str) -> str:
    frame = pd.DataFrame(rows)
    return frame.to_csv(index=False, sep=mark, na_rep="")


def json_lines(rows: Rows) -> str:
    return "".join(json.dumps(row, default=lambda value: value.item()) + "\n" for row in rows)


def nested(rows: Rows) -> dict[Any, dict[Any, Any]]:
    table: dict[Any, dict[Any, Any]] = {}
    for row in rows:
        query_id, doc_id, value = row.values()
        table.setdefault(query_id, {})[doc_id] = value
    return table


FORMS: dict[str, Form] = {
    "jsonl": Form(lambda rows, path: path.write_text(json_lines(rows)), lambda _: ":2: ", ".jsonl"),
    "jsonl.gz": Form(
        lambda rows, path: path.write_bytes(gzip.compress(json_lines(rows).encode())),
        lambda _: ":2: ",
        ".jsonl.gz",
    ),
    "json list": Form(
        lambda rows, path: path.write_text(f"[{','.join(json_lines(rows).splitlines())}]"),
        lambda _: ", row 1: ",
        ".json",
    ),
    "json lines": Form(
        lambda rows, path: path.write_text(json_lines(rows)), lambda _: ":2: ", ".json"
    ),
    "csv": Form(lambda rows, path: path.write_text(text_of(rows, ",")), lambda _: ":3: ", ".csv"),
    "csv;": Form(lambda rows, path: path.write_text(text_of(rows, ";")), lambda _: ":3: ", ".csv"),
    "tsv": Form(lambda rows, path: path.write_text(text_of(rows, "\t")), lambda _: ":3: ", ".tsv"),
    "parquet": Form(
        lambda rows, path: pd.DataFrame(rows).to_parquet(path), lambda _: ", row 1: ", ".parquet"
    ),
    "frame": Form(lambda rows, path: pd.DataFrame(rows), lambda _: ", row 1: "),
    "dictionary": Form(
        lambda rows, path: nested(rows),
        lambda row: f"query {row['query_id']!r}, document {row['doc_id']!r}: ",
    ),
    "columns": Form(
        lambda rows, path: path.write_text(
            "".join("\t".join(map(str, row.values())) + "\n" for row in rows)
        ),
        lambda _: ":2: ",
        ".tsv",
    ),
    "trec": Form(
        lambda rows, path: path.write_text(
            "".join(
                f"{q} Q0 {d} 1 {value} tag\n" if "score" in row else f"{q} 0 {d} {value}\n"
                for row in rows
                for q, d, value in [row.values()]
            )
        ),
        lambda _: ":2: ",
        ".trec",
    ),
}  # fmt: skip
NAMED = [name for name in FORMS if name not in ("frame", "dictionary", "columns", "trec")]
FORMS_OF = {
    "documents": NAMED,
    "queries": [*NAMED, "columns"],
    "judgments": list(FORMS),
    "run": [name for name in FORMS if name not in ("columns", "dictionary")],
    "pairs": NAMED,
}
"""{table: its forms}."""


def read(table: str, given: Any, fields: str = "") -> Any:
    """What a reader makes of a table in any form."""
    names = parse_fields(fields) if fields else {}
    if table == "documents":
        return {own.doc_id: own.text for own in documents(given, names)}
    if table == "queries":
        return queries_of(given, names)
    if table == "pairs":
        return [
            (line.query, [(own.text, own.grade, own.score) for own in line.passages])
            for line in pairs_of(given, names)
        ]
    if table == "judgments":
        if isinstance(given, pd.DataFrame):
            return frame_qrels(given)
        return dictionary_qrels(given) if isinstance(given, dict) else qrels_of(given, names)
    if isinstance(given, pd.DataFrame):
        [[run]] = training_runs(given).values()
        return run.ranking().run
    return dict(run_of(given))


EXPECTED = {
    "documents": {
        "001": 'Cats\ncats, "sleep"; a lot', "NA": "Dogs\ndogs\nbark é", "all": "Both\n"
    },
    "queries": {row["query_id"]: row["text"] for row in TABLES["queries"]},
    "judgments": {"1e3": {"001": 2, "NA": 0}, "None": {"nan": 1}, "all": {"all": -1}},
    "run": {"1e3": {"NA": 7.25, "001": 2.5}, "None": {"nan": 1e-7}, "all": {"all": -3.0}},
    "pairs": [
        ("who sleeps", [('cats, "do"', 1, None), ("no", None, None), ("é", None, None)]),
        ("who barks", [("dogs;\ndo", 1, None), ("cats", None, None), ("no", None, None)]),
        ("who sleeps", [("all", 1, None), ("NA", None, None), ("001", None, None)]),
    ],
}  # fmt: skip


def changed(rows: Rows, **values: Any) -> Rows:
    """The rows with other values in one of them."""
    return [row | values if number == ROW else dict(row) for number, row in enumerate(rows)]


def everywhere(rows: Rows, change: Callable[[Row], Row]) -> Rows:
    return [change(dict(row)) for row in rows]


def renamed(**names: str) -> Callable[[Rows], Rows]:
    return lambda rows: [{names.get(key, key): row[key] for key in row} for row in rows]


def in_every_form(table: str, rows: Rows, folder: Path, *without: str) -> Iterator[tuple[str, Any]]:
    """(form, the rows in this form), but not of the forms that cannot have them."""
    for form in FORMS_OF[table]:
        if form not in without:
            (own := folder / form).mkdir()
            yield form, FORMS[form].handed_in(rows, own)


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_the_same_values_in_every_form(table, tmp_path):
    for form, given in in_every_form(table, TABLES[table], tmp_path):
        found = read(table, given)
        assert found == EXPECTED[table], form
        if table == "run":
            ranks = [[*ranked] for ranked in found.values()]
            assert ranks == [[*ranked] for ranked in EXPECTED[table].values()], form


def with_noise(rows: Rows) -> Rows:
    return everywhere(rows, lambda row: row | {"metadata": "x", "source": "web"})


HARMLESS: list[tuple[str, str, Callable[[Rows], Rows]]] = [
    ("documents", "BEIR's names", renamed(doc_id="_id")),
    ("documents", "camel case", renamed(doc_id="docId", title="Title", text="TEXT")),
    ("documents", "unread fields", with_noise),
    ("queries", "BEIR's names", renamed(query_id="_id")),
    ("queries", "PyTerrier's names", renamed(query_id="qid", text="query")),
    ("queries", "unread fields", with_noise),
    ("judgments", "BEIR's names", renamed(query_id="query-id", doc_id="corpus-id",
                                          relevance="score")),
    ("judgments", "PyTerrier's names", renamed(query_id="qid", doc_id="docno", relevance="label")),
    ("judgments", "other names", renamed(query_id="Query_ID", doc_id="docID", relevance="grade")),
    ("judgments", "unread fields", with_noise),
    ("judgments", "equal fields", lambda rows: everywhere(
        rows, lambda row: row | {"label": row["relevance"]})),
    ("run", "PyTerrier's names", renamed(query_id="qid", doc_id="docno")),
    ("run", "PyTerrier's names with the number in its index", lambda rows: everywhere(
        renamed(query_id="qid", doc_id="docno")(rows), lambda row: {"docid": 7} | row)),
    ("run", "unread fields", with_noise),
    ("pairs", "other names", renamed(query="anchor", positive="pos", negative_1="neg_1",
                                     negative_2="hard_negative_2")),
    ("pairs", "numbers alone", renamed(negative_1="negative1", negative_2="negative2")),
    ("pairs", "unread fields", with_noise),
]  # fmt: skip
"""(table, how it differs, the change)."""


NAMELESS_FORMS = ("dictionary", "columns", "trec")


@pytest.mark.parametrize(("table", "what", "change"), HARMLESS)
def test_names_in_use_and_unread_fields_change_nothing(table, what, change, tmp_path, capsys):
    rows = change(TABLES[table])
    for form, given in in_every_form(table, rows, tmp_path, *NAMELESS_FORMS):
        assert read(table, given) == EXPECTED[table], form
        said = capsys.readouterr().err
        if change is not with_noise or (table, form) == ("run", "frame"):
            assert not said, form
        else:
            assert said.count("\n") == 1 and "metadata, source" in said, form


NUMBERS: dict[str, Callable[[int], Any]] = {
    "int": int,
    "float": float,
    "numpy int": np.int64,
    "numpy float": np.float32,
    "text": str,
}


QUOTES = {
    "lone quotes": ['"what is love', "cats and dogs", 'the so called yes"', "x"],
    "one quote": ['"what is love', *["cats"] * 50],
    "every line": ['"a', '"b', '"c'],
    "paired around lines": ['"a', 'b"', '"c', 'd"'],
    "pairs that are no quoting": ['"a" and "b"', 'say ""hi""', '"', '""""b'],
    "a text of quotes": ['"', '"', "x"],
    "the last line": ["x", 'y"', '"z'],
}
LINES = {
    "documents": ("doc_id\ttext", "d{}\t{}", lambda path: documents(path, {})),
    "queries": ("query_id\ttext", "q{}\t{}", lambda path: queries_of(path, {})),
    "judgments": (
        "query_id\tcomment\tdoc_id\trelevance",
        "q{}\t{}\td\t1",
        lambda path: qrels_of(path, {}),
    ),
    "run": (
        "query_id\tcomment\tdoc_id\tscore",
        "q{}\t{}\td\t1",
        lambda path: dict(run_of(path, {})),
    ),
    "pairs": (
        "query\tpositive",
        "query {}\t{}",
        lambda path: pairs_of(path, {}),
    ),
    "compare's run": (
        "query_id\tcomment\tdoc_id\tscore",
        "q{}\t{}\td\t1",
        lambda path: ranking_of(path).run,
    ),
    "compare's values": (
        "query_id\tcomment\tAP",
        "q{}\t{}\t.5",
        lambda path: training_runs(path)[""][0].values["query_id"],
    ),
}
"""{table: (its line of names, a line, what reads it)}."""


@pytest.mark.parametrize("ending", [".tsv", ".csv"])
@pytest.mark.parametrize("what", QUOTES)
@pytest.mark.parametrize("table", LINES)
def test_lines_with_as_many_tabs_as_the_first_are_as_many_records(table, what, ending, tmp_path):
    if ending == ".csv" and table.startswith("compare"):
        pytest.skip("the name of a source tells nothing")
    header, line, read_all = LINES[table]
    lines = [line.format(number, text) for number, text in enumerate(QUOTES[what])]
    (path := tmp_path / f"docs{ending}").write_text("\n".join([header, *lines, ""]))
    assert len([*read_all(path)]) == len(lines)


def test_quoted_texts_of_several_lines_are_read_beside_lone_quotes(tmp_path):
    texts = ['"what', "a\nb", "c\td", 'say "yes"', '"e', "f"]
    quoted = ['"what', '"a\nb"', '"c\td"', '"say ""yes"""', '"e', '"f"']
    lines = [f"d{number}\t{text}" for number, text in enumerate(quoted)]
    (tmp_path / "docs.tsv").write_text("\n".join(["doc_id\ttext", *lines]))
    assert [own.text for own in documents(tmp_path / "docs.tsv", {})] == texts


@pytest.mark.parametrize("number", NUMBERS)
def test_whole_numbers_of_any_type_are_ids_and_grades(number, tmp_path):
    of, texts = NUMBERS[number], ("columns", "trec", "csv", "csv;", "tsv")
    rows = [{"query_id": of(7), "doc_id": of(d), "relevance": of(d - 1)} for d in (1, 2, 3)]
    # In a text file 7.0 is an id of three characters.
    without = texts if number.endswith("float") else ()
    for form, given in in_every_form("judgments", rows, tmp_path, *without):
        found = read("judgments", given)
        assert found == {"7": {"1": 0, "2": 1, "3": 2}}, form
        assert {type(grade) for grade in found["7"].values()} == {int}, form


def doubled(rows: Rows) -> Rows:
    return [rows[0], dict(rows[0]), *rows[1:]]


FAULTS: list[tuple[str, str, Callable[[Rows], Rows], str]] = [
    ("documents", "no id", lambda rows: changed(rows, doc_id=None), "doc_id"),
    ("documents", "two words", lambda rows: changed(rows, doc_id="a b"), "doc_id"),
    ("documents", "two ids", lambda rows: changed(
        everywhere(rows, lambda row: row | {"docno": row["doc_id"]}), docno="other"),
     "doc_id and docno"),
    ("documents", "two texts", lambda rows: changed(
        everywhere(rows, lambda row: row | {"contents": row["text"]}), contents="other"),
     "text and contents"),
    ("queries", "no id", lambda rows: changed(rows, query_id=None), "query_id"),
    ("queries", "no text", lambda rows: changed(rows, text=" "), "empty"),
    ("queries", "twice", doubled, "duplicate query_id '1e3'"),
    ("judgments", "no query", lambda rows: changed(rows, query_id=None), "query_id"),
    ("judgments", "no document", lambda rows: changed(rows, doc_id=None), "doc_id"),
    ("judgments", "no grade", lambda rows: changed(rows, relevance=None), "relevance"),
    ("judgments", "a fraction", lambda rows: changed(rows, relevance=1.4), "1.4"),
    ("judgments", "a word", lambda rows: changed(rows, relevance="high"), "'high'"),
    ("judgments", "twice", doubled, "judges document '001' twice"),
    ("judgments", "too high", lambda rows: changed(rows, relevance=999_999_999), "999,999,999"),
    ("judgments", "too low", lambda rows: changed(rows, relevance=-999_999_999), "-999,999,999"),
    ("judgments", "two words", lambda rows: changed(rows, query_id="a b"), ""),
    ("judgments", "an unknown score", lambda rows: everywhere(
        rows, lambda row: row | {"bm25_score": 2.5}), "'bm25_score'"),
    ("judgments", "two grades", lambda rows: changed(
        everywhere(rows, lambda row: row | {"label": row["relevance"]}), label=3),
     "relevance and label"),
    ("run", "no query", lambda rows: changed(rows, query_id=None), "query_id"),
    ("run", "no document", lambda rows: changed(rows, doc_id=None), "doc_id"),
    ("run", "no score", lambda rows: changed(rows, score=None), "score"),
    ("run", "no number", lambda rows: changed(rows, score="high"), "high"),
    ("run", "infinite", lambda rows: changed(rows, score=math.inf), "inf"),
    ("run", "twice", doubled, "ranks document '001' twice"),
    ("pairs", "a weight", lambda rows: everywhere(rows, lambda row: row | {"weight": 2}),
     "'weight'"),
    ("pairs", "a margin", lambda rows: everywhere(rows, lambda row: row | {"margin": 2.5}),
     "'margin'"),
    ("pairs", "more of them", lambda rows: everywhere(rows, lambda row: row | {"isRelevant": 1}),
     "'isRelevant'"),
    ("pairs", "a label", lambda rows: everywhere(rows, lambda row: row | {"label": 1}), "label"),
    ("pairs", "two positives", lambda rows: everywhere(rows, lambda row: row | {"answer": "x"}),
     "positive and answer"),
]  # fmt: skip
"""(table, the fault, the change, what the message has)."""
IN_ALL = ("an unknown score", "a weight", "a margin", "more of them", "a label", "two positives")
NAMELESS = (*IN_ALL, "two grades")


def can_have(form: str, table: str, what: str) -> bool:
    """False for a fault that a form cannot express."""
    if form in ("columns", "trec") and (what in NAMELESS or what.startswith("no ")):
        return what == "no number"
    if form == "parquet" and what in ("a word", "no number"):
        return False  # its columns have types
    return form != "dictionary" or (what not in NAMELESS and what != "twice")


@pytest.mark.parametrize(("table", "what", "change", "named"), FAULTS)
def test_a_fault_is_refused_where_it_stands(table, what, change, named, tmp_path):
    rows = change(TABLES[table])
    without = [form for form in FORMS if not can_have(form, table, what)]
    for form, given in in_every_form(table, rows, tmp_path, *without):
        with pytest.raises(BadInput) as refused:
            read(table, given)
        said = str(refused.value)
        assert named in said and said.isprintable() and len(said) < 600, (form, said)
        place = FORMS[form].place(rows[ROW])
        if form in ("csv", "csv;", "tsv") and table in ("documents", "pairs"):
            place = f"{given}:"  # texts have several lines
        elif what in IN_ALL:
            number = int(re.findall("[0-9]+", place)[0])
            place = place.replace(str(number), str(number - 1))
        assert place in said, (form, said)
        assert not isinstance(given, Path) or said.startswith(str(given)), (form, said)


CODES: dict[str, tuple[Callable[[bytes], bytes], bool]] = {
    "byte order mark": (lambda data: codecs.BOM_UTF8 + data, True),
    "CR LF": (lambda data: data.replace(b"\n", b"\r\n"), True),
    "empty lines": (lambda data: b"\n" + data + b"\n \n", True),
    "UTF-16": (lambda data: data.decode().encode("utf-16"), False),
    "Latin-1": (lambda data: data + b"\xe9\n", False),
    "gzipped": (gzip.compress, False),
    "NUL": (lambda data: data + b"\0\n", False),
}
"""{change of the bytes of a text file: (the change, whether it is read)}."""


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("table", TABLES)
def test_the_bytes_of_a_text_file_are_read_or_refused(table, code, tmp_path):
    change, is_read = CODES[code]
    rows = everywhere(
        TABLES[table],
        lambda row: {k: v.replace("\n", " ") if isinstance(v, str) else v for k, v in row.items()},
    )
    without = [form for form in FORMS if FORMS[form].ending in ("", ".parquet", ".jsonl.gz")]
    for form, path in in_every_form(table, rows, tmp_path, *without):
        before = read(table, path)
        path.write_bytes(change(path.read_bytes()))
        if is_read:
            assert read(table, path) == before, form
        else:
            with pytest.raises(BadInput, match=path.name):
                read(table, path)


TRAINING: dict[str, tuple[Row | Rows, Any]] = {
    "labelled pairs": (
        [{"query": "q", "positive": "a", "label": 1}, {"query": "q", "positive": "b", "label": 0}],
        [("a", 1), ("b", 0)],
    ),
    "a score that is whole": ({"query": "q", "positive": "a", "score": 0.0}, [("a", 0)]),
    "a label of text": ({"query": "q", "positive": "a", "label": "2"}, [("a", 2)]),
    "a passage and its label": ({"query": "q", "passage": "a", "relevance": 3}, [("a", 3)]),
    "two sentences": ({"sentence1": "q", "sentence2": "a", "label": 0}, [("a", 0)]),
    "text beside the query": ({"query": "q", "text": "a", "label": 0}, [("a", 0)]),
    "a labelled list": (
        {"query": "q", "docs": ["a", "b"], "labels": [0, 2]}, [("a", 0), ("b", 2)]
    ),
    "a labelled list of MTEB": (
        {"query": "q", "positive": ["a", "b"], "negative": ["c"]},
        [("a", 1), ("b", 1), ("c", None)],
    ),
    "DPR": (
        {"question": "q", "answers": ["x"], "positive_ctxs": [{"title": "t", "text": "a"}],
         "negative_ctxs": [], "hard_negative_ctxs": [{"title": "", "text": "b"}]},
        [("t\na", 1), ("b", None)],
    ),
    "Tevatron's titles": (
        {"query_id": 3, "query": "q",
         "positive_passages": [{"docid": 7, "title": "t", "text": "a"}], "negative_passages": []},
        [("t\na", 1)],
    ),
    "Cohere": (
        {"query": "q", "relevant_passages": ["a"], "hard_negatives": ["b"]},
        [("a", 1), ("b", None)],
    ),
    "ms-swift since 3.8": (
        {"messages": [{"role": "user", "content": "q"}],
         "positive_messages": [[{"role": "user", "content": "a"}]],
         "negative_messages": [[{"role": "assistant", "content": "b"}],
                               [{"role": "user", "content": "c"}]]},
        [("a", 1), ("b", None), ("c", None)],
    ),
    "empty texts among others": (
        {"query": "q", "pos": ["", "a"], "neg": [" ", "b"], "pos_scores": [1, 2],
         "neg_scores": [3, 4]},
        [("a", 1, 2.0), ("b", None, 4.0)],
    ),
    "lines without a text or a query": (
        [{"query": "q", "pos": []}, {"query": "q", "pos": [""], "neg": ["x"]},
         {"query": " ", "pos": ["y"]}, {"query": "q", "pos": ["a"], "neg": []}],
        [("a", 1)],
    ),
    "ms-swift": (
        {"query": "q", "response": "a", "rejected_response": ["b"]}, [("a", 1), ("b", None)]
    ),
    "several kinds of negatives": (
        {"query": "q", "pos": ["a"], "negative": "b", "hard_negatives": ["c"]},
        [("a", 1), ("b", None), ("c", None)],
    ),
    "ten numbered negatives, in order": (
        {"anchor": "q", "positive": "a"} | {f"negative_{n}": f"n{n}" for n in (10, 2, 1)},
        [("a", 1), ("n1", None), ("n2", None), ("n10", None)],
    ),
    "fewer of them": (
        {"anchor": "q", "positive": "a", "negative_1": "b", "negative_2": None},
        [("a", 1), ("b", None)],
    ),
    "FlagEmbedding": (
        {"query": "q", "pos": ["a"], "neg": ["b"], "pos_scores": [1.5], "neg_scores": [0.5],
         "prompt": "p", "type": "normal"},
        [("a", 1, 1.5), ("b", None, 0.5)],
    ),
    "scores of an n-tuple": (
        {"anchor": "q", "positive": "a", "negative_1": "b", "score": [0.9, 0.25]},
        [("a", 1, 0.9), ("b", None, 0.25)],
    ),
}  # fmt: skip
"""{form of training lines: (a line, its texts with grades and a teacher's scores)}."""


@pytest.mark.parametrize("kind", TRAINING)
def test_training_lines_are_read_as_their_writers_mean_them(kind, tmp_path):
    lines, expected = TRAINING[kind]
    rows = lines if isinstance(lines, list) else [lines]
    for form, given in in_every_form("pairs", rows, tmp_path, "csv", "csv;", "tsv"):
        found = read("pairs", given)
        assert {query for query, _ in found} == {"q"}, form
        texts = [text for _, own in found for text in own]
        assert texts == [(*own, None)[:3] for own in expected], form


UNCLEAR: list[tuple[Row, str, str]] = [  # (line, what its refusal names, --fields that settles it)
    ({"query": "q", "positive": "a", "label": 0.5}, "label=relevance:0.5", "label=relevance:0.4"),
    ({"query": "q", "positive": "a", "score": 0.1}, "score", "score=unused"),
    ({"query": "q", "passage": "a"}, "passage must come with a label", "passage=pos"),
    ({"query": "q", "docs": ["a", "b"], "labels": [1]}, "2 texts", "labels=unused,docs=pos"),
    ({"query": "q", "pos": ["a"], "neg": ["b"], "label": 1}, "label beside neg", "label=unused"),
    ({"query": "q", "pos": ["a"], "text": "b"}, "pos and text", "text=unused"),
    ({"query": "q", "pos": ["a"], "sample_weight": 2}, "'sample_weight'", "sample_weight=unused"),
    ({"query": "q", "pos": ["a"], "minedNegatives": "b"}, "'minedNegatives'", "minedNegatives=neg"),
    ({"query": "q", "pos": ["a"], "label": 1, "score": 0}, "label and score", "score=unused"),
    ({"query": "q", "good": ["a"]}, "THEIRS=pos", "good=pos"),
    ({"ask": "q", "pos": ["a"]}, "THEIRS=query", "ask=query"),
    ({"query": "q", "neg": ["x"]}, "pos", ""),
    ({"query": "q", "pos": [3]}, "must be a string", ""),
    ({"query": "q", "pos": ["a"], "pos_scores": [1, 2]}, "pos_scores", ""),
    ({"query": "q", "pos": ["a"], "pos_scores": ["1"]}, "pos_scores", ""),
    ({"query": "q", "pos": ["a"], "pos_scores": [True]}, "pos_scores", ""),
    ({"query": "q", "pos": ["a"], "pos_scores": [10**400]}, "pos_scores", ""),
    ({"query": "q", "positive": "a", "label": True}, "true", ""),
    ({"id": None, "query": "q", "pos": ["a"]}, "null", ""),
    ({"query": "q", "pos": [{"id": None, "text": "t"}]}, "null", ""),
    ({"query_id": "a b", "query": "q", "pos": ["a"]}, "query_id", ""),
    ({"query": "q", "pos": [{"docid": "x y", "text": "t"}]}, "doc_id", ""),
]


@pytest.mark.parametrize(("line", "named", "fields"), UNCLEAR, ids=range(len(UNCLEAR)))
def test_an_unclear_line_is_refused_by_its_field_and_settled_by_fields(
    line, named, fields, tmp_path
):
    path = tmp_path / "train.jsonl"
    path.write_text(json_lines([{"query": "q", "pos": ["z"]}, line]))
    with pytest.raises(BadInput) as refused:
        read("pairs", path)
    assert f"{path}:2: " in str(refused.value) and named in str(refused.value)
    if fields:
        path.write_text(json_lines([line]))
        [(query, texts)] = read("pairs", path, fields)
        assert query == "q" and texts[0] in (("a", 1, None), ("a", 0, None))


def test_judgments_and_runs_from_python_are_compared_as_their_files_are(tmp_path):
    rows, ranked = TABLES["judgments"][:3], TABLES["run"][:3]
    qrels = {form: FORMS[form].handed_in(rows, tmp_path) for form in ("frame", "dictionary", "csv")}
    runs = {form: FORMS[form].handed_in(ranked, tmp_path) for form in ("frame", "trec")}
    means = [
        compare_runs({"A": [run], "B": [_reversed(ranked)]}, judged)
        for judged in (*qrels.values(), {"one": qrels["dictionary"]}, {"one": qrels["frame"]})
        for run in runs.values()
    ]  # fmt: skip
    values = [found.analysis.rows[0].mean(found.sweep.primary) for found in means]
    assert len(set(values)) == 1 and 0 < values[0] < 1


def _reversed(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame([row | {"score": -row["score"]} for row in rows])


def test_advice_names_a_flag_only_where_there_is_one(tmp_path):
    rows = [row | {"bm25_score": 1.5} for row in TABLES["judgments"]]
    given = {form: FORMS[form].handed_in(rows, tmp_path) for form in ("csv", "frame")}
    for judged, fields, has_flag in (
        (given["csv"], {}, True),
        (given["csv"], None, False),
        (given["frame"], None, False),
    ):
        with pytest.raises(BadInput, match="bm25_score") as refused:
            frame_qrels(judged) if isinstance(judged, pd.DataFrame) else qrels_of(judged, fields)
        advice = str(refused.value)
        command = f"`ranksweep convert {judged} --to NEW.trec --fields ...`"
        assert ("--fields bm25_score=OURS" in advice) == has_flag
        assert (command in advice) == (judged is given["csv"] and not has_flag)


@pytest.mark.parametrize(
    "qrels", [3, [("q", "d", 1)], {"one": 3}, {"q": {"d": 1}, "p": 2}, {}, {"q": {}}]
)
def test_what_are_no_judgments_is_refused(qrels):
    run = pd.DataFrame(TABLES["run"])
    with pytest.raises(BadInput, match="judgments"):
        compare_runs({"A": [run], "B": [_reversed(TABLES["run"])]}, qrels)


@pytest.mark.parametrize("mark", [",", "\t"])
def test_a_table_of_very_many_columns_is_refused_at_once(tmp_path, mark):
    path = tmp_path / ("train.csv" if mark == "," else "train.tsv")
    names = ["query_id", "doc_id", "relevance", *(f"c{n}" for n in range(100_000))]
    path.write_text(mark.join(names) + "\n" + mark.join(["1"] * len(names)) + "\n")
    for reads in (lambda: qrels_of(path, {}), lambda: training_runs(path)):
        with pytest.raises(BadInput, match=r"train.*1000 columns, found 100,003"):
            reads()


def test_what_is_left_out_of_training_lines_is_counted(tmp_path, capsys):
    lines = [
        {"query": "q", "pos": ["a", ""], "neg": ["", "b"], "neg_scores": [1, 2]},
        {"query": "q", "pos": []},
        {"query": "", "pos": ["x"]},
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    [line] = pairs_of(path, {})
    assert [(own.text, own.score) for own in line.passages] == [("a", None), ("b", 2.0)]
    said = capsys.readouterr().err
    assert f"{path}: 2 empty texts are left out" in said
    assert f"{path}: 2 lines without a query or a relevant text are left out" in said
    assert f"the first is {path}:2" in said


def test_a_chat_of_several_messages_is_no_text(tmp_path):
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    line = {"messages": chat, "positive_messages": [[{"role": "user", "content": "a"}]]}
    (path := tmp_path / "train.jsonl").write_text(json.dumps(line))
    with pytest.raises(BadInput, match=r"train.jsonl:1: messages must be texts, or each one"):
        list(pairs_of(path, {}))


def test_a_lone_return_in_a_quoted_text_is_read_as_parquet_has_it(tmp_path):
    frame = pd.DataFrame({"doc_id": ["d1", "d2"], "text": ["a\rb", 'c, "d"\r\te']})
    frame.to_csv(tmp_path / "docs.csv", index=False)
    frame.to_csv(tmp_path / "docs.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "docs.parquet")
    for kind in ("csv", "tsv", "parquet"):
        found = [own.text for own in documents(tmp_path / f"docs.{kind}", {})]
        assert found == [*frame["text"]], kind


@pytest.mark.parametrize(
    ("content", "read_file", "named"),
    [
        ("<top>\n<num> Number: 301\n", lambda path: queries_of(path, {}), "topics of TREC"),
        ("301 FBIS3-1 1 0 0.5\n", lambda path: qrels_of(path, {}), "prels"),
    ],
)
def test_formats_of_trec_that_are_not_read_are_named(content, read_file, named, tmp_path):
    (path := tmp_path / "given.txt").write_text(content)
    with pytest.raises(BadInput, match=named):
        read_file(path)


def test_a_missing_grade_of_a_frame_is_called_that():
    frame = pd.DataFrame({"query_id": ["q"], "doc_id": ["d"], "relevance": [float("nan")]})
    with pytest.raises(BadInput) as error:
        frame_qrels(frame)
    assert "round it" not in str(error.value)
