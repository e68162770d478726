"""Building on first use: once and completely; missing and damaged files are named."""

import gzip
import multiprocessing
import os
import shutil
import signal
import time

import pytest

from rank_core.data.disk.document_store import STORES
from rank_core.data.load import load_collection
from rank_core.errors import BadInput
from tests.rank_core.data import real_formats


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


def look_up(barrier, results):
    barrier.wait()
    collection = load_collection("msmarco-doc-hard")
    wrong = 0
    for number in range(1, 2001):
        n = number * 7919 % 30
        text = collection.documents[f"D{n}"]
        wrong += not text.startswith(f"Title {n} body of page {n}")
        wrong += f"D{n}-" in collection.documents
    results.put((wrong, str(collection.documents.folder), collection.content_hash))


def test_processes_at_once_build_once_and_look_up_8000_documents_rightly(written, own_cache):
    written("msmarco_documents")
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(4), context.Queue()
    workers = [context.Process(target=look_up, args=(barrier, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join(timeout=300)
    assert [wrong for wrong, _, _ in found] == [0] * 4
    assert len(set(found)) == 1
    assert len(list((own_cache / STORES).glob("*/texts.uint8"))) == 1


def test_a_killed_build_leaves_nothing_half_made(empty_home, own_cache):
    real_formats.msmarco_documents(empty_home, num_documents=5_000)
    source = empty_home / "msmarco-document" / "collection.tsv.gz"
    whole = source.read_bytes()
    source.unlink()
    os.mkfifo(source)
    child = multiprocessing.get_context("fork").Process(
        target=load_collection, args=("msmarco-doc",)
    )
    child.start()
    with source.open("wb") as pipe:  # opens when the child starts to read
        pipe.write(whole[: len(whole) // 2])
        pipe.flush()
        until = time.monotonic() + 300
        while not half_written(own_cache) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGKILL)
        child.join(timeout=300)
    assert child.exitcode == -signal.SIGKILL
    assert half_written(own_cache)
    assert not (own_cache / STORES).exists()
    source.unlink()
    source.write_bytes(whole)
    documents = load_collection("msmarco-doc").documents
    assert len(documents) == 5_000
    assert documents["D4999"].startswith("Title 4999 body")


def half_written(cache):
    return list(cache.glob("*/*.building-*/new/texts.uint8"))


@pytest.mark.parametrize(
    ("name", "path"), [("robust04-desc", "disks45/corpus"), ("beir-trec-covid", "trec-covid")]
)
def test_a_missing_file_is_named_by_its_dataset_and_path(empty_home, own_cache, capfd, name, path):
    with pytest.raises(BadInput, match=r"(disks45|beir)/[\w/-]+ could not be read") as caught:
        load_collection(name)
    assert path in str(caught.value) + capfd.readouterr().err and "\n" not in str(caught.value)


def test_all_extracts_suffice_but_not_some(empty_home, own_cache):
    root = empty_home / "vaswani"
    texts = (f"{n}\nabstract number {n}\n   /\n" for n in range(1, 51))
    real_formats.write(root / "docs.txt", "".join(texts))
    real_formats.write(root / "queries.txt", "1\nABSTRACT\n/\n2\nNUMBER 7\n/\n")
    with pytest.raises(BadInput, match="vaswani could not be read"):
        load_collection("vaswani")
    real_formats.write(root / "qrels.txt", "1\n   3 4\n   /\n2\n   7\n   /\n")
    collection = load_collection("vaswani")
    assert len(collection.documents) == 50
    assert collection.splits["test"].qrels == {"1": {"3": 1, "4": 1}, "2": {"7": 1}}


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


def test_missing_archive_files_are_counted_not_ignored(empty_home, own_cache):
    real_formats.robust04(empty_home)
    (empty_home / "disks45" / "corpus" / "FBIS" / "FB0000").unlink()
    with pytest.raises(BadInput, match="found 2294 files of the expected 2295"):
        load_collection("robust04-title")
