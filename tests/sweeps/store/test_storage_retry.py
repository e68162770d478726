"""A storage that is away is waited for; a result it rejected is not lost."""

import json
import uuid

import pytest

from rank_core.errors import BadInput
from sweeps.store import storage_retry as patience
from sweeps.store.checksums import COSTS, seal
from sweeps.store.storage_retry import (
    StorageAway,
    kept_folder,
    patiently,
    publish_kept,
    publish_or_keep,
)
from sweeps.store.trial_store import Store


@pytest.fixture(autouse=True)
def fast(monkeypatch, tmp_path):
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(patience, "WAIT_SECONDS", 0.05)
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))


class Flaky:
    """Fails a number of times, then answers."""

    def __init__(self, times, error=None):
        error = error or OSError("the share is not mounted")
        self.times, self.error, self.calls = times, error, 0

    def __call__(self):
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return "done"


def test_an_action_is_repeated_until_the_storage_is_back(caplog):
    action = Flaky(2)
    assert patiently(action, "s3://b rejected x") == "done" and action.calls == 3
    first, last = (record.message for record in caplog.records)
    assert "s3://b rejected x: the share is not mounted" in first and "is back" in last


def test_a_storage_that_stays_away_ends_the_wait():
    action = Flaky(10**9)
    with pytest.raises(StorageAway, match="s3://b rejected x: OSError: the share"):
        patiently(action, "s3://b rejected x")
    assert action.calls > 2


@pytest.mark.parametrize("mistake", [BadInput("x"), TypeError("x"), KeyError("x")])
def test_a_mistake_is_not_waited_for(mistake):
    action = Flaky(1, mistake)
    with pytest.raises(type(mistake)):
        patiently(action, "x")
    assert action.calls == 1


def test_a_result_the_storage_does_not_take_is_kept_and_published_later(tmp_path, monkeypatch):
    store = Store(f"memory://{uuid.uuid4().hex}", "window_stride")
    store.open()
    workdir = tmp_path / "work"
    workdir.mkdir()
    result = {"status": "done"} | dict.fromkeys(COSTS, 1)
    (workdir / "result.json").write_text(json.dumps(result))
    (workdir / "per_query.parquet").write_bytes(b"values")
    seal(workdir)
    put = store.fs.put_file

    def away(*args, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(store.fs, "put_file", away)
    with pytest.raises(StorageAway, match=r"no route to host.*is kept in"):
        publish_or_keep(store, workdir, "cell-seed1")
    assert store.finished() == set()
    assert (kept_folder(store, "cell-seed1") / "per_query.parquet").read_bytes() == b"values"

    monkeypatch.setattr(store.fs, "put_file", put)
    assert publish_kept(store, "cell-seed1") == result
    assert store.finished() == {"cell-seed1"}
    assert store.fs.cat_file(f"{store.root}/runs/cell-seed1/per_query.parquet") == b"values"
    assert publish_kept(store, "cell-seed1") is None


def test_the_same_result_is_kept_once(tmp_path):
    store = Store(str(tmp_path / "file" / "x"), "s")
    (tmp_path / "file").write_text("in the way: nothing can be written below it")
    workdir = tmp_path / "work"
    workdir.mkdir()
    (workdir / "result.json").write_text("{}")
    for _ in range(2):
        with pytest.raises(StorageAway):
            publish_or_keep(store, workdir, "cell-seed1")
    kept = kept_folder(store, "cell-seed1")
    assert [path.name for path in kept.parent.iterdir()] == ["cell-seed1"]
