"""The command: files and page of an analysis, the same each time, and what wrong input is told."""

import csv
import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from rank_core.data.load import load_collection
from sweeps import positional_bias
from tests.rank_core.llm.server import chat_server


def run(*words):
    return positional_bias.main([str(word) for word in words])


@pytest.fixture
def passages_file(collection_folder, tmp_path):
    """The words 10 to 19 of each relevant document of train."""
    collection = load_collection(str(collection_folder))
    lines = []
    for query_id, judged in collection.splits["train"].qrels.items():
        for doc_id, grade in judged.items():
            if grade > 0:
                text = " ".join(collection.documents[doc_id].split()[10:20])
                lines.append(json.dumps({"query_id": query_id, "text": text}))
    path = tmp_path / "passages.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_everything_is_written_and_the_page_needs_nothing_else(
    collection_folder, passages_file, backbone_folder, tmp_path, capsys
):
    out = tmp_path / "out"
    words = ["--collection", collection_folder, "--passages", passages_file, "--first", 50]
    assert run(*words, "--backbone", backbone_folder, "--window", 10, "--out", out) == 0
    assert f"Page: {out / 'index.html'}" in capsys.readouterr().out
    page = (out / "index.html").read_text()
    assert page.count("<svg") == 2 and 'src="' not in page and 'href="http' not in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 10
    names = {path.stem for path in out.glob("*.png")}
    assert names == {path.stem for path in out.glob("*.svg")}
    assert names == {"positions", "rsv"}
    found = rows(out / "positions.csv")
    assert len(found) == 16 and {row["word_start"] for row in found} == {"10"}
    assert {row["scorer"] for row in rows(out / "rsv.csv")} == {
        "BM25",
        f"cosine, {backbone_folder}",
    }
    summary = json.loads((out / "summary.json").read_text())
    assert summary["collection"] == "woods" and summary["relevant_pairs"] == 16
    assert summary["summary"]["relevant passages: found"] == 16
    assert summary["summary"]["relevant passages: share that starts in the first 50"] == 1
    assert summary["summary"]["all documents: counted"] == 20
    assert "100% of the relevant passages start in the first 50 words" in page


def test_the_spans_of_a_folder_are_its_passages(collection_folder, tmp_path, capsys):
    folder = Path(shutil.copytree(collection_folder, tmp_path / "woods"))
    collection = load_collection(str(folder))
    judged = collection.splits["train"].qrels
    rows_of = [
        {"query_id": query_id, "doc_id": doc_id, "word_start": 12, "num_words": 5}
        for query_id, grades in judged.items()
        for doc_id, grade in grades.items()
        if grade > 0
    ]
    with gzip.open(folder / "spans.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows_of)
    assert run("--collection", folder, "--storage", tmp_path / "s", "--smoke-test") == 0
    assert "No relevant passages are known" not in capsys.readouterr().out
    found = rows(tmp_path / "s" / "positional_bias" / "woods-train" / "positions.csv")
    assert len(found) == len(rows_of) and {row["word_start"] for row in found} == {"12"}


def test_chunks_are_graded_by_a_server_and_paid_once(collection_folder, tmp_path, capsys):
    words = ["--collection", collection_folder, "--judge-model", "small", "--judge-pairs", 2]
    with chat_server() as server:
        server.rank = lambda *_: "2" if len(server.bodies) % 2 else "who knows"
        for _ in range(2):
            url = ["--judge-url", server.url, "--judge-window", 40, "--out", tmp_path / "out"]
            assert run(*words, *url) == 0
        judged = rows(tmp_path / "out" / "judged.csv")
        assert len(server.bodies) == len(judged) >= 2
    assert {row["grade"] for row in judged} == {"2", ""}
    assert f"Grading {len(judged)} chunks of 2 documents with small." in capsys.readouterr().out
    page = (tmp_path / "out" / "index.html").read_text()
    assert "First relevant chunk, graded by a chat model" in page
    assert f"{len(judged) // 2} of {len(judged)} answers had no grade" in " ".join(page.split())


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--split", "validation"], "'validation'"),
        (["--least-grade", "-1"], "--least-grade"),
        (["--window", "0"], "--window"),
        (["--least-grade", "9"], "grade 9"),
        (["--judge-url", "http://127.0.0.1:1"], "model"),
        (["--passages", "passages.jsonl"], "passages.jsonl:2"),
    ],
)
def test_wrong_input_is_told_in_one_line(
    collection_folder, tmp_path, capsys, monkeypatch, words, named
):
    monkeypatch.chdir(tmp_path)
    Path("passages.jsonl").write_text('{"query_id": "train-0", "text": "a"}\n{"query_id": "x"}\n')
    assert run("--collection", collection_folder, *words, "--out", tmp_path) == 2
    error = capsys.readouterr().err
    assert named in error and error.count("\n") == 1


@pytest.mark.slow
def test_far_relevant_collections_bring_their_passages_along(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "passages"
    documents = [f"w{n} x{n} y{n} z{n} v{n} u{n}" for n in range(60)]
    folder.mkdir()
    lines = [json.dumps({"doc_id": f"p{n:02}", "text": text}) for n, text in enumerate(documents)]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n")
    for number, split in enumerate(("train", "dev", "test")):
        (folder / split).mkdir()
        (folder / split / "queries.tsv").write_text(f"{split}-q\tw{number} of {split}\n")
        (folder / split / "qrels.trec").write_text(f"{split}-q 0 p{number:02} 1\n")
    text = f"{folder}|far-relevant(first_position=30,max_length=60)|debias(splits=all)"
    assert run("--collection", text.partition("|debias")[0], "--out", tmp_path / "far") == 0
    [row] = rows(tmp_path / "far" / "positions.csv")
    assert int(row["word_start"]) >= 30 and row["method"] == "substring"
    assert run("--collection", text, "--out", tmp_path / "debiased") == 0
    [row] = rows(tmp_path / "debiased" / "positions.csv")
    assert row["query_id"] == "train-q"
