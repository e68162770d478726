"""Judgments, queries, runs and documents of an ir_datasets id, wherever a command takes a file."""

import json

import pytest

from rank_core.chunking.inputs import content_hashes, load_inputs
from rank_core.data.folder import SPLITS
from rank_core.data.named_files import named_digest, named_qrels, named_queries, named_run
from rank_core.data.trec import read_qrels, read_queries, read_run, write_qrels, write_run
from rank_core.errors import BadInput
from rank_core.settings.config import TrialConfig
from rank_core.settings.training import Training
from rank_core.training.examples import write_training_rows
from sweeps.__main__ import main

DEV = "ir:msmarco-document/dev"


@pytest.fixture
def documents(written, tmp_path, monkeypatch):
    """MS MARCO documents in small, and a folder to write in."""
    written("msmarco_documents")
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_an_id_gives_what_its_files_give(documents):
    assert named_qrels(DEV)["200"] == {"D0": 2, "D1": 1, "D2": 0, "D999": 1}
    assert named_queries(DEV)["201"] == "what is 201"
    assert list(dict(named_run(DEV))["200"]) == [f"D{n}" for n in range(10)]


def test_a_missing_part_of_an_id_is_named(documents):
    with pytest.raises(BadInput, match="has no qrels, only docs"):
        named_qrels("ir:msmarco-document")
    with pytest.raises(BadInput, match="unknown ir_datasets id 'msmarco-documents'; did you mean"):
        named_qrels("ir:msmarco-documents")


def test_compare_takes_ids_for_judgments_and_runs(documents, capsys):
    run = {query_id: {"D5": 2.0, "D1": 1.0} for query_id in named_qrels(DEV)}
    write_run(documents / "mine.run", run, tag="mine")
    words = [f"first={DEV}", f"mine={documents / 'mine.run'}"]
    assert main(["compare", *words, "--qrels", DEV, "--out", str(documents / "ids")]) == 0
    write_qrels(documents / "dev.qrels", named_qrels(DEV))
    write_run(documents / "first.run", dict(named_run(DEV)), tag="first")
    words = [f"first={documents / 'first.run'}", words[1]]
    qrels = str(documents / "dev.qrels")
    assert main(["compare", *words, "--qrels", qrels, "--out", str(documents / "files")]) == 0
    name = "comparisons.csv"
    assert (documents / "ids" / name).read_text() == (documents / "files" / name).read_text()


def test_an_id_is_divided(documents):
    words = ["--qrels", DEV, "--queries", DEV, "--docs", DEV, "--run", DEV]
    words += ["--test", "ir:msmarco-document/trec-dl-2019", "--shares", "1,1", "--salt", "a"]
    folder = documents / "divided"
    assert main(["split", *words, "--to", str(folder)]) == 0
    queries = {name: read_queries(folder / name / "queries.tsv") for name in SPLITS}
    assert {name: list(ids) for name, ids in queries.items()} == {
        "train": ["201"],
        "dev": ["200"],
        "test": ["915593", "915594"],
    }
    assert read_qrels(folder / "dev" / "qrels.trec") == {"200": named_qrels(DEV)["200"]}
    assert list(read_run(folder / "train" / "first-stage.run.gz")) == ["201"]
    lines = (folder / "docs.jsonl").read_text().splitlines()
    assert len(lines) == 30 and json.loads(lines[7])["doc_id"] == "D7"


def test_a_trial_takes_ids_for_the_lists_that_it_learns_from(documents):
    lists = "ir:msmarco-document/train"
    config = TrialConfig().override({"training.negatives_from": (lists, DEV)})
    first, second = content_hashes(config)["training.negatives_from"].split("+")
    assert first == named_digest(lists, "scoreddocs") != second
    with pytest.raises(BadInput, match="has no scoreddocs, only docs"):
        named_digest("ir:msmarco-document", "scoreddocs")
    assert named_digest("mine.run", "scoreddocs") is None


def test_training_rows_from_an_id_are_those_of_its_lists(documents, backbone):
    inputs = load_inputs("ir:msmarco-document/train", backbone.name)
    rows = {}
    train = documents / "train.run"
    write_run(train, dict(named_run("ir:msmarco-document/train")), tag="first")
    for name in ("ir:msmarco-document/train", str(train)):
        training = Training(negatives_from=(name,), teacher=name, loss="margin-mse")
        (folder := documents / f"rows{len(rows)}").mkdir()
        write_training_rows(folder, inputs.collection, inputs.tokens, 10, training)
        rows[name] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert len({str(files) for files in rows.values()}) == 1
