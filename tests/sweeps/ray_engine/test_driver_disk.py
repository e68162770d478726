"""The disk of the driver's host through Ray: its actor on one machine, with a real Ray."""

import errno
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from rank_core.checkpoints import Cadence
from rank_core.checkpoints.checkpoint import FILE, Checkpoints
from sweeps.ray_engine import driver_disk as module
from sweeps.store import storage as storages
from sweeps.store.lock import only_driver
from sweeps.store.records import Records
from sweeps.store.storage import MARK, UNFINISHED, Storage, StorageAway

SWEEP = "window_stride/woods"


def processes(title):
    """Of this user's Ray, by the title that Ray gives to a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [int(path.parent.name)] if path.read_text().startswith(title) else []
    return found


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """The actor as an object here, with small pieces; a node's storage of it is `far`."""
    Storage(str(tmp_path / "s")).open()
    disk = module.Disk(str(tmp_path / "s"))

    def call(self, method, *arguments, **options):
        return getattr(disk, method)(*arguments, **options)

    monkeypatch.setattr(module, "PIECE", 1000)
    monkeypatch.setattr(module.DriverDisk, "_call", call)
    return disk


@pytest.fixture
def far(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(storages, "WAIT_SECONDS", 0.01)
    return Storage(module.through_ray(disk.storage.root), opened=True, sleep=lambda seconds: None)


def files(disk):
    return sorted(path.name for path in Path(disk.storage.root).rglob("*") if path.is_file())


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 5000])
def test_a_file_passes_in_bounded_pieces(far, disk, tmp_path, monkeypatch, size):
    pieces, write = [], module.Disk.write

    def counted(self, path, name, piece, offset, whole):
        pieces.append(len(piece))
        write(self, path, name, piece, offset, whole)

    monkeypatch.setattr(module.Disk, "write", counted)
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    far.write("a/b/file", tmp_path / "file")
    assert far.read("a/b/file") == content
    assert far.fetch("a/b/file", tmp_path / "copy").read_bytes() == content
    assert max(pieces) <= 1000 and sum(pieces) == size


def test_a_node_that_is_lost_while_it_writes_leaves_the_file_as_it_was(far, disk, monkeypatch):
    far.write("trials/a/file", b"old")
    path, now = f"{disk.storage.root}/trials/a/file", module.time.time
    disk.write(path, "lost", b"x" * 1000, 0, 3000)
    assert far.read("trials/a/file") == b"old" and list(far.files()) == [MARK, "trials/a/file"]
    monkeypatch.setattr(module.time, "time", lambda: now() + module.ABANDONED_SECONDS + 1)
    far.write("trials/a/other", b"new")  # what the lost node had written goes
    assert files(disk) == [MARK, "file", "other"]


def test_what_does_not_fit_is_refused_before_it_takes_the_room(far, disk, monkeypatch):
    far.write("a", b"old")
    usage = shutil.disk_usage(disk.storage.root)
    monkeypatch.setattr(module, "disk_usage", lambda root: usage._replace(free=10))
    with pytest.raises(OSError) as error:
        far.write("a", b"x" * 2000, wait=False)
    assert error.value.errno == errno.ENOSPC  # as a trial's weights that may be left out need
    with pytest.raises(StorageAway, match="No space left"):
        far.write("a", b"x" * 2000)
    assert far.read("a") == b"old" and files(disk) == [MARK, "a"]


def test_a_folder_that_is_away_is_no_absent_file(far, disk):
    far.write("a", b"x")
    os.rename(disk.storage.root, f"{disk.storage.root}-away")
    os.mkdir(disk.storage.root)  # as below a mount
    for call in (lambda: far.read("a"), lambda: far.files(), lambda: far.write("b/c", b"y")):
        with pytest.raises(StorageAway, match="missing or not mounted"):
            call()
    with pytest.raises(OSError):
        disk.finish(f"{disk.storage.root}/b/c", "name", 1, create=False)
    assert not os.listdir(disk.storage.root)


def test_a_checkpoint_is_saved_and_loaded(far, disk):
    for number in (1, 2):
        Checkpoints(f"{far.uri}/checkpoints/t", Cadence(steps=1)).save({"n": number}, (0, number))
    other = Checkpoints(f"{far.uri}/checkpoints/t", Cadence(steps=1))
    assert other.load() == {"n": 2} and files(disk) == [MARK, FILE]
    other.clear()
    assert files(disk) == [MARK]


def test_a_folder_is_the_drivers_by_the_token_of_its_command(tmp_path):
    records = Records(Storage(str(tmp_path / "one")), SWEEP)
    records.storage.open()
    other = str(tmp_path / "two")
    with only_driver(records):
        asked = (SWEEP, records.command)
        assert module.sees_storage(records.storage.root, *asked)
        assert not module.sees_storage(other, *asked)  # absent
        shutil.copytree(records.storage.root, other)
        assert not module.sees_storage(other, SWEEP, "another command's")
    os.unlink(f"{other}/{SWEEP}/driver.json")
    with only_driver(Records(Storage(other), SWEEP)):  # a folder of this name on another host
        assert not module.sees_storage(other, *asked)


@pytest.mark.ray
@pytest.mark.slow
def test_an_actor_that_is_killed_starts_again_and_the_write_arrives(tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(module, "cluster_address", lambda: "this machine")
    monkeypatch.setattr(module, "PIECE", 2**20)
    records = Records(Storage(str(tmp_path / "s")), SWEEP)
    records.storage.open()
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        with only_driver(records), module.driver_disk(records):
            far = Storage(module.through_ray(records.storage.root), opened=True)
            content = os.urandom(3 * 2**20 + 1)
            far.write("trials/a", content)
            assert far.read("trials/a") == content
            [actor] = processes("ray::Disk")
            os.kill(actor, signal.SIGKILL)
            far.write("trials/b", content)
            assert records.storage.read("trials/b") == content
            assert not [name for name in os.listdir(tmp_path / "s/trials") if UNFINISHED in name]
    finally:
        ray.shutdown()
