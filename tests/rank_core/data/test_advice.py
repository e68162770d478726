"""Every `--fields` that a message advises is followed, and the file then has its meaning."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rank_core.data.readers import documents, pairs_of, parse_fields, qrels_of, queries_of, run_of
from rank_core.data.vocabulary import FIELD_NAMES
from rank_core.errors import BadInput
from sweeps.__main__ import main

Reader = Callable[[Path, dict[str, str] | None], Any]


def _texts(path: Path, fields: dict[str, str] | None) -> dict[str, str]:
    return {own.doc_id: own.text for own in documents(path, fields or {})}


def _pairs(path: Path, fields: dict[str, str] | None) -> list[list[int | None]]:
    return [[text.grade for text in own.passages] for own in pairs_of(path, fields or {})]


def _run(path: Path, fields: dict[str, str] | None) -> dict[str, dict[str, float]]:
    return dict(run_of(path, fields))


CASES: dict[str, tuple[Reader, str, str, Any]] = {
    "two ids": (
        qrels_of, "x.csv", "query_id,doc_id,pid,grade\nq,a,7,1\nq,b,8,0\n", {"q": {"a": 1, "b": 0}}
    ),
    "two ids of a run": (
        _run, "x.csv", "query_id,doc_id,pid,score\nq,a,7,2\nq,b,8,1\n", {"q": {"a": 2, "b": 1}}
    ),
    "two ids of documents": (
        _texts, "x.csv", "doc_id,pid,text\na,7,x\nb,8,y\n", {"a": "x", "b": "y"}
    ),
    "two grades": (
        qrels_of, "x.csv", "query_id,doc_id,relevance,rating\nq,a,1,3\n", {"q": {"a": 1}}
    ),
    "scores": (
        qrels_of, "x.csv", "query_id,doc_id,score\nq,a,0.9\nq,b,0.1\n", {"q": {"a": 1, "b": 0}}
    ),
    "words": (qrels_of, "x.csv", "query_id,doc_id,label\nq,a,Exact\n", {"q": {"a": 1}}),
    "texts without a label": (
        _pairs, "x.jsonl", '{"query": "a", "passage": ["x", "y"]}\n', [[1, 1]]
    ),
    "two kinds of texts": (
        _pairs, "x.jsonl", '{"query": "a", "pos": ["x"], "docs": ["y", "z"]}\n', [[1]]
    ),
    "a label beside negatives": (
        _pairs, "x.jsonl", '{"query": "a", "pos": ["x"], "neg": ["y"], "label": 3}\n', [[1, None]]
    ),
    "two texts of a query": (
        queries_of, "x.csv", "query_id,text,query\nq,long text,short\n", {"q": "long text"}
    ),
}  # fmt: skip
"""{case: its reader, file, and what it means once the advice is followed}."""


@pytest.mark.parametrize("case", CASES)
def test_the_advice_of_a_message_reads_the_file_as_it_is_meant(case, tmp_path):
    read, name, content, meaning = CASES[case]
    (path := tmp_path / name).write_text(content)
    with pytest.raises(BadInput) as refused:
        read(path, {})
    [advice] = re.findall(r"--fields (\S+=\S+)", str(refused.value))
    assert read(path, parse_fields(advice.rstrip(",;:"))) == meaning


def test_the_usual_name_beside_a_renamed_field_is_read_where_both_are_named(tmp_path):
    """`--fields` holds for all files of a folder: of its queries, and of its documents."""
    (path := tmp_path / "docs.csv").write_text("id,text\na,x\n")
    with pytest.raises(BadInput, match="--fields text=text reads that one, too"):
        _texts(path, {"words": "text"})
    assert _texts(path, {"words": "text", "text": "text"}) == {"a": "x"}


@pytest.mark.parametrize(
    "case", [name for name, own in CASES.items() if own[0] in (qrels_of, _run)]
)
def test_a_command_without_the_flag_names_the_one_that_has_it(case, tmp_path):
    """`measure` and `compare` have no `--fields`: `convert` writes what they read."""
    read, name, content, meaning = CASES[case]
    (path := tmp_path / name).write_text(content)
    with pytest.raises(BadInput) as refused:
        read(path, None)
    [(kind, advice)] = re.findall(
        r"`ranksweep convert \S+ --to NEW(\.\w+) --fields \.\.\.`, (\S+=\S+)", str(refused.value)
    )
    to = tmp_path / f"new{kind}"
    assert main(["convert", str(path), "--to", str(to), "--fields", advice]) == 0
    assert read(to, None) == meaning


def test_every_name_that_fields_knows_is_accepted():
    assert [*parse_fields(",".join(f"x{n}={n}" for n in FIELD_NAMES)).values()] == [*FIELD_NAMES]
