"""The dataset of a sweep's per-query values: a folder with a file per trial."""

import uuid

import pandas as pd
import pytest

from rank_core.errors import BadInput
from sweeps.report.load import load_sweep
from sweeps.store.scores import pull_dataset, push_dataset, read_dataset, write_dataset
from sweeps.store.trial_store import Store
from tests.sweeps.report.test_load import as_dataset, write_sweep

NAMES = ["a-seed1", "a-seed10", "a-seed2", "b-seed1"]


@pytest.fixture
def store(tmp_path, leave_result):
    store = Store(str(tmp_path / "s"), "ws")
    store.open()
    for name in NAMES:
        leave_result(store, name)
    return store


def trials(folder):
    table = pd.read_parquet(folder / "per_query.parquet")
    pairs = zip(table["cell"], table["seed"], strict=True)
    return list(dict.fromkeys(f"{cell}-seed{seed}" for cell, seed in pairs))


def test_pandas_reads_the_folder_as_one_table(store):
    write_dataset(store.folder, NAMES)
    table = pd.read_parquet(store.folder / "per_query.parquet")
    own = [pd.read_parquet(store.folder / "runs" / name / "per_query.parquet") for name in NAMES]
    pd.testing.assert_frame_equal(table, pd.concat(own, ignore_index=True))
    one = read_dataset(store.folder, ["b-seed1"], "")
    pd.testing.assert_frame_equal(one.astype({"cell": str, "split": str, "query_id": str,
                                              "measure": str}), own[-1])  # fmt: skip


def test_what_is_there_stays_and_what_is_no_more_goes(store):
    (store.folder / "per_query.parquet").write_bytes(b"one table of version 0.1")
    write_dataset(store.folder, NAMES[:3])
    first = store.folder / "per_query.parquet" / "a-seed1.parquet"
    written = first.stat().st_ino
    (store.folder / "per_query.parquet" / "a-seed10.parquet").write_bytes(b"edited")
    write_dataset(store.folder, [NAMES[0], NAMES[1], NAMES[3]])
    assert trials(store.folder) == ["a-seed1", "a-seed10", "b-seed1"]
    assert first.stat().st_ino == written


def test_an_edited_table_is_named_and_the_trial_is_as_it_was(tmp_path):
    folder = as_dataset(write_sweep(tmp_path, num_queries=20))
    whole = load_sweep(folder)
    file = sorted((folder / "per_query.parquet").glob("*.parquet"))[3]
    table = pd.read_parquet(file)
    table[table["query_id"] != "q7"].to_parquet(file, index=False)  # of every measure
    with pytest.raises(BadInput, match="was changed after the trial's end") as error:
        load_sweep(folder)
    assert str(file) in str(error.value) and whole.command in str(error.value)
    file.unlink()
    with pytest.raises(BadInput, match=f"{file.name} is missing"):
        load_sweep(folder)


def test_a_dataset_is_the_sweep_that_one_table_is(tmp_path):
    folder = write_sweep(tmp_path, num_queries=20, fates={(1, 2): "failed", (2, 1): "collapsed"})
    one = load_sweep(folder)
    many = load_sweep(as_dataset(folder))
    order = ["cell", "seed", "measure", "query_id"]
    for name in ("scores", "dev_scores"):
        sorted_ = [getattr(sweep, name).sort_values(order) for sweep in (one, many)]
        pd.testing.assert_frame_equal(
            *[table.reset_index(drop=True) for table in sorted_], check_exact=True
        )


def test_a_remote_storage_gets_what_has_changed_and_gives_what_is_lacking(
    tmp_path, monkeypatch, leave_result
):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "first"))
    store = Store(f"memory://{uuid.uuid4().hex}", "ws")
    store.open()
    for name in NAMES:
        leave_result(store, name)
    store.pull(set(NAMES))
    store.fs.pipe_file(f"{store.root}/per_query.parquet", b"one table of version 0.1")
    write_dataset(store.folder, NAMES[:3])
    push_dataset(store)
    sent, put = [], store.fs.put_file
    monkeypatch.setattr(
        type(store.fs),
        "put_file",
        lambda fs, path, target, **rest: sent.append(target) or put(path, target, **rest),
    )
    write_dataset(store.folder, NAMES[1:])
    push_dataset(store)
    assert [path.rpartition("/")[2] for path in sent] == ["b-seed1.parquet", "_checksums.json"]

    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "second"))
    other = Store(store.storage, "ws")
    other.folder.mkdir(parents=True)
    got, get = [], store.fs.get_file
    monkeypatch.setattr(
        type(store.fs),
        "get_file",
        lambda fs, path, target, **rest: got.append(path) or get(path, target, **rest),
    )
    for expected in (3, 0):
        pull_dataset(other)
        assert len(got) == expected and trials(other.folder) == NAMES[1:]
        got.clear()
