"""Collections of published files that no library reads: LongEmbed's, and MS MARCO FarRelevant."""

import gzip
import io
import json
import tarfile

import pytest

from rank_core.data.load import is_prepared, load_collection
from rank_core.data.made import longembed, msmarco_far_relevant
from rank_core.errors import BadInput


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


@pytest.fixture
def needle(tmp_path, monkeypatch):
    """Two lengths of Needle, each with two queries and three documents; what is asked of the Hub.
    The ids, fields and words of queries are those of the published lines."""
    home = tmp_path / "hub"
    (home / "needle").mkdir(parents=True)
    facts = ("The longest river is the Nile.", "Vermeer painted the pearl.", "Nothing is here.")
    corpus, queries, qrels = [], [], []
    for length in (256, 512):
        own = {"context_length": length}
        corpus += [{"doc_id": f"ctx{length}_d{n}", "text": facts[n], **own} for n in (2, 1, 0)]
        for n, text in enumerate(("which river?", "who painted?")):
            queries.append({"qid": f"ctx{length}_query{n}", "text": text, **own})
            qrels.append({"qid": f"ctx{length}_query{n}", "doc_id": f"ctx{length}_d{n}", **own})
    for table, rows in (("corpus", corpus), ("queries", queries), ("qrels", qrels)):
        (home / "needle" / f"{table}.jsonl").write_bytes(lines(*rows))
    asked = []

    def download(repository, **words):
        asked.append((repository, *words.values()))
        return str(home)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    return asked


def test_longembed_is_read_by_length_and_as_a_whole(needle, own_cache):
    assert not is_prepared("longembed-needle-512")
    one, every = (load_collection(f"longembed-needle{end}") for end in ("-512", ""))
    files = ("dwzhu/LongEmbed", "dataset", longembed.REVISION, ["needle/*.jsonl"])
    assert needle == [files] * 2 and is_prepared("longembed-needle-512")
    assert one.name == "longembed-needle-512" and list(one.splits) == ["test"]
    test = one.splits["test"]
    assert dict(one.documents) == {
        "ctx512_d0": "The longest river is the Nile.",
        "ctx512_d1": "Vermeer painted the pearl.",
        "ctx512_d2": "Nothing is here.",
    }
    assert test.queries == {"ctx512_query0": "which river?", "ctx512_query1": "who painted?"}
    assert test.qrels == {"ctx512_query0": {"ctx512_d0": 1}, "ctx512_query1": {"ctx512_d1": 1}}
    assert len(every.documents) == 6 and len(every.splits["test"].queries) == 4


def test_every_document_of_longembed_is_a_candidate(needle, own_cache):
    """Those without a word of the query come last: no reranker may be spared a document."""
    collection = load_collection("longembed-needle-256")
    assert collection.first_stage == "BM25"
    ranked = {q: list(own) for q, own in collection.splits["test"].candidates.items()}
    assert ranked == {
        "ctx256_query0": ["ctx256_d0", "ctx256_d1", "ctx256_d2"],
        "ctx256_query1": ["ctx256_d1", "ctx256_d0", "ctx256_d2"],
    }


def test_a_file_of_longembed_without_a_field_is_refused(needle, own_cache, tmp_path):
    (tmp_path / "hub/needle/queries.jsonl").write_bytes(lines({"qid": "q", "text": "who?"}))
    with pytest.raises(BadInput, match=r"queries\.jsonl:1 must have context_length, qid, text"):
        load_collection("longembed-needle")


def far_relevant_files():
    """{place in the archive: content}: a training query, and two of dev, one of them in the
    sample."""
    folder = "msmarco_synthetic_longdoc/input_data"
    texts = {"1": "owls", "2": "bees", "3": "ants"}
    queries = {n: {"DOCNO": n, "text": "lemmas", "text_raw": text} for n, text in texts.items()}
    documents = {
        n: {"DOCNO": f"{n}_7{n}", "text_raw": f"Much before. All about {text}."}
        for n, text in texts.items()
    }

    def part(name, *numbers):
        return {
            f"{folder}/{name}/QuestionFields.jsonl": lines(*(queries[n] for n in numbers)),
            f"{folder}/{name}/AnswerFields.jsonl.gz": gzip.compress(
                lines(*(documents[n] for n in numbers))
            ),
            f"{folder}/{name}/qrels.txt": "".join(f"{n} 0 {n}_7{n} 1\n" for n in numbers).encode(),
        }

    sample = {f"{folder}/dev_official_sample1K/QuestionFields.jsonl": lines(queries["3"])}
    described = {"msmarco_synthetic_longdoc/exper_desc/lucene_conf.json": b"{}"}
    return described | part("bitext", "1") | part("dev_official", "2", "3") | sample


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Writes the archive, without these files, where it is downloaded from."""
    path = tmp_path / msmarco_far_relevant.ARCHIVE
    monkeypatch.setattr(msmarco_far_relevant, "URL", path.as_uri())

    def write(*without):
        with tarfile.open(path, "w:bz2") as packed:
            for place, content in far_relevant_files().items():
                if not place.endswith(without):
                    member = tarfile.TarInfo(place)
                    member.size = len(content)
                    packed.addfile(member, io.BytesIO(content))
        return path

    return write


def test_far_relevant_is_read_from_its_archive(archive, own_cache):
    archive()
    collection = load_collection("msmarco-farrelevant")
    assert collection.name == "msmarco-farrelevant" and is_prepared("msmarco-farrelevant")
    assert dict(collection.documents) == {
        "1_71": "Much before. All about owls.",
        "2_72": "Much before. All about bees.",
        "3_73": "Much before. All about ants.",
    }
    splits = {
        name: (split.queries, split.qrels, split.candidates)
        for name, split in collection.splits.items()
    }
    assert [queries for queries, _, _ in splits.values()] == [
        {"1": "owls"},
        {"2": "bees"},
        {"3": "ants"},
    ]
    assert splits["test"][1] == {"3": {"3_73": 1}} and list(splits["test"][2]["3"]) == ["3_73"]
    assert not [*own_cache.rglob("unpacked")]


def test_far_relevant_is_read_from_an_archive_put_there(archive, own_cache):
    (own_cache / "downloads").mkdir(parents=True)
    archive().rename(own_cache / "downloads" / msmarco_far_relevant.ARCHIVE)
    assert len(load_collection("msmarco-farrelevant").documents) == 3


@pytest.mark.parametrize("cut", [0, 0.5])
def test_far_relevant_without_a_whole_archive_is_refused(archive, own_cache, cut):
    path = archive()
    if cut:
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * cut)])
    else:
        path.unlink()
    with pytest.raises(BadInput, match=r"put at .*downloads/msmarco_synthetic_longdoc_2024-01-23"):
        load_collection("msmarco-farrelevant")


def test_far_relevant_without_a_file_is_refused(archive, own_cache):
    archive("bitext/qrels.txt")
    with pytest.raises(BadInput, match=r"the archive lacks input_data/bitext/qrels\.txt"):
        load_collection("msmarco-farrelevant")
