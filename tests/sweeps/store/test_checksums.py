"""Checksums of finished trials: what is checked when, in a folder and in a storage that is none."""

import json
import os
import uuid

import pytest

from sweeps.store import checksums, storage_retry
from sweeps.store.checksums import COSTS, DamagedTrial, damage, read_checked, read_result, seal
from sweeps.store.storage_retry import kept_folder, patient_read, publish_kept
from sweeps.store.trial_store import Store
from tests.sweeps.store.test_trial_store import trials

FACTS = {"status": "done"} | dict.fromkeys(COSTS, 1)


@pytest.fixture(params=["folder", "memory"])
def store(request, tmp_path, monkeypatch):
    """A store with the trial `c-seed1`."""
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    storage = str(tmp_path / "s") if request.param == "folder" else f"memory://{uuid.uuid4().hex}"
    store = Store(storage, "ws/woods")
    store.open()
    store.publish(sealed(tmp_path / "work"), "c-seed1")
    return store


def sealed(folder):
    """A trial's folder with checksums."""
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(FACTS))
    (folder / "per_query.parquet").write_bytes(b"values")
    (folder / "weights.safetensors").write_bytes(b"w" * 100)
    seal(folder)
    return folder


def test_a_result_says_what_it_said_before_it_was_sealed(tmp_path):
    folder = sealed(tmp_path / "work")
    assert read_result(folder).facts == FACTS
    assert set(read_result(folder).files) == {"per_query.parquet", "weights.safetensors"}
    before = (folder / "result.json").read_bytes()
    seal(folder)
    assert (folder / "result.json").read_bytes() == before
    assert read_checked(folder, "per_query.parquet") == b"values"
    assert damage(folder, thorough=True) == damage(folder, thorough=False) == ""


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"status": "collapsed"}, "was changed after the trial's end"),
        ({"checksum": None}, "was changed after the trial's end"),
        ({"files": {}}, "was changed after the trial's end"),
        ({"status": "unheard of"}, "must be the result of a trial"),
    ],
)
def test_an_edited_result_is_known_by_its_own_checksum(tmp_path, edit, words):
    path = sealed(tmp_path / "work") / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))
    with pytest.raises(DamagedTrial, match=rf"{path} {words}; the sweep's command sets"):
        read_result(path.parent)


def test_a_large_file_is_hashed_where_it_was_changed_and_when_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "SMALL", 99)
    folder = sealed(tmp_path / "work")
    path = folder / "weights.safetensors"
    path.write_bytes(b"v" * 100)
    for ahead, found in ((1, "weights.safetensors was changed after the trial's end"), (-1, "")):
        moment = (folder / "result.json").stat().st_mtime_ns + ahead * 10**9
        os.utime(path, ns=(moment, moment))
        assert damage(folder, thorough=True) == damage(folder, thorough=False) == found
    with pytest.raises(DamagedTrial, match=r"weights\.safetensors was changed"):
        read_checked(folder, "weights.safetensors")
    monkeypatch.setattr(checksums, "SMALL", 100)
    assert damage(folder, thorough=True) and not damage(folder, thorough=False)


def test_a_damaged_trial_is_set_aside_and_counts_no_more(store, tmp_path):
    path = f"{store.root}/runs/c-seed1/per_query.parquet"
    for number in (1, 2):
        store.fs.pipe_file(path, b"other!")
        assert store.damage("c-seed1") == "per_query.parquet was changed after the trial's end"
        assert store.set_aside("c-seed1") == f"c-seed1.damaged-{number}"
        assert store.finished() == set()
        kept = f"{store.root}/runs/c-seed1.damaged-{number}"
        assert store.fs.cat_file(f"{kept}/per_query.parquet") == b"other!"
        assert len(store.fs.ls(kept)) == 3
        store.publish(sealed(tmp_path / f"again{number}"), "c-seed1")
        assert store.finished() == {"c-seed1"}
    assert store.damage("c-seed1") == ""


def test_a_mirror_that_is_damaged_is_fetched_again(store):
    if store.is_local:
        pytest.skip("a folder has no mirror")
    store.pull({"c-seed1"})
    (store.folder / "runs" / "c-seed1" / "per_query.parquet").unlink()
    assert store.damage("c-seed1") == ""
    assert read_checked(store.folder / "runs" / "c-seed1", "per_query.parquet") == b"values"


def test_a_damaged_trial_of_another_sweep_is_not_taken_over(store):
    other = Store(store.storage, "ws/lakes")
    other.open()
    store.fs.pipe_file(f"{store.root}/runs/c-seed1/per_query.parquet", b"other!")
    assert other.adopt(trials("c-seed1")) == set() == other.finished()
    assert store.finished() == {"c-seed1"}


def test_damage_is_never_taken_for_a_storage_that_is_away(store, monkeypatch):
    store.fs.rm_file(f"{store.root}/runs/c-seed1/per_query.parquet")
    store.pull({"c-seed1"})
    folder = store.folder / "runs" / "c-seed1"
    monkeypatch.setattr(storage_retry.time, "sleep", lambda seconds: pytest.fail("it waits"))
    with pytest.raises(DamagedTrial, match=r"per_query\.parquet is missing"):
        patient_read(store, lambda: read_checked(folder, "per_query.parquet"))


def test_a_storage_that_is_away_is_never_taken_for_damage(store, tmp_path, monkeypatch):
    if not store.is_local:
        pytest.skip("an object store says that it is away")
    gone, tries = tmp_path / "gone", []

    def read():
        tries.append(store.folder.exists())
        if len(tries) == 1:
            store.folder.rename(gone)
        return store.damage("c-seed1")

    monkeypatch.setattr(storage_retry.time, "sleep", lambda seconds: gone.rename(store.folder))
    assert patient_read(store, read) == "" and tries == [True, True]


def test_a_trial_that_was_kept_on_this_machine_and_is_damaged_is_computed_again(store):
    kept = kept_folder(store, "d-seed1")
    kept.parent.mkdir(parents=True)
    sealed(kept)
    (kept / "per_query.parquet").write_bytes(b"other!")
    assert publish_kept(store, "d-seed1") is None
    assert store.finished() == {"c-seed1"}
    [aside] = kept.parent.iterdir()
    assert aside.name.startswith("d-seed1.damaged-")
