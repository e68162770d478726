"""Trials appear whole or not at all, in a folder and in a storage that is none."""

import json
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import Checkpoints
from rank_core.errors import BadInput
from rank_core.records import Collection
from rank_core.settings.config import TrialConfig
from sweeps.store.checksums import COSTS, seal
from sweeps.store.sweep_file import Cell, SweepFile
from sweeps.store.trial_events import EVENTS, append_lines
from sweeps.store.trial_store import Store


@pytest.fixture(params=["folder", "memory"])
def storage(request, tmp_path):
    """A folder, and a filesystem that the driver mirrors."""
    return str(tmp_path / "s") if request.param == "folder" else f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def own_mirrors(tmp_path, monkeypatch):
    """Mirrors of this test alone; call it for those of another machine."""

    def elsewhere(number: int = 0) -> None:
        monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / f"machine{number}"))

    elsewhere()
    return elsewhere


def described(**facts):
    """The file of a sweep of one cell."""
    words = {"sweep": "ws", "question": "Which?", "split": "test", "primary": "P@1"}
    return SweepFile(**words, measures=("P@1",), baseline="a", cells=(Cell("a"),), **facts)


def opened(storage, name="sweep"):
    store = Store(str(storage), name)
    store.open()
    return store


def test_a_published_trial_is_finished_and_can_be_read(storage, own_mirrors, leave_result):
    store = opened(storage)
    assert store.finished() == set()
    leave_result(store, "cell-seed1")
    assert store.finished() == {"cell-seed1"}
    store.pull({"cell-seed1"})
    assert (store.folder / "runs" / "cell-seed1" / "per_query.parquet").exists()


def test_another_machine_gets_trials_and_files(storage, own_mirrors, leave_result):
    store = opened(storage)
    leave_result(store, "cell-seed1")
    (store.folder / "trials.parquet").write_text("rows")
    (store.folder / "report").mkdir()
    (store.folder / "report" / "table.md").write_text("table")
    store.push("trials.parquet", "report", "never-written")
    own_mirrors(1)
    other = opened(storage)
    assert other.pull_file("trials.parquet").read_text() == "rows"
    assert other.pull_file("report/table.md").parent.name == "report"
    assert not other.pull_file("nothing.parquet").exists()
    other.pull({"cell-seed1"})
    assert (other.folder / "runs" / "cell-seed1" / "result.json").exists()


def test_the_same_trial_published_twice_stays_the_first_one(tmp_path, leave_result):
    store = opened(tmp_path / "s")
    leave_result(store, "cell-seed1", seconds=1.0)
    first = (store.folder / "runs/cell-seed1/result.json").read_text()
    second = tmp_path / "second"
    second.mkdir()
    (second / "result.json").write_text("another")
    store.publish(second, "cell-seed1")
    assert (store.folder / "runs/cell-seed1/result.json").read_text() == first
    assert [path.name for path in (store.folder / "runs").iterdir()] == ["cell-seed1"]


@pytest.fixture
def umask():
    """Sets the umask of this test."""
    before = os.umask(0o027)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(
    "mask, folders, files", [(0o022, 0o755, 0o644), (0o002, 0o775, 0o664), (0o077, 0o700, 0o600)]
)
def test_everything_in_a_storage_has_the_modes_of_the_umask(tmp_path, umask, mask, folders, files):
    umask(mask)
    store, other = opened(tmp_path / "s", "ws"), opened(tmp_path / "s", "other")
    workdir = Path(tempfile.mkdtemp(dir=tmp_path))  # 0700, as of every trial
    (workdir / "weights.safetensors").touch(mode=0o600)
    result = {"status": "done"} | dict.fromkeys(COSTS, 1)
    (workdir / "result.json").write_text(json.dumps(result))
    seal(workdir)
    store.publish(workdir, "cell-seed1")
    other.adopt(trials("cell-seed1"))
    append_lines(store.folder / EVENTS, b"{}\n")
    checkpoints = Checkpoints(store.checkpoint_folder("cell-seed2"), Cadence())
    checkpoints.save({}, (0, 1))
    checkpoints.finish()
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "s").rglob("*")}
    assert len(modes) == 14
    assert {path: oct(mode) for path, mode in modes.items()} == {
        path: oct(folders if path.is_dir() else files) for path in modes
    }


def test_a_trial_without_its_last_file_is_not_finished_and_is_set_aside(tmp_path, leave_result):
    store = opened(tmp_path / "s")
    half = store.folder / "runs" / "cell-seed1"
    half.mkdir(parents=True)
    (half / "config.json").write_text("{}")
    (half / "left-over").write_text("x")
    assert store.finished() == set()
    leave_result(store, "cell-seed1")
    assert store.finished() == {"cell-seed1"}
    assert not (half / "left-over").exists()
    assert (half.with_name("cell-seed1.damaged-1") / "left-over").read_text() == "x"


def test_a_trial_on_its_way_is_no_trial_of_any_plan(tmp_path, leave_result):
    store = opened(tmp_path / "s")
    leave_result(store, "cell-seed1")
    arriving = store.folder / "runs" / ".arriving-cell-seed2-0a1b2c3d"
    arriving.mkdir()
    (arriving / "result.json").write_text("{}")
    assert "cell-seed2" not in store.finished()


def test_open_makes_the_folder_and_leaves_no_probe(tmp_path):
    store = opened(tmp_path / "new" / "deep")
    assert list(store.folder.iterdir()) == []


def test_sweeps_and_storages_have_different_identities(tmp_path):
    stores = [
        Store(str(tmp_path / "a"), "one"),
        Store(str(tmp_path / "a"), "two"),
        Store(str(tmp_path / "b"), "one"),
        Store("memory://a", "one"),
    ]
    identities = [store.identity for store in stores]
    assert len(set(identities)) == len(stores)
    assert {len(identity) for identity in identities} == {6}
    assert Store(f"{tmp_path}/./a/", "one").identity == identities[0]


def test_a_relative_folder_is_the_same_one_for_trials_that_run_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    storage = Store("results", "sweep").storage
    monkeypatch.chdir("/")
    assert Store(storage, "sweep").folder == tmp_path / "results" / "sweep"


@pytest.mark.parametrize("storage", ["", "nosuch://bucket"])
def test_what_names_no_storage_is_refused(storage):
    with pytest.raises(BadInput, match=r"--storage must be a folder or a URI such as s3://"):
        Store(storage, "sweep")


def trials(*names, keep_weights="best"):
    """As much of a plan's trials as the store looks at."""
    config = TrialConfig().override({"training.keep_weights": keep_weights})
    return [SimpleNamespace(name=name, config=config) for name in names]


def test_another_sweeps_finished_trial_is_taken_over_whole(storage, own_mirrors, leave_result):
    theirs, ours = opened(storage, "theirs"), opened(storage, "ours")
    for name in ("a-seed1", "a-seed2", "b-seed1"):
        leave_result(theirs, name)
    leave_result(ours, "own-seed1")
    wanted = trials("a-seed1", "b-seed1", "own-seed1", "nowhere-seed1")
    assert ours.adopt(wanted) == {"a-seed1", "b-seed1"}
    assert ours.adopt(wanted) == set()
    assert ours.finished() == {"a-seed1", "b-seed1", "own-seed1"}
    assert theirs.finished() == {"a-seed1", "a-seed2", "b-seed1"}
    ours.pull({"a-seed1"})
    theirs.pull({"a-seed1"})
    for file in ("result.json", "per_query.parquet"):
        mine, other = (s.folder / "runs" / "a-seed1" / file for s in (ours, theirs))
        assert mine.read_bytes() == other.read_bytes()


def test_a_trial_that_lacks_what_later_trials_need_is_not_taken_over(
    storage, own_mirrors, leave_result
):
    theirs, ours = opened(storage, "theirs"), opened(storage, "ours")
    leave_result(theirs, "a-seed1")
    assert ours.adopt(trials("a-seed1", keep_weights="all")) == set()
    assert ours.adopt(trials("a-seed1")) == {"a-seed1"}


def test_a_folder_shares_the_bytes_and_survives_the_other_sweep(tmp_path, leave_result):
    theirs, ours = (opened(tmp_path / "s", name) for name in ("theirs", "ours"))
    leave_result(theirs, "a-seed1")
    ours.adopt(trials("a-seed1"))
    mine, other = (s.folder / "runs/a-seed1/per_query.parquet" for s in (ours, theirs))
    assert mine.samefile(other)
    shutil.rmtree(theirs.folder)
    assert ours.finished() == {"a-seed1"} and mine.stat().st_size > 0


def test_where_the_disk_knows_no_links_files_are_copied(tmp_path, leave_result, monkeypatch):
    def no_links(source, target):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    theirs, ours = (opened(tmp_path / "s", name) for name in ("theirs", "ours"))
    leave_result(theirs, "a-seed1")
    assert ours.adopt(trials("a-seed1")) == {"a-seed1"}
    assert not (ours.folder / "runs/a-seed1/result.json").samefile(
        theirs.folder / "runs/a-seed1/result.json"
    )


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("python-docs", "python-docs"),
        ("python-docs|debias(seed=2)", "python-docs-debias-seed-2"),
        ("robust04-title@folds.json#s1", "robust04-title-folds.json-s1"),
        ("beir/nfcorpus/test", "beir-nfcorpus-test"),
        ("../..", "collection"),
        ("x" * 300, "x" * 80),
    ],
)
def test_a_collection_has_a_folder_that_every_file_system_takes(storage, own_mirrors, name, folder):
    store = Store(storage, "ws").of(Collection(name, "0" * 16, {}, {}))
    assert store.sweep == f"ws/{folder}" and store.root.endswith(f"/ws/{folder}")


def test_another_collection_of_the_same_name_has_a_folder_of_its_own(storage, own_mirrors):
    experiment = Store(storage, "ws")
    mine, other = (Collection("woods", digit * 16, {}, {}) for digit in "ab")
    assert experiment.collections() == []
    for _ in range(2):
        for collection, folder in ((mine, "ws/woods"), (other, "ws/woods-bbbbbb")):
            store = experiment.of(collection)
            assert store.sweep == folder
            store.open()
            description = described(collection={"content_hash": collection.content_hash})
            description.write(store.folder)
            store.push("sweep.json")
    assert experiment.collections() == ["woods", "woods-bbbbbb"]


def test_trials_are_taken_over_from_other_collections_and_from_folders_of_version_01(
    storage, own_mirrors, leave_result
):
    for number, name in enumerate(("ws", "ws/woods", "counts/woods-bbbbbb"), start=1):
        leave_result(opened(storage, name), f"a-seed{number}")
    ours = opened(storage, "counts/woods")
    names = {f"a-seed{number}" for number in (1, 2, 3)}
    assert ours.adopt(trials(*names)) == names == ours.finished()


def test_checkpoints_are_where_every_node_sees_them_and_can_be_dropped(storage, own_mirrors):
    store = opened(storage)
    for name in ("a-seed1", "b-seed1"):
        checkpoints = Checkpoints(store.checkpoint_folder(name), Cadence())
        checkpoints.save({"facts": name}, (0, 1))
        checkpoints.finish()
    own_mirrors(1)
    elsewhere = Store(storage, "sweep")
    elsewhere.drop_checkpoints({"a-seed1", "c-seed1"})
    left = [
        len(Checkpoints(elsewhere.checkpoint_folder(name), Cadence()).names())
        for name in ("a-seed1", "b-seed1")
    ]
    assert left == [0, 1]


def test_a_finished_trial_that_lacks_what_is_asked_now_is_named(tmp_path, plan_of, leave_result):
    plan = plan_of("--num-seeds", "1", "chunking.window=32", "training.keep_weights=all")
    store = Store(str(tmp_path / "s"), "ws")
    store.open()
    assert store.lacking(plan.trials(), store.finished()) == set()
    names = [trial.name for trial in plan.trials()]
    for name in names:
        leave_result(store, name)
    assert store.lacking(plan.trials(), store.finished()) == set(names)
    (store.folder / "runs" / names[0] / "weights.safetensors").write_bytes(b"w")
    assert store.lacking(plan.trials(), store.finished()) == set(names[1:])
    unasked = plan_of("--num-seeds", "1", "chunking.window=32")
    assert store.lacking(unasked.trials(), store.finished()) == set()


def test_weights_are_brought_here_for_who_asks_alone(storage, own_mirrors, leave_result, tmp_path):
    store = opened(storage)
    leave_result(store, "a-seed1")
    with store.fs.open(f"{store.root}/runs/a-seed1/weights.safetensors", "wb") as file:
        file.write(b"w")
    own_mirrors(1)
    elsewhere = Store(storage, "sweep")
    elsewhere.pull({"a-seed1"})
    weights = elsewhere.folder / "runs" / "a-seed1" / "weights.safetensors"
    assert weights.exists() == elsewhere.is_local and elsewhere.with_weights() == {"a-seed1"}
    assert elsewhere.pull_file("runs/a-seed1/weights.safetensors").read_bytes() == b"w"
    elsewhere.remove_weights("a-seed1")
    assert elsewhere.with_weights() == set() and elsewhere.finished() == {"a-seed1"}
