"""Files of pairs, a query with relevant texts and others, as splits of a folder; MLDR's files."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from rank_core.data.folder import load_folder
from rank_core.data.load import load_collection
from rank_core.data.named_files import named_run
from rank_core.errors import BadInput

pytestmark = pytest.mark.usefixtures("own_cache")


def put(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def hashed(split: str, text: str) -> str:
    return f"{split}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three documents, a test query, and training texts of which one is a document."""
    home = tmp_path / "pets"
    texts = {"d1": "cats sleep a lot", "d2": "dogs bark", "d3": "dogs and cats"}
    put(home / "corpus.jsonl", [{"_id": key, "text": text} for key, text in texts.items()])
    put(home / "queries.jsonl", [{"_id": "e1", "text": "barking cats"}])
    (home / "qrels").mkdir()
    (home / "qrels" / "test.tsv").write_text("e1\td2\t1\n")
    put(
        home / "train.jsonl",
        [
            {"query": "a", "pos": ["cats purr"], "neg": ["barking", "fish"], "pos_scores": [3],
             "neg_scores": [1.5, -2]},
            {"anchor": "a", "positive": "cats meow", "negative": "fish", "pos_scores": [2],
             "neg_scores": [-2]},
            {"qid": 7, "query": "b", "pos": [{"docid": "d1", "text": "cats sleep a lot"}]},
        ],
    )  # fmt: skip
    return home


def test_lines_of_one_query_are_its_training_data_and_no_candidates_of_others(folder):
    collection = load_folder(folder)
    a, purr, meow, bark, fish = (
        hashed("train", text) for text in ("a", "cats purr", "cats meow", "barking", "fish")
    )
    assert list(collection.documents) == ["d1", "d2", "d3", purr, bark, fish, meow]
    train = collection.splits["train"]
    assert train.queries == {a: "a", "7": "b"}
    assert train.qrels == {a: {purr: 1, meow: 1}, "7": {"d1": 1}}
    assert {key: list(ranked) for key, ranked in train.candidates.items()} == {
        a: [bark, fish],
        "7": [],
    }
    # "barking" would be first, but it is not a document of the collection.
    assert set(collection.splits["test"].candidates["e1"]) <= {"d1", "d2", "d3"}


def test_another_first_stage_ranks_no_texts_of_training_either(folder):
    collection = load_collection(f"{folder}|first-stage(k1=1.2)")
    assert set(collection.splits["test"].candidates["e1"]) <= {"d1", "d2", "d3"}
    assert "fish" in collection.documents.values()


def test_scores_are_those_of_a_teacher(folder):
    put(folder / "train.jsonl", rows := [{"query": "a", "pos": ["x"], "neg": ["y"]}])
    with pytest.raises(BadInput, match=r"train\.jsonl:1: .*pos_scores"):
        dict(named_run(folder / "train.jsonl"))
    put(folder / "train.jsonl", [rows[0] | {"pos_scores": [2], "neg_scores": [0.5]}])
    run = dict(named_run(folder / "train.jsonl"))
    assert run == {hashed("train", "a"): {hashed("train", "x"): 2, hashed("train", "y"): 0.5}}


def test_labels_are_judgments_of_every_split_and_their_zeros_are_trained_against(folder):
    labelled = [("a", "cats purr", 1), ("a", "fish", 0), ("b", "fish", 2), ("b", "cats purr", 0)]
    rows = [{"anchor": q, "positive": text, "label": grade} for q, text, grade in labelled]
    for split in ("train", "dev"):
        put(folder / f"{split}.jsonl", [row | {"qid": f"{split}-{row['anchor']}"} for row in rows])
    splits = load_folder(folder).splits
    for split in ("train", "dev"):
        purr, fish = hashed(split, "cats purr"), hashed(split, "fish")
        graded = {f"{split}-a": {purr: 1, fish: 0}, f"{split}-b": {fish: 2, purr: 0}}
        assert splits[split].qrels == graded
    ranked = {query_id: [*own] for query_id, own in splits["train"].candidates.items()}
    assert ranked == {
        "train-a": [hashed("train", "fish")],
        "train-b": [hashed("train", "cats purr")],
    }


LINE = '{"query": "a", "pos": [%s]}'
TWICE: dict[str, tuple[dict[str, str], str]] = {
    "two files": (
        {"train": LINE % '{"docid": "0", "text": "a cat"}',
         "dev": LINE.replace('"a"', '"b"') % '{"docid": "0", "text": "a dog"}'},
        "dev.jsonl:1: .*'0'.*train.jsonl:1",
    ),
    "two lines": (
        {"train": LINE % '{"docid": "0", "text": "a"}' + "\n" + LINE % '{"docid": 0, "text": "b"}'},
        "train.jsonl:2: .*'0'.*train.jsonl:1",
    ),
    "a document": (
        {"train": LINE % '{"docid": "d1", "text": "dogs sleep"}'}, "train.jsonl:1: .*corpus.jsonl:1"
    ),
    "a negative": (
        {"train": '{"query": "a", "pos": ["x"], "neg": [{"id": "d2", "text": "no"}]}'},
        "train.jsonl:1: .*corpus.jsonl:2",
    ),
    "a query": (
        {"train": '{"qid": 1, "query": "a", "pos": ["x"]}\n{"qid": 1, "query": "b", "pos": ["x"]}'},
        "train.jsonl:2: .*'1'.*train.jsonl:1",
    ),
    "two grades": (
        {"train": '{"query": "a", "pos": "x", "label": 1}\n{"query": "a", "pos": "x", "label": 0}'},
        "train.jsonl:2: .*as 0, and as 1 before: 'x'",
    ),
}  # fmt: skip
"""{what an id has twice: ({split: lines}, the places)}."""


@pytest.mark.parametrize("kind", TWICE)
def test_an_id_of_two_texts_is_refused_with_both_places(folder, kind):
    files, places = TWICE[kind]
    for split, content in files.items():
        (folder / f"{split}.jsonl").write_text(f"{content}\n")
    with pytest.raises(BadInput, match=places):
        load_folder(folder)


def test_a_document_s_text_may_be_repeated_without_its_title_or_with_other_white_space(folder):
    put(folder / "corpus.jsonl", [{"_id": "d2", "title": "Dogs", "text": "dogs  bark"}])
    texts = [
        {"docid": "d2", "text": "dogs bark"},
        {"docid": "d2", "title": "Dogs", "text": "dogs bark"},
    ]
    put(folder / "train.jsonl", [{"query": str(n), "pos": [text]} for n, text in enumerate(texts)])
    assert dict(load_folder(folder).documents) == {"d2": "Dogs\ndogs  bark"}


def test_ids_in_the_place_of_texts_are_refused(folder):
    put(folder / "train.jsonl", [{"query": "a", "pos": ["d1"], "neg": ["fish"]}])
    assert "d1" in load_folder(folder).documents.values(), "a text may be as short as an id"
    put(folder / "train.jsonl", [{"query": "a", "pos": ["d1"], "neg": ["d2", "d3"]}])
    with pytest.raises(BadInput, match=r"train\.jsonl:1: .*found ids of documents, such as 'd1'"):
        load_folder(folder)


def test_a_file_without_a_relevant_text_is_refused(folder):
    put(folder / "train.jsonl", [{"query": "a", "positive": "x", "label": 0}])
    with pytest.raises(BadInput, match=r"train\.jsonl has no relevant text"):
        load_folder(folder)
    (folder / "train.jsonl").write_text("[]\n")
    with pytest.raises(BadInput, match=r"train\.jsonl:1: .*object"):
        load_folder(folder)


def test_mldr_is_read_from_its_files(tmp_path, monkeypatch):
    home = tmp_path / "hub" / "mldr-v1.0-de"
    docs = {f"doc-de-{n}": f"seite {n} wort{n}" for n in range(5)}
    put(home / "corpus.jsonl.gz", [{"docid": key, "text": text} for key, text in docs.items()])

    def line(split: str, n: int, others: tuple[int, ...] = ()) -> dict[str, object]:
        passages = [{"docid": f"doc-de-{k}", "text": f"seite {k} wort{k}"} for k in (n, *others)]
        query = {"query_id": f"q-de-{split}", "query": f"wort{n}"}
        return query | {"positive_passages": passages[:1], "negative_passages": passages[1:]}

    put(home / "train.jsonl.gz", [line("train", 0, (2, 1))])
    put(home / "dev.jsonl.gz", [line("dev", 3)])
    put(home / "test.jsonl.gz", [line("test", 4)])
    asked: list[object] = []

    def download(*names: object, **words: object) -> str:
        asked.append((*names, *words.values()))
        return str(home.parent)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    collection = load_collection("mldr-de")
    assert asked == [("Shitao/MLDR", "dataset", None, ["mldr-v1.0-de/*.jsonl.gz"])]
    assert collection.name == "mldr-de" and collection.language == "de"
    assert dict(collection.documents) == docs
    train, test = collection.splits["train"], collection.splits["test"]
    assert train.qrels == {"q-de-train": {"doc-de-0": 1}}
    assert list(train.candidates["q-de-train"]) == ["doc-de-2", "doc-de-1"]
    assert test.queries == {"q-de-test": "wort4"} and test.qrels == {"q-de-test": {"doc-de-4": 1}}
    assert next(iter(test.candidates["q-de-test"])) == "doc-de-4"


def test_mldr_without_a_network_is_refused():
    with pytest.raises(BadInput, match=r"mldr-th could not be downloaded from .*Shitao/MLDR"):
        load_collection("mldr-th")
