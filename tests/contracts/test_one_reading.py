"""Laws of data at every door: a run whose scores contradict its ranks is noted in the same words
wherever it is read, and no document or text stands on two sides without a word."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import ranksweep
from rank_core import notes
from rank_core.data import folder as folders
from rank_core.data.folds import kept_together, round_robin, same_text
from rank_core.data.load import load_collection
from rank_core.data.named_files import named_run
from rank_core.data.trec import CONTRADICTED
from rank_core.trial.cross_validation import deal
from sweeps.__main__ import main

pytestmark = pytest.mark.usefixtures("own_cache")


def as_new_process() -> None:
    """What a process knows of notes and collections is forgotten; the cache on the disk stays."""
    notes._said.clear()
    folders._load.cache_clear()


@pytest.fixture(autouse=True)
def new_process() -> None:
    as_new_process()


@pytest.fixture
def woods(collection_folder: Path, tmp_path: Path) -> Path:
    """A collection whose test split has distances for scores."""
    folder = tmp_path / "woods"
    shutil.copytree(collection_folder, folder)
    run = folder / "test" / "bm25.run"
    lines = [line.split() for line in run.read_text().splitlines()]
    run.write_text("".join(f"{q} Q0 {d} {rank} {rank}.5 t\n" for q, _, d, rank, *_ in lines))
    return folder


def table_of(run: Path, path: Path) -> Path:
    rows = [line.split() for line in run.read_text().splitlines()]
    frame = pd.DataFrame(rows, columns=["qid", "q0", "docno", "rank", "score", "name"])
    frame[["qid", "docno", "rank", "score"]].to_csv(path, index=False)
    return path


def by_command(*words: str) -> None:
    assert main([str(word) for word in words]) in (0, 1, 3)


RUN_DOORS: dict[str, Callable[[Path, Path], object]] = {
    "measure": lambda run, home: by_command("measure", run, "--qrels", home / "test/qrels.trec"),
    "compare": lambda run, home: by_command(
        "compare", run, f"other={run.with_name('other.run')}", "--verbose",
        "--qrels", home / "test/qrels.trec"),
    "ranksweep.measure": lambda run, home: print(
        ranksweep.measure(run, home / "test/qrels.trec")),
    "read_run": lambda run, home: ranksweep.read_run(run),
    "rerank, teachers, negatives": lambda run, home: [*named_run(run)],
    "rerank, of a table": lambda run, home: [*named_run(table_of(run, home / "run.csv"))],
    "measure, of a table": lambda run, home: by_command(
        "measure", table_of(run, home / "run.csv"), "--qrels", home / "test/qrels.trec"),
    "split": lambda run, home: by_command(
        "split", "--docs", home / "docs.jsonl", "--queries", home / "test/queries.tsv", "--qrels",
        home / "test/qrels.trec", "--run", run, "--to", home / "new", "--shares", "1,1,1"),
    "load_collection": lambda run, home: load_collection(home),
}  # fmt: skip


@pytest.mark.parametrize("door", RUN_DOORS)
def test_a_run_that_contradicts_itself_is_noted_at_every_door(door, woods, capsys):
    run = woods / "test" / "bm25.run"
    good = [line.split() for line in run.read_text().splitlines()]
    (woods.parent / "other.run").write_text(
        "".join(f"{q} Q0 {d} {r} {-int(r)} x\n" for q, _, d, r, *_ in good)
    )
    shutil.copy(run, outside := woods.parent / "faiss.run")
    RUN_DOORS[door](outside, woods)
    said = " ".join("".join(capsys.readouterr()).split())
    assert said.count(CONTRADICTED) == 1


@pytest.mark.slow  # reads a backbone
@pytest.mark.parametrize("second", ["doctor", "plan"])
@pytest.mark.parametrize("first", ["doctor", "plan"])
def test_a_collection_is_noted_by_whoever_opens_it(first, second, woods, backbone_folder, capsys):
    (woods / "docs.jsonl").open("a").write(json.dumps({"doc_id": "empty", "text": ""}) + "\n")
    trained = (woods / "train" / "queries.tsv").read_text().splitlines()[0].split("\t")[1]
    tested = woods / "test" / "queries.tsv"
    first_line, *others = tested.read_text().splitlines()
    first_line = f"{first_line.split()[0]}\t{trained.upper()}"
    tested.write_text("\n".join([first_line, *others]))
    words = ["--collection", str(woods), "--backbone", str(backbone_folder)]
    commands = {
        "doctor": ["doctor", *words],
        "plan": ["run", "window_stride", *words, "--dry-run", "--storage", str(woods.parent / "r")],
    }
    for door in (first, second):
        as_new_process()
        main(commands[door])
        said = " ".join("".join(capsys.readouterr()).split())
        assert CONTRADICTED in said, door
        assert "1 of 21 documents are empty" in said, door
        assert "the text of a train query, such as" in said, door


def ids_of(number: int, prefix: str) -> list[str]:
    return [f"{prefix}{place}" for place in range(number)]


def written(folder: Path, *, same: str, declared: dict[str, object] | None = None) -> Path:
    """Thirty queries in three splits; their own texts are documents, by id, by text, by a title's
    text or not at all."""
    folder.mkdir()
    texts = {f"x{n}": f"other words {n} here" for n in range(10)}
    for split in ("train", "dev", "test"):
        (folder / split).mkdir()
        queries = {name: f"What is {name} of all" for name in ids_of(10, split)}
        for name, text in queries.items():
            if same == "id":
                texts[name] = text
            elif same == "text":
                texts[f"d-{name}"] = text.upper() + " "
            elif same == "title":
                texts[f"d-{name}"] = f"Title\n{text}"
        lines = [f"{name}\t{text}" for name, text in queries.items()]
        (folder / split / "queries.tsv").write_text("\n".join(lines))
        qrels = [f"{name} 0 x{place} 1" for place, name in enumerate(queries)]
        (folder / split / "qrels.trec").write_text("\n".join(qrels))
        own = [next((d for d in texts if d.endswith(name)), "x9") for name in queries]
        run = [
            f"{name} Q0 {doc_id} {rank} {-rank} t"
            for place, name in enumerate(queries)
            for rank, doc_id in enumerate(dict.fromkeys([own[place], f"x{place}", "x1"]), 1)
        ]
        (folder / split / "first.run").write_text("\n".join(run))
    records = [json.dumps({"doc_id": name, "text": text}) for name, text in texts.items()]
    (folder / "docs.jsonl").write_text("\n".join(records))
    if declared is not None:
        (folder / "ranksweep.json").write_text(json.dumps(declared))
    return folder


@pytest.mark.parametrize("same", ["id", "text", "title", "nothing"])
def test_a_query_among_its_candidates_is_noted_or_left_out(same, tmp_path, capsys):
    noted = load_collection(written(tmp_path / "noted", same=same))
    said = capsys.readouterr().err
    own = 0 if same == "nothing" else 10
    for split in noted.splits:
        text = f"{split}: {own} of 10 queries rank a document of their own id or text"
        assert (text in said) == bool(own)
    left = load_collection(written(tmp_path / "left", same=same, declared={"own_documents": False}))
    said = capsys.readouterr().err
    assert ("are documents themselves" in said) == bool(own)
    for name, split in left.splits.items():
        for query_id, text in split.queries.items():
            kept = split.candidates[query_id]
            assert kept and query_id not in kept
            texts = {same_text(left.documents[d].rpartition("\n")[2]) for d in kept}
            assert same_text(text) not in texts
            before = noted.splits[name].candidates[query_id]
            assert len(before) - len(kept) == bool(own)
    assert noted.content_hash != left.content_hash


@pytest.mark.parametrize("by", ["bm25", "rm3"])
def test_another_first_stage_leaves_the_queries_out_too(by, tmp_path):
    home = written(tmp_path / "left", same="id", declared={"own_documents": False})
    for name, split in load_collection(f"{home}|first-stage(by={by})").splits.items():
        assert any(split.candidates.values()), name
        for query_id, kept in split.candidates.items():
            assert query_id not in kept


@pytest.mark.parametrize("door", ["measure", "compare"])
def test_runs_with_the_queries_themselves_are_noted(door, tmp_path, capsys):
    home = written(tmp_path / "home", same="id")
    run, qrels = home / "test/first.run", home / "test/qrels.trec"
    shutil.copy(run, tmp_path / "other.run")
    run.write_text(run.read_text().replace(" -3 t", " -4 t"))
    words = [run] if door == "measure" else [run, tmp_path / "other.run", "--verbose"]
    by_command(door, *words, "--qrels", qrels)
    said = " ".join(capsys.readouterr().out.split())
    assert "10 of 10 judged queries rank the document of their own id" in said


def with_texts_twice(folder: Path, collection: Path) -> Path:
    """A collection in which ten queries of train have the texts of dev's and test's, in another
    case."""
    shutil.copytree(collection, folder)
    own = folder / "train" / "queries.tsv"
    names = [line.split("\t")[0] for line in own.read_text().splitlines()]
    others = [
        line.split("\t")[1]
        for split in ("dev", "test")
        for line in (folder / split / "queries.tsv").read_text().splitlines()
    ]
    pairs = zip(names, others[4:], strict=False)
    own.write_text("".join(f"{name}\t{text.upper()}\n" for name, text in pairs))
    return folder


@pytest.mark.parametrize("number", [3, 5, 10])
def test_no_text_is_tested_and_trained_on_in_folds(number, collection_folder, tmp_path):
    folds = deal(load_collection(with_texts_twice(tmp_path / "c", collection_folder)), number)
    tested: list[str] = []
    for fold in folds:
        texts = {
            name: {same_text(text) for text in split.queries.values()}
            for name, split in fold.splits.items()
        }
        assert not texts["test"] & (texts["train"] | texts["dev"])
        assert not texts["dev"] & texts["train"]
        tested += fold.splits["test"].queries
    assert len(tested) == len({*tested}) == 24


def test_folds_of_a_pool_keep_texts_together():
    queries = {str(n): f"text {n % 7}" for n in range(1, 31)}
    folds = round_robin(queries)
    of_text = {text: {f for f in folds for q in folds[f] if queries[q] == text}
               for text in queries.values()}  # fmt: skip
    assert all(len(own) == 1 for own in of_text.values())


def test_units_are_linked_by_texts_and_by_groups():
    queries = {"a": "x", "b": "X ", "c": "y", "d": "y", "e": "z", "f": "w"}
    assert kept_together(queries) == {"a": "a", "b": "a", "c": "c", "d": "c", "e": "e", "f": "f"}
    groups = {"a": "1", "b": "2", "c": "2", "d": "3", "e": "3", "f": "4"}
    assert {*kept_together(queries, groups).values()} == {"1", "4"}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("how", ["in place", "renamed over it"])
def test_a_file_that_keeps_its_size_and_time_is_read_again(how, packed, tmp_path):
    home = written(tmp_path / "home", same="nothing")
    qrels = home / "test" / "qrels.trec"
    old = qrels.read_text()
    times = (qrels.stat().st_atime_ns, qrels.stat().st_mtime_ns - 10**13)
    if packed:
        qrels = home / "docs.jsonl"
        old = qrels.read_text()
        (home / "docs.jsonl.gz").write_bytes(gzip.compress(old.encode(), mtime=0))
        qrels.unlink()
        qrels = home / "docs.jsonl.gz"
    os.utime(qrels, ns=times)
    before = load_collection(home)
    new = old.replace("x9 1", "x9 2") if not packed else old.replace("words 1", "words 7")
    content = gzip.compress(new.encode(), mtime=0) if packed else new.encode()
    if how == "in place":
        with qrels.open("r+b") as file:
            file.write(content)
            file.truncate()
    else:
        (home / "unfinished").write_bytes(content)
        (home / "unfinished").rename(qrels)
    os.utime(qrels, ns=times)
    after = load_collection(home)
    assert after.content_hash != before.content_hash
    if not packed:
        assert dict(after.splits["test"].qrels["test9"]) == {"x9": 2}
