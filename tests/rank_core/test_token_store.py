"""The token store: what the tokenizer gives, on disk, built once."""

import copy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rank_core.backbones import load_tokenizer
from rank_core.tiny import train_tokenizer
from rank_core.token_store import open_token_store, tokenizer_hash

ROOT = Path(__file__).parents[2]
DOCUMENTS = {"a": "amber birch", "empty": " ", "b": "Cedar, DELTA! " * 400, "last": "zephyr"}

# A tokenizer that needs no library, so that the process starts at once; it tells of its work.
OPENER = """
import time
from rank_core.token_store import open_token_store
class Backend:
    def to_str(self):
        return '{"truncation": null, "padding": null, "model": "lengths of words"}'
class Tokenizer:
    backend_tokenizer = Backend()
    def __call__(self, texts, **settings):
        print("tokenizing", flush=True)
        time.sleep(0.3)
        return {"input_ids": [[len(word) for word in text.split()] for text in texts]}
documents = {f"d{i}": "one three " * i for i in range(50)}
store = open_token_store(documents, content_hash="x", tokenizer=Tokenizer())
print(len(store), int(store.lengths().sum()), store["d3"].tolist())
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path))


@pytest.fixture
def tokenizer(backbone_folder):
    return load_tokenizer(backbone_folder)


@pytest.fixture
def store(tokenizer):
    return open_token_store(DOCUMENTS, content_hash="x", tokenizer=tokenizer)


def test_the_store_holds_the_tokenizers_own_ids_whole_and_without_special_tokens(store, tokenizer):
    assert list(store) == list(DOCUMENTS) and len(store) == 4
    for doc_id, text in DOCUMENTS.items():
        expected = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        assert store[doc_id].tolist() == expected
    assert len(store["b"]) == 400 * 4 and len(store["empty"]) == 0
    assert store.lengths().tolist() == [len(store[doc_id]) for doc_id in DOCUMENTS]
    with pytest.raises(KeyError):
        store["c"]


def test_the_ids_are_mapped_from_disk_and_cannot_be_written(store):
    tokens = store["b"]
    base = tokens
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap) and tokens.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        tokens[0] = 1


def test_many_documents_arrive_in_order(tokenizer):
    documents = {f"d{i}": "amber " * (i % 7) for i in range(1200)}  # over two rounds of tokenizing
    store = open_token_store(documents, content_hash="many", tokenizer=tokenizer)
    assert store.lengths().tolist() == [i % 7 for i in range(1200)]
    assert len(store["d1199"]) == 1199 % 7


def test_a_collection_of_empty_documents_opens(tokenizer):
    store = open_token_store({"a": "", "b": ""}, content_hash="empty", tokenizer=tokenizer)
    assert len(store["b"]) == 0


def test_other_contents_or_another_tokenizer_make_another_store(store, tokenizer):
    def folder(content_hash, some):
        return open_token_store(DOCUMENTS, content_hash=content_hash, tokenizer=some).folder

    other = train_tokenizer(["amber birch"], 60)
    assert tokenizer_hash(other) != tokenizer_hash(tokenizer)
    folders = {folder("x", tokenizer), folder("y", tokenizer), folder("x", other)}
    assert len(folders) == 3 and store.folder in folders


def test_limits_that_a_tokenizer_file_brings_along_change_nothing(tokenizer):
    # Checkpoints of sentence encoders are often saved with truncation and padding switched on.
    limited = copy.deepcopy(tokenizer)
    limited.backend_tokenizer.enable_truncation(max_length=3)
    limited.backend_tokenizer.enable_padding(length=5)
    first = open_token_store(DOCUMENTS, content_hash="limits", tokenizer=limited)
    texts = list(DOCUMENTS.values())
    plain = [len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    assert first.lengths().tolist() == plain
    again = open_token_store(DOCUMENTS, content_hash="limits", tokenizer=limited)
    assert again.folder == first.folder, "tokenising switches the limits off and must not rename"


def test_two_processes_that_open_a_store_at_once_tokenise_it_once():
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [opener.communicate(timeout=60)[0] for opener in openers]
    assert sum(output.count("tokenizing") for output in outputs) == 1
    assert all(o.splitlines()[-1] == "50 2450 [3, 5, 3, 5, 3, 5]" for o in outputs)
