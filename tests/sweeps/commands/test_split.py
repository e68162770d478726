"""Judged queries divided by a hash: always alike, and written as a collection that loads."""

import json
import os

import pytest

from rank_core.data.folds import divided, query_share
from rank_core.data.load import load_collection
from sweeps.__main__ import main

QUERIES = {f"q{n}": f"what is number {n}" for n in range(60)}
SHARES = {"train": 80.0, "dev": 10.0, "test": 10.0}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def files(tmp_path):
    """The words of a command over Pyserini's documents and BEIR's queries and judgments."""
    rows = [{"id": f"d{n}", "contents": f"number {n} is a number"} for n in range(60)]
    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    rows = [{"_id": key, "text": text} for key, text in QUERIES.items()]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, rows)))
    judged = "".join(f"q{n}\td{n}\t1\nq{n}\td0\t0\n" for n in range(1, 60))
    (tmp_path / "all.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return ["--qrels", "all.tsv", "--queries", "queries.jsonl", "--docs", "docs.jsonl"]


def members(folder):
    splits = load_collection(str(folder)).splits
    return {name: list(splits[name].queries) for name in ("train", "dev", "test")}


def test_a_query_goes_where_its_hash_says_whatever_others_there_are():
    assert query_share("what is number 7") == query_share("What  is number 7\n")
    assert 0 <= query_share("x") < 1 and query_share("x") != query_share("x", "other")
    whole = divided(QUERIES, SHARES)
    assert sorted(one for ids in whole.values() for one in ids) == sorted(QUERIES)
    assert len(whole["train"]) > len(whole["dev"]) + len(whole["test"])
    some = {key: QUERIES[key] for key in reversed(list(QUERIES)[::2])}
    for name, ids in divided(some, SHARES).items():
        assert set(ids) <= set(whole[name])
    # Written down: a change of the hash would move the queries of everyone.
    assert round(query_share("what is number 7"), 6) == 0.318863


def test_a_split_is_a_collection_that_loads_and_the_same_again(files, tmp_path, capsys):
    assert main(["split", *files, "--to", "out/pets"]) == 0
    found = members("out/pets")
    judged = {key: text for key, text in QUERIES.items() if key != "q0"}
    assert found == divided(judged, SHARES)
    said = capsys.readouterr()
    assert f"train {len(found['train'])}, dev {len(found['dev'])}" in said.out
    assert "--shares" in said.err and "evaluation.folds" in said.err, "few queries"
    collection = load_collection("out/pets")
    assert collection.documents["d7"] == "number 7 is a number"
    assert main(["split", *files, "--to", "again"]) == 0
    for path in sorted((tmp_path / "out" / "pets").glob("*/*")):
        assert path.read_bytes() == (tmp_path / "again" / path.parent.name / path.name).read_bytes()
    assert main(["split", *files, "--to", "other", "--salt", "2"]) == 0
    assert members("other") != found


def test_given_test_judgments_stay_together(files, tmp_path):
    (tmp_path / "test.trec").write_text("q0 0 d0 1\n")
    words = ["--test", "test.trec", "--shares", "70,30", "--to", "out"]
    assert main(["split", *files, *words]) == 0
    found = members("out")
    assert found["test"] == ["q0"]
    assert len(found["train"]) + len(found["dev"]) == 59


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--shares", "1,1,0"], "--shares"),
        (["--shares", "99999,1,1"], "59 judged queries"),
        (["--test", "all.tsv"], "--test"),
        (["--fields", "id=docid"], "--fields"),
        (["--docs", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--docs", "unnamed.jsonl"], "--fields"),
        (["--qrels", "more.tsv"], "x7"),
    ],
)
def test_bad_words_are_refused_and_leave_nothing(words, named, files, tmp_path, capsys):
    (tmp_path / "unnamed.jsonl").write_text(json.dumps({"id": "d0", "body": "number 0"}))
    (tmp_path / "more.tsv").write_text("q1\td1\t1\nx7\td1\t1\n")
    before = sorted(os.listdir(tmp_path))
    given = dict(zip(files[::2], files[1::2], strict=True)) | {words[0]: words[1]}
    line = [word for pair in given.items() for word in pair]
    assert main(["split", *line, *words[2:], "--to", "out"]) == 2
    assert named in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == before
    (tmp_path / "out").mkdir()
    assert main(["split", *files, "--to", "out"]) == 2
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("docs.jsonl", lambda text: text + '\n{"id": "d0", "contents": "twice"}', "docs.jsonl:61"),
        ("docs.jsonl", lambda text: text + '\n{"id": "d60"}', "docs.jsonl:61"),
        ("docs.jsonl", lambda text: text.replace('"d', '"x'), "unknown document 'd"),
    ],
)
def test_a_folder_that_would_not_load_is_refused_and_not_kept(
    file, change, named, files, tmp_path, capsys
):
    (tmp_path / file).write_text(change((tmp_path / file).read_text()))
    assert main(["split", *files, "--to", "out"]) == 2
    assert named in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_documents_that_are_missing_or_empty_are_counted(files, tmp_path, capsys):
    text = (tmp_path / "docs.jsonl").read_text()
    text = text.replace("number 0 is a number", "").replace('"d1"', '"gone"')
    (tmp_path / "docs.jsonl").write_text(text)
    assert main(["split", *files, "--to", "out"]) == 0
    said = capsys.readouterr().err
    assert "docs.jsonl: 1 of 60 documents are empty" in said and "such as d1, " in said
    assert sum(map(len, members("out").values())) == 59
