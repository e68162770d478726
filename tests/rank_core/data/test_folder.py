"""Collections from a folder: what is read, what the hash covers, and every way to be refused."""

import gzip
import json
import re

import pytest

from rank_core.data.folder import load_folder
from rank_core.data.transforms.expression import apply_transforms
from rank_core.data.trec import write_run

DOCUMENTS = [
    {"doc_id": "d1", "title": "Cats", "text": "cats sleep a lot", "url": "ignored"},
    {"doc_id": "d2", "text": "dogs bark", "title": None},
    {"doc_id": "d3", "text": "dogs and cats"},
]
SPLITS = {
    "train": ("t1\tsleeping cats\n", "t1 0 d1 1\n"),
    "dev": ("v1\tbarking dogs\nv2\tnobody judged this\n", "v1 0 d2 2\nv1 0 d3 0\n"),
    "test": ("e1\tcats\ne2\tzebras\n", "e2 0 d3 0\ne1 0 d3 1\n"),
}


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "pets"
    folder.mkdir()
    (folder / "docs.jsonl").write_text("\n".join(map(json.dumps, DOCUMENTS)))
    for name, (queries, qrels) in SPLITS.items():
        (folder / name).mkdir()
        (folder / name / "queries.tsv").write_text(queries)
        (folder / name / "qrels.trec").write_text(qrels)
    return folder


@pytest.mark.parametrize(
    ("names", "label"),
    [
        ({}, "BM25"),
        ({"train": "bm25.top100.run", "test": "BM25.run.gz"}, "BM25"),
        (dict.fromkeys(SPLITS, "splade.v3.run"), "splade"),
        ({"test": "splade.run"}, ""),
    ],
)
def test_the_first_stage_has_the_name_of_its_run_files(folder, names, label):
    queries = {"train": "t1", "dev": "v1", "test": "e1"}
    for split, name in names.items():
        write_run(folder / split / name, {queries[split]: {"d1": 1.0}}, "tag")
    collection = load_folder(folder)
    assert collection.first_stage == label
    by = apply_transforms(collection, [("first-stage", {"by": "rm3"})])
    assert by.first_stage == "BM25+RM3"


def test_a_folder_is_read_with_titles_splits_and_judged_queries(folder):
    collection = load_folder(folder)
    assert collection.name == "pets"
    assert collection.documents == {
        "d1": "Cats\ncats sleep a lot",
        "d2": "dogs bark",
        "d3": "dogs and cats",
    }
    assert list(collection.splits) == ["train", "dev", "test"]
    assert collection.splits["dev"].queries == {"v1": "barking dogs"}
    assert collection.splits["dev"].qrels == {"v1": {"d2": 2, "d3": 0}}
    assert list(collection.splits["test"].qrels) == list(collection.splits["test"].queries)


def test_without_a_run_file_bm25_over_all_documents_is_the_first_stage(folder):
    splits = load_folder(folder).splits
    assert list(splits["dev"].candidates["v1"]) == ["d2", "d3"]
    assert splits["test"].candidates["e2"] == {}  # no document matches, the query stays
    assert sorted(splits["test"].candidates["e1"]) == ["d1", "d3"]


def test_a_run_file_is_the_first_stage_of_its_split(folder):
    write_run(folder / "dev" / "my.run.gz", {"v1": {"d1": 1.0, "d3": 2.0}, "v2": {"d1": 1.0}}, "t")
    splits = load_folder(folder).splits
    assert list(splits["dev"].candidates) == ["v1"]
    assert list(splits["dev"].candidates["v1"].items()) == [("d3", 2.0), ("d1", 1.0)]
    assert sorted(splits["test"].candidates["e1"]) == ["d1", "d3"]  # still BM25


def test_the_hash_does_not_depend_on_the_compression_or_the_place(folder):
    plain = load_folder(folder)
    path = folder / "docs.jsonl"
    for time in (0, 12345):
        content = gzip.compress(
            path.read_bytes() if path.exists() else content_of(folder), mtime=time
        )
        (folder / "docs.jsonl.gz").write_bytes(content)
        path.unlink(missing_ok=True)
        assert load_folder(folder).content_hash == plain.content_hash
    moved = load_folder(folder.rename(folder.with_name("moved")))
    assert (moved.name, moved.content_hash) == ("moved", plain.content_hash)
    assert re.fullmatch("[0-9a-f]{16}", plain.content_hash)


def content_of(folder):
    return gzip.decompress((folder / "docs.jsonl.gz").read_bytes())


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("docs.jsonl", "bark", "barkk"),
        ("train/queries.tsv", "sleeping", "waking"),
        ("dev/qrels.trec", "d2 2", "d2 1"),
        ("test/x.run", "1.5", "1.25"),
    ],
)
def test_a_change_of_any_file_changes_the_hash_in_the_same_process(folder, name, old, new):
    (folder / "test" / "x.run").write_text("e1 Q0 d1 1 1.5 t\n")
    before = load_folder(folder)
    assert load_folder(folder) is before  # cached until a file changes
    (folder / name).write_text((folder / name).read_text().replace(old, new))
    assert load_folder(folder).content_hash != before.content_hash
