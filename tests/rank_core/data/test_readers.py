"""A collection of three documents in each supported format, which all read the same; errors name
file and line."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rank_core.data.folder import load_folder
from rank_core.data.load import load_collection
from rank_core.data.readers import tables
from rank_core.data.readers.records import documents, parse_fields, qrels_of
from rank_core.data.spans import relevant_spans, spans_file
from rank_core.errors import BadInput
from sweeps.plan.options import parse

DOCUMENTS = {"1": ("Cats", "cats sleep a lot"), "2": ("", "dogs bark"), "3": ("", "dogs and cats")}
QUERIES = {"t1": "sleeping cats", "v1": "barking dogs", "v2": "nobody judged this", "e1": "cats"}
QRELS = {"train": [("t1", "1", 1)], "dev": [("v1", "2", 2), ("v1", "3", 0)]}
QRELS |= {"test": [("e1", "3", 1)]}
OF_SPLIT = {"train": "t", "dev": "v", "test": "e"}


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def home(tmp_path):
    return tmp_path / "pets"


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_json(path: Path, rows: list[dict[str, object]]) -> None:
    write(path, *map(json.dumps, rows))


def write_parquet(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)


def splits(home: Path) -> None:
    """Queries and judgments in our own layout."""
    for name, judged in QRELS.items():
        own = {key: text for key, text in QUERIES.items() if key.startswith(OF_SPLIT[name])}
        write(home / name / "queries.tsv", *(f"{key}\t{text}" for key, text in own.items()))
        write(home / name / "qrels.trec", *(f"{q} 0 {d} {grade}" for q, d, grade in judged))


def corpus(id_name: str = "_id") -> list[dict[str, object]]:
    return [
        {id_name: key, "title": title, "text": text, "metadata": {"url": "u"}}
        for key, (title, text) in DOCUMENTS.items()
    ]


def queries() -> list[dict[str, object]]:
    return [{"_id": key, "text": text} for key, text in QUERIES.items()]


def judgments(name: str) -> list[dict[str, object]]:
    return [{"query-id": q, "corpus-id": d, "score": grade} for q, d, grade in QRELS[name]]


def beir_qrels(home: Path, *names: str) -> None:
    for name in names:
        rows = (f"{q}\t{d}\t{grade}" for q, d, grade in QRELS[name])
        write(home / "qrels" / f"{name}.tsv", "query-id\tcorpus-id\tscore", *rows)


def beir(home: Path) -> None:
    write_json(home / "corpus.jsonl", corpus())
    write_json(home / "queries.jsonl", queries())
    beir_qrels(home, *QRELS)


def beir_gzip(home: Path) -> None:
    write_json(home / "corpus.jsonl.gz", corpus())
    write_json(home / "queries.jsonl.gz", queries())
    beir_qrels(home, *QRELS)


def beir_parquet(home: Path) -> None:
    """Shards, as the hub has them, with numbers for ids."""
    for n, row in enumerate(corpus()):
        row["_id"] = int(str(row["_id"]))
        write_parquet(home / "corpus" / f"train-{n}-of-3.parquet", [row])
    write_parquet(home / "queries.parquet", queries())
    for name in QRELS:
        called = {"dev": "validation"}.get(name, name)
        rows = [row | {"corpus-id": int(str(row["corpus-id"]))} for row in judgments(name)]
        write_parquet(home / "qrels" / f"{called}.parquet", rows)


def pyserini(home: Path) -> None:
    """`id` and `contents` in a folder of shards, whose contents have the title in them."""
    rows = [
        {"id": key, "title": title, "contents": f"{title}\n{text}" if title else text}
        for key, (title, text) in DOCUMENTS.items()
    ]
    write_json(home / "docs" / "docs00.jsonl", rows[:2])
    write_json(home / "docs" / "docs01.jsonl", rows[2:])
    splits(home)


def tsv(home: Path) -> None:
    rows = (f"{key}\t{title}\t{text}" for key, (title, text) in DOCUMENTS.items())
    write(home / "docs.tsv", *rows)
    splits(home)


def tsv_with_a_header(home: Path) -> None:
    rows = (f"u\t{text}\t{key}\t{title}" for key, (title, text) in DOCUMENTS.items())
    write(home / "docs.tsv.gz", "url\ttext\tdocno\ttitle", *rows)
    splits(home)


def own_parquet(home: Path) -> None:
    write_parquet(home / "docs.parquet", corpus("doc_id"))
    splits(home)
    (home / "dev" / "queries.tsv").unlink()
    rows = [{"qid": "v1", "query": QUERIES["v1"]}, {"qid": "v2", "query": QUERIES["v2"]}]
    write_parquet(home / "dev" / "queries.parquet", rows)
    (home / "test" / "qrels.trec").unlink()
    write_json(home / "test" / "qrels.jsonl", [{"qid": "e1", "docno": "3", "label": 1}])


FORMS = {
    form.__name__: form
    for form in (
        beir,
        beir_gzip,
        beir_parquet,
        pyserini,
        tsv,
        tsv_with_a_header,
        own_parquet,
    )
}


def assert_the_pets(collection):
    texts = {key: f"{title}\n{text}" for key, (title, text) in DOCUMENTS.items()}
    assert {key: text.strip() for key, text in collection.documents.items()} == {
        key: text.strip() for key, text in texts.items()
    }
    assert list(collection.documents) == list(DOCUMENTS)
    assert list(collection.splits) == list(QRELS)
    for name, split in collection.splits.items():
        judged = {q: {} for q, _, _ in QRELS[name]}
        for q, d, grade in QRELS[name]:
            judged[q][d] = grade
        assert dict(split.qrels) == judged
        assert dict(split.queries) == {key: QUERIES[key] for key in judged}
    assert list(collection.splits["dev"].candidates["v1"]) == ["2", "3"]  # BM25


def test_whole_numbers_are_ids_and_grades_under_any_name(home):
    write_json(home / "docs.jsonl", [{"n": 0, "text": "cats"}, {"n": 1, "text": "dogs"}])
    for name, query in zip(QRELS, QUERIES, strict=False):
        write_json(home / name / "queries.jsonl", [{"query_id": query, "text": "cats"}])
        rows = [{"query_id": query, "n": n, "grade": 2 * n} for n in (0, 1)]
        write_json(home / name / "qrels.jsonl", rows)
    collection = load_folder(home, parse_fields("n=doc_id,grade=relevance"))
    assert list(collection.documents) == ["0", "1"]
    assert dict(collection.splits["train"].qrels) == {"t1": {"0": 0, "1": 2}}
    write_json(home / "docs.jsonl", [{"n": True, "text": "cats"}])
    with pytest.raises(BadInput, match=r"docs.jsonl:1: n .* true"):
        load_folder(home, parse_fields("n=doc_id,grade=relevance"))


@pytest.mark.parametrize("form", FORMS)
def test_a_collection_reads_the_same_in_each_form(form, home):
    FORMS[form](home)
    assert_the_pets(load_folder(home))


def test_unknown_field_names_can_be_given(home):
    rows = [
        {"uri": key, "head": title or None, "body": text}
        for key, (title, text) in DOCUMENTS.items()
    ]
    write_json(home / "docs.jsonl", rows)
    splits(home)
    for fields in ("", "nokey=doc_id,body=text"):
        with pytest.raises(BadInput, match=r"doc_id.*uri.*--fields THEIRS=doc_id"):
            load_folder(home, parse_fields(fields) if fields else {})
    given = f"{home}|fields(uri=doc_id,body=text,head=title)"
    named = load_collection(given)
    assert_the_pets(named)
    options = parse(
        ["--collection", str(home), "--fields", "uri=doc_id,body=text,head=title"],
        prog="x",
        description="",
    )
    assert options.collection == given
    untitled = load_collection(f"{home}|fields(uri=doc_id,body=text)")
    assert untitled.content_hash != named.content_hash
    assert untitled.documents["1"] == "cats sleep a lot"
    assert load_collection(f"{given}|deep(rate=1)").documents == named.documents
    write(home / "spans.jsonl.gz", '{"query_id": "t1", "doc_id": "1", "start": 5, "end": 9}')
    spans = relevant_spans(spans_file(given, named), named)
    assert list(spans) == [("t1", "1", 5, 9)]


def test_columns_of_a_file_without_names_are_given_by_number(home):
    rows = (f"{key}\thttp://x\t{title}\t{text}" for key, (title, text) in DOCUMENTS.items())
    write(home / "docs.tsv", *rows)
    splits(home)
    assert_the_pets(load_folder(home, parse_fields("1=doc_id,3=title,4=text")))


def test_a_beir_folder_may_lack_splits_which_are_reported_on_access(home):
    write_json(home / "corpus.jsonl", corpus())
    write_json(home / "queries.jsonl", queries())
    beir_qrels(home, "test")
    collection = load_folder(home)
    assert list(collection.splits) == ["test"]
    with pytest.raises(BadInput, match=r"pets has no dev split, only test"):
        collection.splits["dev"]


def test_a_bad_row_of_a_table_is_named_by_its_number(home):
    beir_parquet(home)
    rows = [row | {"text": None if row["_id"] == "v2" else row["text"]} for row in queries()]
    write_parquet(home / "queries.parquet", rows)
    with pytest.raises(BadInput, match=r"queries\.parquet:row 3: "):
        load_folder(home)


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (lambda home: (home / "queries.jsonl").unlink(), "queries.jsonl"),
        (lambda home: (home / "corpus").mkdir(), "corpus.jsonl and corpus"),
        (lambda home: write_json(home / "corpus.tsv", []), "corpus.tsv"),
        (lambda home: [path.unlink() for path in (home / "qrels").iterdir()], "qrels"),
        (lambda home: (home / "qrels" / "test.tsv").write_text("e1\t3\t1\nv1\t1\t1"), "'v1'"),
    ],
)
def test_an_incomplete_beir_folder_is_refused(broken, named, home):
    beir(home)
    broken(home)
    with pytest.raises(BadInput, match=named):
        load_folder(home)


def test_a_folder_of_other_files_is_no_table(home):
    pyserini(home)
    write(home / "docs" / "README.md", "hello")
    load_folder(home)  # other files are ignored
    write(home / "docs" / "more.tsv", "4\tx")
    with pytest.raises(BadInput, match=r"docs.*docs00"):
        load_folder(home)


def test_one_batch_of_a_table_is_in_memory(home, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_AT_ONCE", 10)
    home.mkdir()
    rows = [{"doc_id": f"d{n}", "text": "x" * 10_000, "unread": "y" * 10_000} for n in range(500)]
    table, path = pa.Table.from_pylist(rows), home / "docs.parquet"
    pq.write_table(table, path, row_group_size=50, compression="none")
    del rows, table
    before, most = pa.total_allocated_bytes(), 0
    for number, (_, doc_id, text) in enumerate(documents(path, {})):
        assert doc_id == f"d{number}" and len(text) == 10_000
        most = max(most, pa.total_allocated_bytes() - before)
    assert number == 499 and most < 2_500_000 < 500 * 10_000


def test_judgments_of_four_columns_are_trec_evals_whatever_their_name(tmp_path):
    write(tmp_path / "qrels.tsv", "v1\t0\t2\t2", "v1\t0\t3\t0")
    assert qrels_of(tmp_path / "qrels.tsv", {}) == {"v1": {"2": 2, "3": 0}}
    write(tmp_path / "three.tsv", "v1\t2\t2", "v1\t3\t0")
    assert qrels_of(tmp_path / "three.tsv", {}) == {"v1": {"2": 2, "3": 0}}


@pytest.mark.parametrize("text", ["id", "id=", "=doc_id", "id=docid", "id=doc_id,id=text"])
def test_invalid_fields_are_refused(text):
    with pytest.raises(BadInput, match="--fields"):
        parse_fields(text)


def test_fields_need_a_folder():
    with pytest.raises(BadInput, match="--fields"):
        load_collection("python-docs|fields(id=doc_id)")
    with pytest.raises(BadInput, match="--collection"):
        parse(["--fields", "id=doc_id"], prog="x", description="")
