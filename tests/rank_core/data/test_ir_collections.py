"""Collections and ids of ir_datasets, read from small files in the formats of the real ones;
missing and damaged files are named."""

import gzip
import json
import shutil
import zipfile

import pytest

from rank_core.chunking.inputs import content_hashes
from rank_core.data.ir_collections import IrSource
from rank_core.data.load import load_collection
from rank_core.data.named import NAMED
from rank_core.data.named_files import named_digest, named_qrels, named_queries, named_run
from rank_core.data.readers import queries_of
from rank_core.data.trec import read_qrels, read_run
from rank_core.errors import BadInput
from rank_core.evaluate import per_query
from rank_core.records import SPLITS
from rank_core.settings.config import TrialConfig
from sweeps.__main__ import main
from tests.rank_core.data import real_formats


def first_and_last(mapping):
    names = list(mapping)
    return names[0], names[-1]


def test_msmarco_documents_have_titles_official_candidates_and_judged_test_queries(written):
    written("msmarco_documents")
    collection = load_collection("msmarco-doc")
    assert len(collection.documents) == 30
    assert first_and_last(collection.documents) == ("D0", "D29")
    assert collection.documents["D0"] == "Title 0 body of page 0\nend\n"
    assert list(collection.splits) == ["train", "dev", "test"]
    assert list(collection.splits["train"].queries) == ["100", "101"]
    assert collection.splits["dev"].qrels["201"] == {"D0": 2, "D1": 1, "D2": 0}
    # A relevant document that is missing is measured and not trained on.
    assert collection.splits["train"].qrels["100"] == {"D0": 2, "D1": 1, "D2": 0}
    assert collection.splits["dev"].qrels["200"] == {"D0": 2, "D1": 1, "D2": 0, "D999": 1}
    test = collection.splits["test"]
    assert list(test.queries) == ["915593", "915594"]
    assert list(test.candidates) == list(test.queries)
    assert list(test.candidates["915593"].items())[:2] == [("D0", -1.0), ("D1", -2.0)]
    assert len(test.candidates["915594"]) == 10


def test_pooled_years_keep_their_queries_apart(written):
    written("msmarco_documents")
    pooled = load_collection("msmarco-doc-dl19-20").splits["test"]
    ids = ["dl19/915593", "dl19/915594", "dl20/1108100", "dl20/1108101"]
    assert list(pooled.queries) == list(pooled.qrels) == list(pooled.candidates) == ids
    alone = load_collection("msmarco-doc-dl20").splits["test"]
    assert pooled.candidates["dl20/1108100"] == alone.candidates["1108100"]


@pytest.mark.slow
def test_robust04_reads_2295_files_and_has_the_folds_of_huston_and_croft(written):
    written("robust04")
    fold1 = load_collection("robust04-title")
    assert len(fold1.documents) == 2295
    assert first_and_last(fold1.documents) == ("FB-0", "LA-2294")
    assert fold1.documents["FB-0"].split() == "Headline 0 story0 told in the news".split()
    sizes = {name: len(split.queries) for name, split in fold1.splits.items()}
    assert sizes == {"train": 149, "dev": 50, "test": 50}
    assert first_and_last(fold1.splits["test"].queries) == ("302", "700")
    assert fold1.splits["test"].queries["302"] == "story302"
    assert fold1.splits["test"].candidates["302"].keys() == {"FB-302"}
    description = load_collection("robust04-desc").splits["test"].queries["302"]
    assert description == "Find news about story302"


def test_beir_is_read_from_its_zip_and_ranked_by_bm25(written):
    written("beir", "nfcorpus", ("train", "dev", "test"))
    collection = load_collection("beir-nfcorpus")
    assert first_and_last(collection.documents) == ("MED-0", "MED-24")
    assert len(collection.documents) == 25
    assert collection.documents["MED-24"] == "Study 24 effect24 seen"
    test = collection.splits["test"]
    assert test.queries == {"test-0": "effect0", "test-1": "effect1"}
    assert test.qrels == {"test-0": {"MED-0": 2}, "test-1": {"MED-1": 1}}
    assert list(test.candidates["test-1"]) == ["MED-1"]
    assert list(collection.splits) == ["train", "dev", "test"]


def test_bright_has_long_documents_and_test_queries_alone(written):
    written("bright_long")
    collection = load_collection("bright-biology-long")
    assert dict(collection.documents) == {"moths/Light.txt": "moths", "moths/Moon.txt": "the moon"}
    assert list(collection.splits) == ["test"]
    test = collection.splits["test"]
    assert test.queries == {"0": "why do moths fly to light"}
    assert test.qrels == {"0": {"moths/Light.txt": 1, "moths/Moon.txt": -100}}
    assert list(test.candidates["0"]) == ["moths/Light.txt"]


def test_nano_beir_is_read_from_its_tables(written):
    written("nano_beir")
    collection = load_collection("nano-beir-scifact")
    assert dict(collection.documents) == {"1": "cells", "2": "stars"}
    assert collection.splits["test"].qrels == {"q": {"2": 1}}


def test_an_ir_datasets_id_includes_its_sibling_splits(written):
    written("beir", "nfcorpus", ("train", "dev", "test"))
    named = load_collection("beir-nfcorpus")
    for name in ("ir:beir/nfcorpus/test", "beir/nfcorpus", "beir/nfcorpus/train"):
        found = load_collection(name)
        assert found.content_hash == named.content_hash
        assert found.documents.folder == named.documents.folder
    assert load_collection("beir/nfcorpus").name == "ir:beir/nfcorpus"
    with pytest.raises(BadInput, match=r"unknown ir_datasets id 'beir/nfcorpse'.*mean beir/nfcorp"):
        load_collection("ir:beir/nfcorpse")


def test_gov2_needs_a_run_and_keeps_its_documents(written, ir_home):
    written("gov2")
    with pytest.raises(BadInput, match=r"put a TREC run for its pool queries at .*runs/gov2-title"):
        load_collection("gov2-title")
    folder = ir_home / "runs" / "gov2-title"
    folder.mkdir(parents=True)
    rows = [f"{t} Q0 GX000-0{t % 2}-0000003 1 5.5 indri\n" for t in (701, 702, 751, 801, 999)]
    (folder / "pool.run").write_text("".join(rows))
    collection = load_collection("gov2-title/fold3")
    assert list(collection.documents) == [
        "GX000-00-0000001",
        "GX000-00-0000003",
        "GX000-01-0000003",
    ]
    assert collection.documents["GX000-00-0000003"].split() == "Page 3 text of 00 3".split()
    assert sum(len(split.queries) for split in collection.splits.values()) == 12
    assert load_collection("gov2-title/fold1").content_hash != collection.content_hash
    train = collection.splits["train"]
    # A relevant page that the collection lacks counts when measuring, and is not trained on.
    assert all("GX000-01-0000009" not in judged for judged in train.qrels.values())
    assert all(j["GX000-01-0000009"] == 1 for j in collection.splits["test"].qrels.values())


def test_a_run_with_unknown_documents_is_refused(written, ir_home):
    written("gov2")
    folder = ir_home / "runs" / "gov2-mq2007"
    folder.mkdir(parents=True)
    (folder / "pool.run").write_text("1 Q0 GX000-00-0000001 1 2 x\n1 Q0 GX000-00-999 2 1 x\n")
    with pytest.raises(
        BadInput, match="1 documents are not in the collection, such as GX000-00-999"
    ):
        load_collection("gov2-mq2007")
    (folder / "pool.run").write_text("1 Q0 GX000-00-0000001 1 2 x\n")
    collection = load_collection("gov2-mq2007")
    assert sum(len(split.queries) for split in collection.splits.values()) == 14  # 6 of grade 0


@pytest.fixture(scope="module")
def other_home(tmp_path_factory):
    return tmp_path_factory.mktemp("other") / "home"


@pytest.fixture
def empty_home(ir_environment, other_home, monkeypatch):
    for name, value in (ir_environment | {"IR_DATASETS_HOME": str(other_home)}).items():
        monkeypatch.setenv(name, value)
    shutil.rmtree(other_home, ignore_errors=True)
    real_formats.settle_ir_datasets(other_home)
    return other_home


@pytest.mark.parametrize(
    ("name", "path"), [("robust04-desc", "disks45/corpus"), ("beir-trec-covid", "trec-covid")]
)
def test_a_missing_file_is_named_by_its_dataset_and_path(empty_home, own_cache, capfd, name, path):
    with pytest.raises(BadInput, match=r"(disks45|beir)/[\w/-]+ could not be read") as caught:
        load_collection(name)
    assert path in str(caught.value) + capfd.readouterr().err and "\n" not in str(caught.value)


def test_a_damaged_file_is_refused_by_the_name_of_its_dataset(empty_home, own_cache):
    real_formats.msmarco_documents(empty_home)
    path = empty_home / "msmarco-document" / "collection.tsv.gz"
    whole = path.read_bytes()
    for damaged in (whole[:-200], gzip.compress(b"")):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="msmarco-document"):
            load_collection("msmarco-doc")
    path.write_bytes(whole)
    assert len(load_collection("msmarco-doc").documents) == 30


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_part_has_queries_and_judgments_over_the_same_documents(name, ir_home):
    recipe = NAMED[name]
    for part in recipe.parts:
        source = IrSource(part.dataset_id)
        assert source.has("docs", "queries", "qrels")
        if part.candidates:
            assert all(IrSource(ranked).has("scoreddocs") for ranked in part.candidates)
        if part.query_field:
            assert part.query_field in source._dataset.queries_cls()._fields
    assert len({IrSource(part.dataset_id).documents_id for part in recipe.parts}) == 1


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


def test_an_id_is_divided(documents):
    words = ["--qrels", DEV, "--queries", DEV, "--docs", DEV, "--run", DEV]
    words += ["--test", "ir:msmarco-document/trec-dl-2019", "--shares", "1,1", "--salt", "a"]
    folder = documents / "divided"
    assert main(["split", *words, "--to", str(folder)]) == 0
    queries = {name: queries_of(folder / name / "queries.tsv", {}) for name in SPLITS}
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


def beir_as_published(name):
    """{file: content} of FiQA, which has empty documents, or ArguAna, whose corpus lacks a judged
    document."""
    texts = {
        n: f"advice{n} on money{n % 7} and tax" if n % 9 or name == "arguana" else ""
        for n in range(40)
    }
    title = {"fiqa": "", "arguana": "On tax"}[name]
    fields = {"metadata": {}}
    corpus = [{"_id": f"d{n}", "title": title, "text": texts[n]} | fields for n in texts]
    number, judged = 0, {}
    for split in ("train", "dev", "test") if name == "fiqa" else ("test",):
        numbers = [n for n in range(number, number + 10) if texts[n]]
        judged[split] = {f"{split}{n}": (f"money{n % 7} tax", f"d{n}") for n in numbers}
        number += 10
    if name == "arguana":
        judged["test"]["test3"] = ("money3 tax", "gone")
    queries = [
        {"_id": key, "text": text} | fields
        for own in judged.values()
        for key, (text, _) in own.items()
    ]
    files = {"corpus.jsonl": corpus, "queries.jsonl": queries}
    contents = {
        file: "".join(json.dumps(row) + "\n" for row in rows) for file, rows in files.items()
    }
    for split, own in judged.items():
        rows = "".join(f"{key}\t{doc_id}\t1\n" for key, (_, doc_id) in own.items())
        contents[f"qrels/{split}.tsv"] = f"query-id\tcorpus-id\tscore\n{rows}"
    return contents


@pytest.mark.parametrize("name", ["fiqa", "arguana"])
def test_beir_as_published_has_the_same_values_as_a_folder(name, ir_home, tmp_path, capsys):
    contents, archive = beir_as_published(name), ir_home / "beir" / name / "source.zip"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as unfinished:
        for file, content in contents.items():
            unfinished.writestr(f"{name}/{file}", content)
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    whole, folder = load_collection(f"ir:beir/{name}"), load_collection(str(tmp_path / name))
    assert list(folder.documents) == list(whole.documents)
    for doc_id, text in whole.documents.items():
        assert folder.documents[doc_id].split() == text.split()
        assert not (text[:1] + folder.documents[doc_id][:1]).isspace()
    assert list(folder.splits) == list(whole.splits)
    for split, own in whole.splits.items():
        other = folder.splits[split]
        assert (other.queries, other.qrels) == (own.queries, own.qrels)
        values = [
            per_query(dict(s.qrels), dict(s.candidates), ["nDCG@10", "RR@10", "AP"])
            for s in (own, other)
        ]
        assert values[0].equals(values[1]) and 0 < values[0]["value"].mean() < 1
    said = capsys.readouterr().err
    expected = {"fiqa": "5 of 40 documents are empty", "arguana": "1 of 10 judged documents are"}
    assert expected[name] in said and "fields that are not read: metadata" in said
    assert main(["doctor", "--collection", str(tmp_path / name), "--backbone", "tiny-docs"]) == 0
    qrels = f"{tmp_path}/{name}/qrels/test.tsv"
    texts = [f"{tmp_path}/{name}/{file}.jsonl" for file in ("queries", "corpus")]
    words = ["--qrels", qrels, "--queries", texts[0], "--docs", texts[1], "--shares", "4,3,3"]
    assert main(["split", *words, "--to", f"{tmp_path}/parts"]) == 0
    assert set(load_collection(f"{tmp_path}/parts").splits) == {"train", "dev", "test"}
