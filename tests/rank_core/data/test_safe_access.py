"""Building on first use: once, completely, and again when a source changes; missing files are
named."""

import gzip
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rank_core.data.disk.document_store import STORES
from rank_core.data.ir_datasets.files import require_files
from rank_core.data.load import load_collection
from rank_core.errors import BadInput
from tests.rank_core.data import real_formats

ROOT = Path(__file__).parents[3]


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


def test_processes_at_once_build_once_and_look_up_8000_documents_rightly(written, own_cache, capfd):
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
    assert len(list((own_cache / STORES).glob("*/texts.bin"))) == 1
    # Train, dev and test have ranked lists, so what the one build says is the only line of all.
    assert capfd.readouterr().err.count("documents of msmarco-document read") == 1


@pytest.mark.slow
def test_interpreters_at_once_build_a_ranked_collection_once(written, ir_environment, own_cache):
    written("robust04")
    script = (
        "from rank_core.data.load import load_collection; c = load_collection('robust04-title'); "
        "wrong = sum(f'story{n} ' not in c.documents[f'{k}-{n}'] "
        "for k, a, b in (('FB', 0, 492), ('FR', 492, 1180), ('FT', 1180, 1565)) "
        "for n in list(range(a, b)) + list(range(a, b)))"
        "; print(c.content_hash, c.documents.folder, wrong)"
    )
    environment = os.environ | ir_environment
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    outputs = [worker.communicate(timeout=300) for worker in workers]
    assert len({out for out, _ in outputs}) == 1
    assert outputs[0][0].split()[-1] == "0"
    assert sum(err.count("BM25 for 249 queries") for _, err in outputs) == 1


def test_a_changed_source_is_read_again_whatever_ir_datasets_has_kept(ir_home, own_cache):
    import ir_datasets

    real_formats.beir(ir_home, "scifact", ("train", "test"))
    first = load_collection("beir-scifact")
    dataset = ir_datasets.load("beir/scifact/test")
    assert dataset.docs_store().get("MED-3").text == "effect3 seen"
    assert len(list(dataset.queries_iter())) == 2
    source = ir_home / "beir" / "scifact" / "source.zip"
    os.utime(source, ns=(1, 1))
    touched = load_collection("beir-scifact")
    assert touched.documents.folder == first.documents.folder
    assert touched.content_hash == first.content_hash
    real_formats.beir(ir_home, "scifact", ("train", "test"), num_documents=40, num_queries=3)
    changed = load_collection("beir-scifact")
    assert list(changed.splits["test"].qrels) == ["test-0", "test-1", "test-2"]
    assert list(changed.splits["test"].queries) == ["test-0", "test-1", "test-2"]
    assert len(changed.documents) == 40
    assert changed.content_hash != first.content_hash
    assert len(first.documents) == 25  # processes that have it open keep reading the old content


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


def test_a_file_that_changes_while_it_is_read_is_refused(empty_home, own_cache):
    real_formats.msmarco_documents(empty_home)
    source = empty_home / "msmarco-document" / "collection.tsv.gz"
    whole = source.read_bytes()
    source.unlink()
    os.mkfifo(source)  # writing into a pipe changes its time
    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(source.write_bytes, whole)
        with pytest.raises(BadInput, match=r"collection.tsv.gz changed while"):
            load_collection("msmarco-doc")
        assert written.result() == len(whole)
    assert not (own_cache / STORES).exists()


def half_written(cache):
    return list(cache.glob("*/*.building-*/texts.bin"))


def test_a_licensed_collection_tells_where_to_get_and_put_its_files(empty_home):
    for name, path, licence in (
        ("robust04-desc", "disks45/corpus", "https://trec.nist.gov/data/cd45/index.html"),
        ("gov2-title", "gov2/corpus", "http://ir.dcs.gla.ac.uk"),
        ("clueweb12-title", "clueweb12/corpus", "https://lemurproject.org/clueweb12/"),
    ):
        with pytest.raises(BadInput) as caught:
            load_collection(name)
        message = str(caught.value)
        assert f"needs {empty_home / path}, which does not exist" in message
        assert licence in message
        assert "\n" not in message


def test_without_network_a_missing_file_is_named_at_once(empty_home, monkeypatch):
    tries = []

    def no_network(*address, **more):
        tries.append(address)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    with pytest.raises(BadInput) as caught:
        load_collection("beir-trec-covid")
    message = str(caught.value)
    assert f"needs {empty_home / 'beir' / 'trec-covid' / 'source.zip'}" in message
    assert "trec-covid.zip to that path" in message
    assert "\n" not in message
    assert len(tries) == 1


class _Away:
    """A file that cannot be downloaded."""

    def __init__(self, name):
        self.target, self.url, self.download = Path(name), f"https://host/{name}", self

    def present(self):
        return None

    def path(self):
        raise TimeoutError("<object at 0x7f> " * 99)


def test_all_missing_files_are_named_without_the_text_of_an_exception(own_cache):
    with pytest.raises(BadInput) as caught:
        require_files("msmarco-doc", [_Away("docs.gz"), _Away("queries.gz")])
    message = str(caught.value)
    assert "docs.gz to that path, https://host/queries.gz to queries.gz" in message
    assert "(TimeoutError)" in message and "0x7f" not in message


def test_all_extracts_suffice_but_not_some(empty_home):
    root = empty_home / "vaswani"
    texts = (f"{n}\nabstract number {n}\n   /\n" for n in range(1, 51))
    real_formats.write(root / "docs.txt", "".join(texts))
    real_formats.write(root / "queries.txt", "1\nABSTRACT\n/\n2\nNUMBER 7\n/\n")
    real_formats.write(root / "qrels.txt", "1\n   3 4\n   /\n2\n   7\n   /\n")
    collection = load_collection("vaswani")
    assert len(collection.documents) == 50
    assert collection.splits["test"].qrels == {"1": {"3": 1, "4": 1}, "2": {"7": 1}}
    (root / "qrels.txt").unlink()
    with pytest.raises(BadInput, match=r"vaswani needs .*npl.tar.gz, which does not exist"):
        load_collection("vaswani")


def test_a_damaged_file_is_refused_by_the_name_of_its_dataset(empty_home):
    real_formats.msmarco_documents(empty_home)
    path = empty_home / "msmarco-document" / "collection.tsv.gz"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(BadInput, match="msmarco-document/train could not be read: EOFError"):
        load_collection("msmarco-doc")
    path.unlink()
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(BadInput, match="msmarco-document has no documents"):
        load_collection("msmarco-doc")


def test_missing_archive_files_are_counted_not_ignored(empty_home):
    real_formats.robust04(empty_home)
    (empty_home / "disks45" / "corpus" / "FBIS" / "FB0000").unlink()
    with pytest.raises(BadInput, match="found 2294 files of the expected 2295"):
        load_collection("robust04-title")


def test_a_store_that_was_cleared_away_is_built_again(written, own_cache):
    written("msmarco_documents")
    folder = load_collection("msmarco-doc").documents.folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert load_collection("msmarco-doc-dl20").documents["D7"].startswith("Title 7")
