"""The token store: the tokenizer's output on disk, built once."""

import copy
import inspect
import pickle
import shutil
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from rank_core import progress
from rank_core.cache import cache_root
from rank_core.chunking.token_store import TokenStore, open_token_store, tokenizer_hash
from rank_core.data.disk import build, rows
from rank_core.encoders.backbones import load_tokenizer
from rank_core.encoders.tiny import train_tokenizer
from rank_core.errors import BadInput

ROOT = Path(__file__).parents[3]
DOCUMENTS = {"a": "amber birch", "empty": " ", "b": "Cedar, DELTA! " * 400, "last": "zephyr"}


class Lengths:
    """A tokenizer that needs no library, so that a process starts at once: a word becomes its
    length. It keeps what it was given."""

    def __init__(self, largest=99):
        self.largest, self.texts = largest, []

    @property
    def backend_tokenizer(self):
        return self

    def to_str(self):
        return '{"truncation": null, "padding": null, "model": "lengths of words"}'

    def get_vocab(self):
        return {"longest": self.largest}

    def __call__(self, texts, **settings):
        self.texts += texts
        return {"input_ids": [[len(word) for word in text.split()] for text in texts]}


# Says what it does; without checkpoints it waits, with checkpoints it dies in its third batch.
OPENER = """
import os, signal, sys, time
from rank_core.data.disk import build
from rank_core.chunking.token_store import open_token_store
number, die = int(sys.argv[1]), len(sys.argv) > 2
class Loud(Lengths):
    def __call__(self, texts, **settings):
        print("tokenizing", flush=True)
        time.sleep(0 if die else 0.3)
        if die and len(self.texts) > 1000:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(texts, **settings)
if die:
    build.SECONDS_BETWEEN_CHECKPOINTS = -1
documents = {f"d{i}": "one three " * (i % 9) for i in range(number)}
store = open_token_store(documents, content_hash="x", tokenizer=Loud())
print(len(store), int(store.lengths().sum()), store["d3"].tolist())
"""


def opener(*words):
    return subprocess.Popen(
        [sys.executable, "-c", inspect.getsource(Lengths) + OPENER, *map(str, words)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


pytestmark = pytest.mark.usefixtures("own_cache")


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


@pytest.mark.parametrize(("largest", "bytes_each"), [(65_535, 2), (65_536, 4)])
def test_tokens_take_two_bytes_where_the_vocabulary_allows_and_are_int32_to_read(
    largest, bytes_each
):
    documents = {"short": "a bb", "long": "x" * largest}
    store = open_token_store(documents, content_hash="x", tokenizer=Lengths(largest))
    assert store["long"].tolist() == [largest] and store["short"].tolist() == [1, 2]
    assert (store.folder / "tokens.bin").stat().st_size == 3 * bytes_each
    for tokens in store.values():
        assert tokens.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            tokens[0] = 1


def test_a_token_beyond_the_vocabulary_is_an_error_and_never_another_token():
    with pytest.raises(OverflowError):
        open_token_store({"a": "x" * 65_537}, content_hash="x", tokenizer=Lengths())
    assert not [path for path in (cache_root() / "tokens").iterdir() if path.is_dir()]


def test_opening_and_reading_take_no_memory_per_document():
    documents = {f"document-{i}": "a bb" for i in range(20_000)}
    folder = open_token_store(documents, content_hash="x", tokenizer=Lengths()).folder
    tracemalloc.start()
    try:
        store = TokenStore(folder)
        assert all(store[f"document-{i}"].tolist() == [1, 2] for i in range(0, 20_000, 97))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 40_000, "less than two bytes a document"


def test_a_store_pickles_as_its_folder(store):
    text = pickle.dumps(store)
    assert len(text) < 500
    again = pickle.loads(text)
    assert again.folder == store.folder and again["b"].tolist() == store["b"].tolist()


HARD_IDS = [
    "a",
    "a\0",
    "\0",
    "",
    "A",
    "ä",
    "a\u0308",
    "文書",
    "\ud83d",
    "😀",
    "x" * 70_000,
    " a",
    "a b",
]


@pytest.mark.parametrize("hash_bytes", [8, 1, 0])  # of 1, a few ids share a hash; of 0, all do
def test_any_string_is_an_id_and_an_unknown_one_is_never_another_document(monkeypatch, hash_bytes):
    monkeypatch.setattr(rows, "HASH_BYTES", hash_bytes)
    known = HARD_IDS + [f"D{i}" for i in range(300)]
    documents = {doc_id: "a " * i for i, doc_id in enumerate(known)}
    store = open_token_store(documents, content_hash="x", tokenizer=Lengths())
    assert list(store) == known
    assert [len(store[doc_id]) for doc_id in known] == list(range(len(known)))
    assert all(doc_id in store for doc_id in known)
    unknown = [
        "a\0\0",
        "D300",
        "D1 ",
        "D01",
        "d1",
        "x" * 69_999,
        "文",
        "\ude00",
        "\ud83d\ude00",
        1,
        None,
    ]
    for doc_id in unknown:
        assert doc_id not in store
        with pytest.raises(KeyError):
            store[doc_id]


def test_many_documents_arrive_in_order(tokenizer):
    documents = {f"d{i}": "amber " * (i % 7) for i in range(1200)}  # over two rounds of tokenizing
    store = open_token_store(documents, content_hash="many", tokenizer=tokenizer)
    assert store.lengths().tolist() == [i % 7 for i in range(1200)]
    assert len(store["d1199"]) == 1199 % 7


def test_a_collection_of_empty_documents_opens(tokenizer):
    store = open_token_store({"a": "", "b": ""}, content_hash="empty", tokenizer=tokenizer)
    assert len(store["b"]) == 0 and store["b"].dtype == np.int32
    nothing = open_token_store({}, content_hash="nothing", tokenizer=tokenizer)
    assert len(nothing) == 0 and list(nothing) == [] and "a" not in nothing
    assert nothing.lengths().tolist() == []


def test_other_contents_or_another_tokenizer_make_another_store(store, tokenizer):
    def folder(content_hash, some):
        return open_token_store(DOCUMENTS, content_hash=content_hash, tokenizer=some).folder

    other = train_tokenizer(["amber birch"], 60)
    assert tokenizer_hash(other) != tokenizer_hash(tokenizer)
    folders = {folder("x", tokenizer), folder("y", tokenizer), folder("x", other)}
    assert len(folders) == 3 and store.folder in folders


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


def test_processes_that_open_a_store_at_once_tokenise_it_once():
    outputs = [process.communicate(timeout=300)[0] for process in [opener(50) for _ in range(4)]]
    assert sum(output.count("tokenizing") for output in outputs) == 1
    total = 2 * sum(i % 9 for i in range(50))
    assert all(output.splitlines()[-1] == f"50 {total} [3, 5, 3, 5, 3, 5]" for output in outputs)


def words_of(number):
    return {f"d{i}": "one three " * (i % 9) for i in range(number)}


@pytest.fixture(scope="module")
def cache_of_a_killed_build(tmp_path_factory):
    """The folder of a build of 2,000 documents, killed after two of four batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKSWEEP_CACHE", str(tmp_path_factory.mktemp("killed")))
        process = opener(2000, "die")
        assert process.communicate(timeout=300)[0] == "tokenizing\n" * 3
        assert process.returncode == -signal.SIGKILL
        return cache_root()


@pytest.fixture
def killed(cache_of_a_killed_build):
    """The folder of a killed build, in the test's own cache."""
    shutil.copytree(cache_of_a_killed_build, cache_root(), dirs_exist_ok=True)
    [folder] = (path for path in (cache_root() / "tokens").iterdir() if path.is_dir())
    assert ".building-" in folder.name
    return folder


def built_anew(documents, tmp_path_factory, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("RANKSWEEP_CACHE", str(tmp_path_factory.mktemp("straight")))
        folder = open_token_store(documents, content_hash="x", tokenizer=Lengths()).folder
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def spoil_nothing(folder):
    assert len(build.open_store_files(folder, "tokens").rows) == 1024


def append_half_a_batch(folder):
    for path in folder.iterdir():
        if path.name != "store.json":
            path.write_bytes(path.read_bytes() + b"\1\2\3\4\5\6\7")


def cut_the_tokens(folder):
    (folder / "tokens.bin").write_bytes((folder / "tokens.bin").read_bytes()[:-1])


def lose_the_ids(folder):
    (folder / "ids.offsets").unlink()


def half_a_state(folder):
    (folder / "store.json").write_text('{"num_doc')


def change_an_id(folder):
    text = (folder / "ids.bin").read_bytes()
    (folder / "ids.bin").write_bytes(text.replace(b"d77", b"d78", 1))


@pytest.mark.parametrize(
    ("spoil", "num_tokenised"),
    [
        (spoil_nothing, 976),
        (append_half_a_batch, 976),
        (cut_the_tokens, 2000),
        (lose_the_ids, 2000),
        (half_a_state, 2000),
        (change_an_id, 2000),
    ],
)
def test_a_killed_build_resumes_and_gives_the_same_store(
    killed, spoil, num_tokenised, tmp_path_factory, monkeypatch, capsys
):
    spoil(killed)
    tokenizer, documents = Lengths(), words_of(2000)
    store = open_token_store(documents, content_hash="x", tokenizer=tokenizer)
    assert tokenizer.texts == list(documents.values())[-num_tokenised:]
    files = {path.name: path.read_bytes() for path in store.folder.iterdir()}
    assert files == built_anew(documents, tmp_path_factory, monkeypatch)
    assert [path.is_dir() for path in store.folder.parent.glob("*building*")] == []
    assert "token store: " in capsys.readouterr().err


def test_a_killed_build_of_more_documents_is_not_resumed(killed):
    store = open_token_store(words_of(1000), content_hash="x", tokenizer=Lengths())
    assert list(store) == list(words_of(1000))


def test_a_build_killed_after_its_last_checkpoint_tokenises_nothing_again(monkeypatch):
    def killed_here(*_):
        raise KeyboardInterrupt

    documents, tokenizer = words_of(700), Lengths()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(build, "write_id_index", killed_here)
        open_token_store(documents, content_hash="x", tokenizer=tokenizer)
    store = open_token_store(documents, content_hash="x", tokenizer=tokenizer)
    assert len(tokenizer.texts) == 700 and store["d5"].tolist() == [3, 5] * 5


class OnlyOnce(Mapping):
    """Documents that can be read from first to last, as from a file."""

    def __init__(self, documents):
        self.documents, self.passes = documents, 0

    def items(self):
        self.passes += 1
        return iter(self.documents.items())

    def __iter__(self):
        return iter(self.documents)

    def __len__(self):
        return len(self.documents)

    def __getitem__(self, doc_id):
        raise AssertionError("one look-up per document costs a disk access")


def test_documents_are_read_in_one_pass_without_looking_any_up():
    documents = OnlyOnce(words_of(1200))
    store = open_token_store(documents, content_hash="x", tokenizer=Lengths())
    assert documents.passes == 1 and len(store["d1196"]) == 2 * (1196 % 9)


def test_few_characters_are_tokenised_at_once_however_long_the_documents(monkeypatch):
    monkeypatch.setattr(build, "CHARACTERS_AT_ONCE", 100)
    sizes = []

    class Watched(Lengths):
        def __call__(self, texts, **settings):
            sizes.append([len(text) for text in texts])
            return super().__call__(texts, **settings)

    documents = {str(i): "x" * size for i, size in enumerate([40, 40, 40, 500, 1, 99, 7])}
    store = open_token_store(documents, content_hash="x", tokenizer=Watched(500))
    assert sizes == [[40, 40, 40], [500], [1, 99], [7]]
    assert [tokens.tolist() for tokens in store.values()] == [
        [40],
        [40],
        [40],
        [500],
        [1],
        [99],
        [7],
    ]


def test_a_long_build_reports_its_progress_and_a_short_one_does_not(monkeypatch, capsys):
    open_token_store(words_of(600), content_hash="short", tokenizer=Lengths())
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "FILE_SECONDS", -1)
    open_token_store(words_of(600), content_hash="long", tokenizer=Lengths())
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("token store: documents: 1 of 600, ")
    assert lines[-1].startswith("token store: documents: done after 0 s")


@pytest.mark.parametrize("name", ["tokens.bin", "ids.offsets", "id_hashes.uint64"])
def test_a_store_that_was_copied_in_part_is_refused(name):
    store = open_token_store(words_of(100), content_hash="x", tokenizer=Lengths())
    copy_of_it = store.folder.with_name("copied")
    shutil.copytree(store.folder, copy_of_it)
    (copy_of_it / name).write_bytes((copy_of_it / name).read_bytes()[:-8])
    with pytest.raises(BadInput, match="delete"):
        TokenStore(copy_of_it)
