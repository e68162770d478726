"""A collection of three documents in each supported format, which all read the same."""

import gzip
import json
import re
from pathlib import Path

import pytest

from rank_core.data.folder import _content_hash, load_folder
from rank_core.data.load import load_collection
from rank_core.data.readers import parse_fields, qrels_of
from rank_core.data.spans import relevant_spans, spans_file
from rank_core.data.transforms.expression import apply_transforms
from rank_core.data.trec import write_run
from rank_core.errors import BadInput
from sweeps.plan.options import parse

DOCUMENTS = {"1": ("Cats", "cats sleep a lot"), "2": ("", "dogs bark"), "3": ("", "dogs and cats")}
QUERIES = {"t1": "sleeping cats", "v1": "barking dogs", "v2": "nobody judged this", "e1": "cats"}
QRELS = {"train": [("t1", "1", 1)], "dev": [("v1", "2", 2), ("v1", "3", 0)]}
QRELS |= {"test": [("e1", "3", 1)]}
HEADER = "query-id\tcorpus-id\tscore"


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


def splits(home: Path) -> None:
    """Queries and judgments in our own layout."""
    for name, judged in QRELS.items():
        first = {"dev": "v"}.get(name, "t" if name == "train" else "e")
        own = {key: text for key, text in QUERIES.items() if key.startswith(first)}
        write(home / name / "queries.tsv", *(f"{key}\t{text}" for key, text in own.items()))
        write(home / name / "qrels.trec", *(f"{q} 0 {d} {grade}" for q, d, grade in judged))


def corpus() -> list[dict[str, object]]:
    return [{"_id": key, "title": title, "text": text} for key, (title, text) in DOCUMENTS.items()]


def beir(home: Path, ending: str = "", header: tuple[str, ...] = (HEADER,)) -> None:
    write_json(home / f"corpus.jsonl{ending}", corpus())
    queries = [{"_id": key, "text": text} for key, text in QUERIES.items()]
    write_json(home / f"queries.jsonl{ending}", queries)
    for name, judged in QRELS.items():
        rows = (f"{q}\t{d}\t{grade}" for q, d, grade in judged)
        called = "validation" if ending and name == "dev" else name
        write(home / "qrels" / f"{called}.tsv", *header, *rows)


def beir_gzip_without_header(home: Path) -> None:
    beir(home, ".gz", ())


def pyserini(home: Path) -> None:
    """`id` and `contents`, which has the title in it."""
    rows = [
        {"id": int(key), "title": title, "contents": f"{title}\n{text}" if title else text}
        for key, (title, text) in DOCUMENTS.items()
    ]
    write_json(home / "docs.jsonl", rows)
    splits(home)


def all_json(home: Path) -> None:
    write_json(home / "docs.jsonl", corpus())
    splits(home)
    (home / "dev" / "queries.tsv").unlink()
    rows = [{"qid": "v1", "query": QUERIES["v1"]}, {"qid": "v2", "question": QUERIES["v2"]}]
    write_json(home / "dev" / "queries.jsonl", rows)
    (home / "test" / "qrels.trec").unlink()
    write_json(home / "test" / "qrels.jsonl", [{"qid": "e1", "docno": "3", "label": 1}])


FORMS = {form.__name__: form for form in (beir, beir_gzip_without_header, pyserini, all_json)}


def assert_the_pets(collection):
    texts = {key: f"{title}\n{text}".strip() for key, (title, text) in DOCUMENTS.items()}
    assert dict(collection.documents) == texts
    assert list(collection.documents) == list(DOCUMENTS)
    assert list(collection.splits) == list(QRELS)
    for name, split in collection.splits.items():
        judged = {q: {d: grade for _, d, grade in QRELS[name]} for q, _, _ in QRELS[name]}
        assert dict(split.qrels) == judged
        assert dict(split.queries) == {key: QUERIES[key] for key in judged}
    assert list(collection.splits["dev"].candidates["v1"]) == ["2", "3"]  # BM25
    assert collection.name == "pets"


@pytest.mark.parametrize("form", FORMS)
def test_a_collection_reads_the_same_in_each_form(form, home):
    FORMS[form](home)
    assert_the_pets(load_folder(home))


@pytest.mark.parametrize("title", ["", " ", "\n\t ", None])
def test_a_blank_title_is_none(title, home, monkeypatch):
    """A line break before a text would be the first token of every document, as in no library."""
    splits(home)
    named = []

    def noted(files, fields=()):
        named.extend(field for field in fields if field[0] == "blank titles")
        return _content_hash(files, fields)

    monkeypatch.setattr("rank_core.data.folder._content_hash", noted)
    rows = [{"_id": key, "title": title, "text": text} for key, (_, text) in DOCUMENTS.items()]
    write_json(home / "docs.jsonl", rows)
    collection = load_folder(home)
    assert dict(collection.documents) == {key: text for key, (_, text) in DOCUMENTS.items()}
    # Where texts began with a line break once, trials have other names; no others do.
    assert len(named) == (title is not None)


@pytest.mark.parametrize(
    ("names", "label"),
    [
        ({}, "BM25"),
        ({"train": "bm25.top100.run", "test": "BM25.run.gz"}, "BM25"),
        (dict.fromkeys(QRELS, "splade.v3.run"), "splade"),
        ({"test": "splade.run"}, ""),
    ],
)
def test_the_first_stage_has_the_name_of_its_run_files(home, names, label):
    pyserini(home)
    for split, name in names.items():
        write_run(home / split / name, {QRELS[split][0][0]: {"1": 1.0}}, "tag")
    collection = load_folder(home)
    assert collection.first_stage == label
    by = apply_transforms(collection, [("first-stage", {"by": "rm3"})])
    assert by.first_stage == "BM25+RM3"


def test_a_run_file_is_the_first_stage_of_its_split(home):
    pyserini(home)
    write_run(home / "dev" / "my.run.gz", {"v1": {"1": 1.0, "3": 2.0}, "v2": {"1": 1.0}}, "t")
    splits = load_folder(home).splits
    assert list(splits["dev"].candidates) == ["v1"]
    assert list(splits["dev"].candidates["v1"].items()) == [("3", 2.0), ("1", 1.0)]
    assert sorted(splits["test"].candidates["e1"]) == ["1", "3"]  # still BM25


def test_the_hash_does_not_depend_on_the_compression_or_the_place(home):
    pyserini(home)
    plain, content = load_folder(home), (home / "docs.jsonl").read_bytes()
    (home / "docs.jsonl").unlink()
    for time in (0, 12345):
        (home / "docs.jsonl.gz").write_bytes(gzip.compress(content, mtime=time))
        assert load_folder(home).content_hash == plain.content_hash
    moved = load_folder(home.rename(home.with_name("moved")))
    assert (moved.name, moved.content_hash) == ("moved", plain.content_hash)
    assert re.fullmatch("[0-9a-f]{16}", plain.content_hash)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("docs.jsonl", "bark", "barkk"),
        ("train/queries.tsv", "sleeping", "waking"),
        ("dev/qrels.trec", "2 2", "2 1"),
        ("test/x.run", "1.5", "1.25"),
    ],
)
def test_a_change_of_any_file_changes_the_hash_in_the_same_process(home, name, old, new):
    pyserini(home)
    write(home / "test" / "x.run", "e1 Q0 1 1 1.5 t")
    before = load_folder(home)
    assert load_folder(home) is before  # cached until a file changes
    (home / name).write_text((home / name).read_text().replace(old, new))
    assert load_folder(home).content_hash != before.content_hash


def test_whole_numbers_are_ids_and_grades_under_any_name(home):
    write_json(home / "docs.jsonl", [{"n": 0, "text": "cats"}, {"n": 1, "text": "dogs"}])
    for name, query in zip(QRELS, QUERIES, strict=False):
        write_json(home / name / "queries.jsonl", [{"query_id": query, "text": "cats"}])
        rows = [{"query_id": query, "n": n, "grade": 2 * n} for n in (0, 1)]
        write_json(home / name / "qrels.jsonl", rows)
    collection = load_folder(home, parse_fields("n=doc_id,grade=relevance"))
    assert list(collection.documents) == ["0", "1"]
    assert dict(collection.splits["train"].qrels) == {"t1": {"0": 0, "1": 2}}


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
    words = ["--collection", str(home), "--fields", "uri=doc_id,body=text,head=title"]
    assert parse(words, prog="x", description="").collection == given
    untitled = load_collection(f"{home}|fields(uri=doc_id,body=text)")
    assert untitled.content_hash != named.content_hash
    assert untitled.documents["1"] == "cats sleep a lot"
    assert load_collection(f"{given}|deep(rate=1)").documents == named.documents
    write(home / "spans.jsonl.gz", '{"query_id": "t1", "doc_id": "1", "start": 5, "end": 9}')
    spans = relevant_spans(spans_file(given, named), named)
    assert list(spans) == [("t1", "1", 5, 9)]


def test_a_beir_folder_may_lack_splits_which_are_reported_on_access(home):
    beir(home)
    for name in ("train", "dev"):
        (home / "qrels" / f"{name}.tsv").unlink()
    collection = load_folder(home)
    assert list(collection.splits) == ["test"]
    with pytest.raises(BadInput, match=r"pets has no dev split, only test.* split`.*folds=5"):
        collection.splits["dev"]


def test_a_folder_of_ours_may_lack_whole_splits_and_no_files(home):
    write(home / "docs.jsonl", '{"doc_id": "1", "text": "cats"}')
    with pytest.raises(BadInput, match=r"train/queries\.tsv.*test/qrels\.trec.*`ranksweep split`"):
        load_folder(home)
    write(home / "test" / "queries.tsv", "q1\tcats")
    with pytest.raises(BadInput, match=r"lacks test/qrels\.trec;"):
        load_folder(home)
    write(home / "test" / "qrels.trec", "q1 0 1 1")
    collection = load_folder(home)
    assert [*collection.splits] == ["test"]
    with pytest.raises(BadInput, match=r"no train split, only test.* split`.*folds=5"):
        collection.splits["train"]


ODD_FIELDS = [
    "a|b=doc_id", "a(b=doc_id", "a)b=text", "|=text", "uri=doc_id,a|b=text", "a\nb=text",
    "=doc_id", "uri=", "uri", "", ",", "uri=docid", "uri=doc_id,uri=text", "uri=doc_id=x",
]  # fmt: skip


@pytest.mark.parametrize("fields", ODD_FIELDS)
def test_odd_names_of_fields_are_refused_with_a_sentence(fields, home):
    with pytest.raises(BadInput, match="--fields"):
        parse(["--collection", str(home), "--fields", fields], prog="x", description="")
    with pytest.raises(BadInput):  # inside an expression some are no `fields(...)` at all
        load_collection(f"{home}|fields({fields})|debias")


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (lambda home: (home / "queries.jsonl").unlink(), "queries.jsonl"),
        (lambda home: write_json(home / "corpus.jsonl.gz", []), "corpus.jsonl, corpus.jsonl.gz"),
        (lambda home: write(home / "qrels" / "validation.tsv"), "qrels/validation.tsv"),
        (lambda home: [path.unlink() for path in (home / "qrels").iterdir()], "qrels"),
        (lambda home: (home / "qrels" / "test.tsv").write_text("e1\t3\t1\nv1\t1\t1"), "'v1'"),
        (lambda home: write(home / "corpus.jsonl", '{"_id": "9"}'), r"corpus\.jsonl:1: "),
        (lambda home: write(home / "queries.jsonl", '{"_id": "q"}'), r"queries\.jsonl:1: "),
        (lambda home: write(home / "qrels" / "dev.tsv", HEADER, "v1\t2"), r"dev\.tsv:2: "),
        (lambda home: write(home / "qrels" / "dev.tsv", "v1\t2\tyes"), r"dev\.tsv:1: "),
        (lambda home: write(home / "qrels" / "dev.tsv", *["v1\t2\t1"] * 2), r"dev\.tsv:2: "),
    ],
)
def test_an_incomplete_or_bad_beir_folder_is_refused(broken, named, home):
    beir(home)
    broken(home)
    with pytest.raises(BadInput, match=named):
        load_folder(home)


ONE = {
    "docs.jsonl": "corpus.jsonl",
    "train/queries.tsv": "train.jsonl",
    "dev/qrels.trec": "dev.csv",
}
ONE |= {"dev/queries.tsv": "validation/qrels.trec", "test/queries.tsv": "qrels/test.tsv"}
ONE |= {"dev/qrels.trec ": "qrels/validation.tsv", "test/queries.tsv ": "test/queries.jsonl"}
ONE |= {"test/qrels.trec": "test/qrels.parquet", "docs.jsonl ": "docs.csv", "train/qrels.trec":
        "qrels/train.trec"}  # fmt: skip
"""{a file of our layout: another one for the same thing}."""


@pytest.mark.parametrize(("file", "other"), ONE.items())
def test_two_files_for_one_thing_are_refused_with_both(home, file, other):
    write_json(home / "docs.jsonl", corpus())
    splits(home)
    (home / other).parent.mkdir(exist_ok=True)
    (home / other).write_text("x")
    with pytest.raises(BadInput, match="several files for") as refused:
        load_folder(home)
    assert other in str(refused.value)
    assert Path(file.strip()).parts[0] in str(refused.value)


def test_the_forms_of_splits_may_be_mixed(home):
    beir(home)
    (home / "qrels" / "test.tsv").unlink()
    (home / "qrels" / "dev.tsv").unlink()
    (home / "qrels" / "train.tsv").unlink()
    splits(home)
    (home / "dev").rename(home / "validation")
    assert_the_pets(load_folder(home))


def test_judgments_of_four_columns_are_trec_evals_whatever_their_name(tmp_path):
    write(tmp_path / "qrels.tsv", "v1\t0\t2\t2", "v1\t0\t3\t0")
    assert qrels_of(tmp_path / "qrels.tsv", {}) == {"v1": {"2": 2, "3": 0}}


@pytest.mark.parametrize("text", ["id", "id=", "=doc_id", "id=docid", "id=doc_id,id=text"])
def test_invalid_fields_are_refused(text):
    with pytest.raises(BadInput, match="--fields"):
        parse_fields(text)


def test_fields_need_a_folder():
    with pytest.raises(BadInput, match="--fields"):
        load_collection("python-docs|fields(id=doc_id)")
    with pytest.raises(BadInput, match="--collection"):
        parse(["--fields", "id=doc_id"], prog="x", description="")


def test_files_that_are_not_divided_are_named_with_the_command_that_divides_them(tmp_path):
    for name, text in (
        ("docs.jsonl", '{"doc_id": "d", "text": "a"}'),
        ("queries.tsv", "q\tword"),
        ("qrels.trec", "q 0 d 1"),
    ):
        (tmp_path / name).write_text(text + "\n")
    with pytest.raises(BadInput) as caught:
        load_folder(tmp_path)
    words = f"--docs {tmp_path}/docs.jsonl --queries {tmp_path}/queries.tsv --qrels {tmp_path}/"
    assert f"`ranksweep split {words}qrels.trec --to FOLDER`" in str(caught.value)
    assert "--shares 0,50,50" in str(caught.value)
