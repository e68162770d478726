"""The one store on disk: every look-up gives the value of its id or a KeyError, in any process or
thread, whatever the values are."""

import inspect
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rank_core.cache import cache_root, restored_by
from rank_core.chunking.token_store import TOKENS, TokenStore
from rank_core.data import store as tables
from rank_core.data.store import (
    DocumentStore,
    JudgmentStore,
    RunStore,
    TableWriter,
    stored_documents,
    write_document_store,
    write_split,
)
from rank_core.errors import BadInput

ROOT = Path(__file__).parents[3]

HARD_IDS = ["a", "a\0", "\0", "", "A", "ä", "a\u0308", "文書", "\ud83d", "😀", "x" * 70_000]
HARD_IDS += [" a", "a b"]
UNKNOWN = ["a\0\0", "D300", "D1 ", "D01", "d1", "x" * 69_999, "文", "\ude00", "\ud83d\ude00", 1]
IDS = {"rows": [f"D{number}" for number in range(200)], "few": ["q1", "é7", "b"], "none": []}

pytestmark = pytest.mark.usefixtures("own_cache")


def documents(folder, ids):
    values = {name: "zwei ü\n" * (number % 4) for number, name in enumerate(ids)}
    with TableWriter(folder, texts=np.uint8) as writer:
        writer.append(list(values), texts=[text.encode() for text in values.values()])
    return DocumentStore(folder), values


def tokens(folder, ids):
    values = {name: list(range(number % 5)) for number, name in enumerate(ids)}
    with TableWriter(folder, tokens=np.uint16) as writer:
        arrays = [np.array(row, dtype=np.uint16) for row in values.values()]
        writer.append(list(values), **{TOKENS: arrays})
    return TokenStore(folder), values


def split_of(folder, ids):
    """A split whose queries are `ids`, over three documents."""
    (folder / "d").mkdir()
    store = write_document_store(folder / "d", [("d1", "x"), ("d2", "y"), ("é3", "z")], source="s")
    judged = {name: {"d1": number % 3, "gone": -1} for number, name in enumerate(ids)}
    ranked = {name: {"é3": 2.5, "d2": 2.5, "d1": 1 / (n + 3)} for n, name in enumerate(ids)}
    backwards = [(name, dict(reversed(run.items()))) for name, run in ranked.items()]
    run = [("elsewhere", {"d1": 1.0}), *backwards]
    write_split(folder / "s", {name: f"text {name}" for name in ids}, judged, run, store)
    return (
        store,
        judged,
        {name: {"d2": 2.5, "é3": 2.5, "d1": of["d1"]} for name, of in ranked.items()},
    )


def judgments(folder, ids):
    return JudgmentStore(folder / "s"), split_of(folder, ids)[1]


def candidates(folder, ids):
    store, _, ranked = split_of(folder, ids)
    return RunStore(folder / "s", store), ranked


KINDS = {make.__name__: make for make in (documents, tokens, judgments, candidates)}


@pytest.fixture(params=KINDS)
def make(request, tmp_path):
    return lambda ids: KINDS[request.param](tmp_path, ids)


def plain(value):
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("ids", IDS)
def test_what_was_written_is_read_in_the_order_of_its_source(make, ids):
    stored, values = make(IDS[ids])
    names = list(values)
    assert list(stored) == names and len(stored) == len(names)
    assert [(name, plain(value)) for name, value in stored.items()] == list(values.items())
    assert {name: plain(stored[name]) for name in reversed(names)} == values
    for name in names[:3]:
        assert list(plain(stored[name])) == list(values[name]), "in rank order"
        assert stored.ids_of(stored.rows([name])) == [name] and name in stored
    assert stored.rows([*names[:2], "none"]).tolist() == [*range(len(names[:2])), -1]
    again = pickle.dumps(stored)
    assert len(again) < 500 and list(pickle.loads(again)) == names


@pytest.mark.parametrize("hash_bytes", [8, 1, 0])  # of 1, a few ids share a hash; of 0, all do
def test_any_string_is_an_id_and_an_unknown_one_is_never_another(tmp_path, monkeypatch, hash_bytes):
    monkeypatch.setattr(tables, "HASH_BYTES", hash_bytes)
    stored, values = tokens(tmp_path, HARD_IDS + IDS["rows"])
    assert list(stored) == list(values)
    assert all(plain(stored[name]) == value for name, value in values.items())
    for name in (*UNKNOWN, None):
        assert name not in stored
        with pytest.raises(KeyError):
            stored[name]


def wrong_look_ups(stored, seed):
    """Out of 2,000 look-ups, a tenth of them of names that no document has."""
    wrong = 0
    for number in np.random.default_rng(seed).integers(0, 5003, size=2000):
        if number % 10:
            wrong += stored[f"doc-{number}"] != f"text {number}"
        else:
            wrong += f"doc-{number}x" in stored
    return wrong


FORKS = f"""
import multiprocessing, sys
from pathlib import Path
import numpy as np
from rank_core.data.store import DocumentStore

{inspect.getsource(wrong_look_ups)}

stored = DocumentStore(Path(sys.argv[1]))
assert stored["doc-1"] == "text 1"  # opened before the fork
with multiprocessing.get_context("fork").Pool(4) as pool:
    print(pool.starmap(wrong_look_ups, [(stored, seed) for seed in range(4)]))
"""
"""In a process without the threads of tests, whose locks a fork would inherit."""


def test_look_ups_of_forks_and_threads_are_right_in_a_folder_that_moved(tmp_path):
    pairs = [(f"doc-{n * 7919 % 5003}", f"text {n * 7919 % 5003}") for n in range(5003)]
    (tmp_path / "new").mkdir()
    write_document_store(tmp_path / "new", pairs, source="numbered")
    stored = DocumentStore((tmp_path / "new").rename(tmp_path / "moved"))
    forks = [sys.executable, "-c", FORKS, stored.folder]
    done = subprocess.run(forks, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[0, 0, 0, 0]\n", done.stderr
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda seed: wrong_look_ups(stored, seed), range(8))) == [0] * 8


@pytest.mark.parametrize("name", ["tokens.uint16", "tokens.offsets", "ids.offsets", "index.hashes"])
@pytest.mark.parametrize("lost", [8, None])
def test_a_table_that_was_copied_in_part_is_refused(tmp_path, name, lost):
    stored, _ = tokens(tmp_path, IDS["rows"])
    path = stored.folder / name
    path.write_bytes(path.read_bytes()[:-lost]) if lost else path.unlink()
    with pytest.raises(BadInput, match=str(tmp_path)):
        TokenStore(tmp_path)["D3"]


def test_a_row_of_another_type_is_not_written(tmp_path):
    with TableWriter(tmp_path, tokens=np.uint16) as writer, pytest.raises(ValueError):
        writer.append(["a"], tokens=[np.arange(3)])


TEXTS = {"d1": "one", "d10": "", "b": "zwei ü\n", "é7": "drei\tvier"}


def test_the_hash_names_ids_and_texts(tmp_path):
    variants = [TEXTS, TEXTS | {"d10": "x"}, {"d1": "on", "ed10": ""}, {"d1": "one", "d10": ""}]
    hashes = []
    for number, texts in enumerate([*variants, TEXTS]):
        (tmp_path / str(number)).mkdir()
        store = write_document_store(tmp_path / str(number), texts.items(), source="x")
        hashes.append(store.content_hash)
    assert len(set(hashes)) == 4 and hashes[-1] == hashes[0] == "4cb6c0b2f9867391"


@pytest.mark.parametrize(
    "pairs", [[], [("a", "x"), ("b", "y"), ("a", "x")], [("a b", "x")], [("a\0", "x")]]
)
def test_documents_that_cannot_be_looked_up_are_refused(tmp_path, pairs):
    with pytest.raises(BadInput, match="source"):
        write_document_store(tmp_path, pairs, source="source")


def test_half_of_a_surrogate_pair_becomes_a_question_mark(tmp_path):
    assert write_document_store(tmp_path, [("a", "x\ud800y")], source="x")["a"] == "x?y"


def test_equal_sources_share_a_store_which_is_built_once_and_again_when_cleared():
    stores = [stored_documents(key, TEXTS.items, source="x") for key in ("one", "other", "one")]
    assert len({store.folder for store in stores}) == 1 and dict(stores[1]) == TEXTS
    assert stored_documents("one", None, source="x").folder == stores[0].folder, "nothing is read"
    shutil.rmtree(stores[0].folder)
    assert dict(stored_documents("one", TEXTS.items, source="x")) == TEXTS


@pytest.mark.parametrize("text", ["../../../outside/owned", "..", "", "G" * 16, "é" * 16])
def test_a_restored_hash_is_never_a_path(text, tmp_path):
    asked = []

    def restore(kind, key, folder):
        asked.append(kind)
        (folder / tables.HASH).write_text(text)
        return kind == tables.SOURCES

    (tmp_path / "outside").mkdir()
    with restored_by(restore):
        store = stored_documents("key", TEXTS.items, source="x")
    assert dict(store) == TEXTS and store.folder.parent == cache_root() / tables.STORES
    # The content is at hand once it was read: nothing else is restored.
    assert asked == [tables.SOURCES] and not list((tmp_path / "outside").iterdir())
