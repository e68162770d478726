"""The token store: the tokenizer's output on disk, built once (the laws of all tables:
tests/rank_core/data/test_table.py)."""

import copy
import inspect
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rank_core import progress
from rank_core.cache import cache_root
from rank_core.chunking.token_store import open_token_store, tokenizer_hash
from rank_core.data.disk import table
from rank_core.encoders.backbones import load_tokenizer
from rank_core.testing.tokenizer import train_tokenizer

ROOT = Path(__file__).parents[3]
DOCUMENTS = {"a": "amber birch", "empty": " ", "b": "Cedar, DELTA! " * 400, "last": "zephyr"}


class Lengths:
    """A tokenizer that needs no library, so that a process starts at once: a word becomes its
    length. It keeps the numbers of characters that it was given."""

    def __init__(self, largest=99):
        self.largest, self.sizes = largest, []

    @property
    def backend_tokenizer(self):
        return self

    def to_str(self):
        return '{"truncation": null, "padding": null, "model": "lengths of words"}'

    def get_vocab(self):
        return {"longest": self.largest}

    def __call__(self, texts, **settings):
        self.sizes.append([len(text) for text in texts])
        return {"input_ids": [[len(word) for word in text.split()] for text in texts]}


# Dies in its third batch.
OPENER = """
import os, signal
from rank_core.chunking.token_store import open_token_store
class Loud(Lengths):
    def __call__(self, texts, **settings):
        print("tokenizing", flush=True)
        if len(self.sizes) > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(texts, **settings)
documents = {f"d{i}": "one three " * (i % 9) for i in range(2000)}
open_token_store(documents, content_hash="x", tokenizer=Loud())
"""

pytestmark = pytest.mark.usefixtures("own_cache")


def words_of(number):
    return {f"d{i}": "one three " * (i % 9) for i in range(number)}


@pytest.fixture
def tokenizer(backbone_folder):
    return load_tokenizer(backbone_folder)


def test_the_store_holds_the_tokenizers_own_ids_whole_and_without_special_tokens(tokenizer):
    store = open_token_store(DOCUMENTS, content_hash="x", tokenizer=tokenizer)
    for doc_id, text in DOCUMENTS.items():
        expected = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        assert store[doc_id].tolist() == expected
    assert len(store["b"]) == 400 * 4 and len(store["empty"]) == 0
    assert store.lengths().tolist() == [len(store[doc_id]) for doc_id in DOCUMENTS]


@pytest.mark.parametrize(("largest", "bytes_each"), [(65_535, 2), (65_536, 4)])
def test_tokens_take_two_bytes_where_the_vocabulary_allows_and_are_int32_to_read(
    largest, bytes_each
):
    documents = {"short": "a bb", "long": "x" * largest}
    store = open_token_store(documents, content_hash="x", tokenizer=Lengths(largest))
    assert store["long"].tolist() == [largest] and store["short"].tolist() == [1, 2]
    [file] = store.folder.glob("tokens.*int*")
    assert file.stat().st_size == 3 * bytes_each
    for tokens in store.values():
        assert tokens.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            tokens[0] = 1


def test_a_token_beyond_the_vocabulary_is_an_error_and_never_another_token():
    with pytest.raises(OverflowError):
        open_token_store({"a": "x" * 65_537}, content_hash="x", tokenizer=Lengths())
    assert not [path for path in (cache_root() / "tokens").iterdir() if path.is_dir()]


def test_other_contents_or_another_tokenizer_make_another_store(tokenizer):
    def folder(content_hash, some):
        return open_token_store(DOCUMENTS, content_hash=content_hash, tokenizer=some).folder

    other = train_tokenizer(["amber birch"], 60)
    assert tokenizer_hash(other) != tokenizer_hash(tokenizer)
    assert len({folder("x", tokenizer), folder("y", tokenizer), folder("x", other)}) == 3


def test_limits_in_a_tokenizers_files_have_no_effect(tokenizer):
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


def test_a_killed_build_starts_again():
    command = [sys.executable, "-c", inspect.getsource(Lengths) + OPENER]
    killed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=300)
    assert killed.stdout == "tokenizing\n" * 3
    assert killed.returncode == -signal.SIGKILL
    tokenizer = Lengths()
    store = open_token_store(words_of(2000), content_hash="x", tokenizer=tokenizer)
    assert sum(map(len, tokenizer.sizes)) == 2000 and len(store["d1999"]) == 2 * (1999 % 9)
    assert [path.name for path in store.folder.parent.iterdir() if path.is_dir()] == [
        store.folder.name
    ]


class OnlyOnce(dict):
    """Documents that can be read from first to last, as from a file."""

    passes = 0

    def items(self):
        self.passes += 1
        return super().items()

    def __getitem__(self, doc_id):
        raise AssertionError("one look-up per document costs a disk access")


def test_documents_are_read_in_one_pass_a_few_characters_at_once(monkeypatch):
    monkeypatch.setattr(table, "CHARACTERS_AT_ONCE", 100)
    texts = {str(i): "x" * size for i, size in enumerate([40, 40, 40, 500, 1, 99, 7])}
    documents, tokenizer = OnlyOnce(texts), Lengths(500)
    store = open_token_store(documents, content_hash="x", tokenizer=tokenizer)
    assert documents.passes == 1 and tokenizer.sizes == [[40, 40, 40], [500], [1, 99], [7]]
    assert [tokens.tolist() for tokens in store.values()] == [
        [len(text)] for text in texts.values()
    ]


def test_a_long_build_reports_its_progress_and_a_short_one_does_not(monkeypatch, capsys):
    open_token_store(words_of(600), content_hash="short", tokenizer=Lengths())
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "FILE_SECONDS", -1)
    open_token_store(words_of(600), content_hash="long", tokenizer=Lengths())
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("token store: documents: 1 of 600, ")
    assert lines[-1].startswith("token store: documents: done after 0 s")
