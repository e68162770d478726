"""The laws of every storage: a folder, memory, S3 (moto's server on loopback), and a folder of the
driver's host through its actor."""

import errno
import json
import os
import socket
import stat
import threading
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from rank_core.errors import BadInput
from sweeps.ray_engine import driver_disk
from sweeps.store import lock as driving
from sweeps.store import records as stored
from sweeps.store import storage as storages
from sweeps.store.lock import Driver, follow_driver, living_driver, only_driver, touch
from sweeps.store.records import (
    COSTS,
    KILLED,
    TRIALS,
    DamagedTrial,
    Records,
    cell_and_seed,
    trial_name,
)
from sweeps.store.storage import MARK, Storage, StorageAway
from sweeps.store.sweep_file import Cell, SweepFile
from sweeps.store.trial_status import TrialStatus
from tests.s3_server import s3_bucket

NAME, SWEEP = "c1-seed7", "window_stride/woods"


@pytest.fixture(scope="module")
def s3_server():
    pytest.importorskip("s3fs", minversion="2026.1")
    pytest.importorskip("moto")
    with s3_bucket():
        yield


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """A folder of the driver's host, whose actor is an object here."""
    Storage(str(tmp_path / "s")).open()
    disk = driver_disk.Disk(str(tmp_path / "s"))

    def call(self, method, *arguments, **options):
        return getattr(disk, method)(*arguments, **options)

    monkeypatch.setattr(driver_disk, "PIECE", 3000)
    monkeypatch.setattr(driver_disk.DriverDisk, "_call", call)
    return driver_disk.through_ray(str(tmp_path / "s"))


@pytest.fixture(params=["folder", "memory", "driver", pytest.param("s3", marks=pytest.mark.slow)])
def uri(request, tmp_path):
    if request.param == "s3":
        request.getfixturevalue("s3_server")
    if request.param == "driver":
        return request.getfixturevalue("driver")
    own = uuid.uuid4().hex
    return {"folder": str(tmp_path / "s"), "memory": f"memory://{own}", "s3": f"s3://bucket/{own}"}[
        request.param
    ]


@pytest.fixture
def waits(monkeypatch):
    """No pauses, and a clock that counts them."""
    clock = SimpleNamespace(now=0.0, pauses=0)

    def sleep(seconds):
        clock.now += seconds
        clock.pauses += 1

    monkeypatch.setattr(storages.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(driving, "SETTLE_SECONDS", 0.0)
    clock.sleep = sleep
    return clock


@pytest.fixture
def records(uri):
    storage = Storage(uri)
    storage.open()
    return Records(storage, SWEEP)


def reader(records: Records, sweep: str = SWEEP) -> Records:
    """Another command's view."""
    return Records(Storage(records.storage.uri), sweep)


def work(folder: Path, value: float = 0.5, **files: str) -> Path:
    """A trial's working folder as its process leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"status": "done", "dev": {"m": value}} | dict.fromkeys(COSTS, 1.0)
    (folder / "result.json").write_text(json.dumps(facts))
    for name, text in (
        {"per_query.parquet": f"values {value}", "history.jsonl": ""} | files
    ).items():
        (folder / name).write_text(text)
    return folder


def test_a_file_is_whole_or_absent(records, tmp_path):
    storage, file = records.storage, tmp_path / "file"
    file.write_bytes(b"whole")
    assert storage.read("a/b") is None
    storage.write("a/b", b"one")
    storage.write("a/b", file)
    assert storage.read("a/b") == b"whole"
    seen, over = set(), threading.Event()

    def read():
        while not over.is_set():
            seen.add(storage.read("a/b"))

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(30):
        storage.write("a/b", bytes([number]) * 10_000)
    over.set()
    thread.join()
    assert {len(set(content)) for content in seen - {b"whole"}} <= {1}
    assert list(storage.files("a")) == ["a/b"]


def test_files_and_folders_have_the_permissions_of_the_umask(tmp_path):
    storage, before = Storage(str(tmp_path)), os.umask(0o002)
    storage.write("trials/c1/file", b"whole")
    os.umask(before)
    modes = [
        stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("trials", "trials/c1/file")
    ]
    assert modes == [0o775, 0o664], "a group resumes each other's sweeps"


def test_every_call_may_be_repeated(records, tmp_path):
    storage = records.storage
    for _ in range(2):
        assert storage.create("a", b"x")
        storage.write("b", b"y")
        storage.remove("c")
        storage.open()
    assert not storage.create("a", b"z")
    assert storage.read_all(["a", "b", "c"]) == {"a": b"x", "b": b"y"}
    for _ in range(2):
        records.publish(NAME, work(tmp_path / NAME))
    assert records.state(NAME).status is TrialStatus.DONE


def test_one_of_many_creates_a_file(records):
    won = []
    threads = [
        threading.Thread(
            target=lambda n=n: records.storage.create("one", b"%d" % n) and won.append(n)
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and records.storage.read("one") == b"%d" % won[0]


def test_one_command_drives_a_sweep(records):
    with only_driver(records) as driver:
        assert living_driver(reader(records)).command == driver.command
        with pytest.raises(BadInput, match=f"process {os.getpid()}"), only_driver(reader(records)):
            pass
    assert living_driver(reader(records)) is None
    with only_driver(reader(records)):
        pass


def test_a_sweep_is_taken_over_after_a_minute(records, waits):
    other = Driver("elsewhere", 1, "token", since=0.0)
    records.write_file(driving.FILE, driving._content(other))
    written = records.storage.now()
    assert living_driver(records, now=lambda: written + 50) == other
    with pytest.raises(BadInput, match="elsewhere"), only_driver(records, lambda: written + 50):
        pass
    with only_driver(records, lambda: written + 70) as driver:
        taken = []
        touch(records, other, threading.Event(), lambda _, new: taken.append(new.command), 0.0)
        assert taken == [driver.command]  # the other one notices
    here = Driver(socket.gethostname(), 2**22 + 1, "token")  # a killed one of this host: at once
    records.write_file(driving.FILE, driving._content(here))
    with only_driver(records):
        pass


KILLED_IN = {"before a report": None, "training": 60.0, "scoring": 60.0}


@pytest.mark.parametrize("report", KILLED_IN.values(), ids=KILLED_IN)
def test_what_a_killed_driver_has_used_is_counted_up_to_its_last_touch(
    records, waits, monkeypatch, report
):
    now = [1_000_000.0]
    monkeypatch.setattr(stored, "_now", lambda: int(1000 * now[0]))
    SweepFile("x", "?", "test", ("m",), "m", "c", (Cell("c"),), trials=(NAME, "d-seed1")).write(
        records
    )
    records.command = "token"
    records.begin(NAME)
    records.begin("d-seed1")
    records.end("d-seed1", "failed")  # by itself, at once
    if report:
        content = {"step": 9, "num_steps": 9, "dev": None, "curve": []}
        content["time"] = 1000 * (now[0] + report)
        records.storage.write(f"trials/{NAME}/progress.json", json.dumps(content).encode())
    dead = Driver(socket.gethostname(), 2**22 + 1, "token", since=now[0])
    with monkeypatch.context() as patch:  # its last touch, after an hour of scoring
        patch.setattr(driving.time, "time", lambda: now[0] + 3600.0)
        records.write_file(driving.FILE, driving._content(dead))
    status = reader(records)
    assert follow_driver(status) is None
    for _ in range(2):  # a second command is killed before it has begun an attempt
        with only_driver(records):
            assert records.state(NAME).slot_seconds() == 3600.0
    for one in (status, reader(records)):
        state = one.state(NAME)
        assert (state.slot_seconds(), state.status, state.reason) == (3600.0, "planned", KILLED)
        assert (one.state("d-seed1").slot_seconds(), one.state("d-seed1").status) == (
            0.0,
            "failed",
        )


def test_a_storage_that_is_back_after_the_last_touch_is_said_to_be_back(
    records, monkeypatch, caplog
):
    storage, over = records.storage, threading.Event()
    tell_away = storage.tell_away
    # One touch fails, and the sweep has ended before the next.
    monkeypatch.setattr(storage, "tell_away", lambda text: (tell_away(text), over.set()))

    def away():
        raise ConnectionError("no route")

    with only_driver(records) as driver:
        with monkeypatch.context() as patch:
            patch.setattr(storage, "require", away)
            touch(records, driver, over, seconds=0.0)
    assert "trying again" in caplog.text and " is back" in caplog.text


@pytest.mark.parametrize("damage", ["values", "a lost file", "the result", "half a result"])
def test_damage_is_named_and_the_trial_trained_again(records, tmp_path, damage):
    records.publish(NAME, work(tmp_path / "first"))
    storage, values = records.storage, f"trials/{NAME}/per_query.parquet"
    if damage == "values":
        storage.write(values, b"values 0.9")  # of the same size
    elif damage == "half a result":
        storage.write(f"trials/{NAME}/result.json", b'{"status": "done"')
    elif damage == "the result":
        content = storage.read(f"trials/{NAME}/result.json")
        storage.write(f"trials/{NAME}/result.json", content.replace(b"0.5", b"0.6"))
    else:
        storage.remove(values)
    records = reader(records)
    file = "result.json" if "result" in damage else "per_query.parquet"
    with pytest.raises(DamagedTrial, match=file):
        records.read(NAME, "per_query.parquet")
    state = records.state(NAME)
    if damage == "values" and not storage.is_local:  # S3 counts whole seconds
        return
    assert file in records.damage(state, thorough=True)
    records.begin(NAME)
    assert reader(records).state(NAME).status is TrialStatus.PLANNED
    records.publish(NAME, work(tmp_path / "again"))
    assert records.read(NAME, "per_query.parquet") == b"values 0.5"


def test_others_read_what_a_driver_writes(records, tmp_path):
    with only_driver(records) as driver:
        assert records.begin(NAME) == 1
        records.progress(NAME, {"step": 3, "num_steps": 9, "dev": None, "curve": []})
        other = reader(records)
        other.command = living_driver(other).command
        state = other.state(NAME)
        assert (state.status, state.progress["step"]) == (TrialStatus.RUNNING, 3)
        records.end(NAME, "failed", kind="node lost", reason="--token abcdefgh", again=True)
        assert records.begin(NAME) == 2
        lost, second = other.state(NAME).attempts
        assert (lost.kind, lost.again, lost.command) == ("node lost", True, driver.command)
        assert "abcdefgh" not in lost.reason and second.ended is None
        assert other.state(NAME).progress is None
        records.publish(NAME, work(tmp_path / NAME, history='{"step": 1}'))
        records.end(NAME, "done")
    state = reader(records).state(NAME)
    assert (state.status, state.num_attempts, dict(state.dev)) == ("done", 2, {"m": 0.5})
    assert state.progress is None


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (None, "planned"),  # its driver was killed
        ({"status": "failed", "again": False, "reason": "why"}, "failed"),
        ({"status": "diverged", "reason": "why"}, "diverged"),
        ({"status": "stopped", "reason": "why"}, "stopped"),
        ({"status": "interrupted"}, "planned"),
    ],
)
def test_a_trial_without_a_result_is_what_its_last_attempt_says(records, end, status):
    records.begin(NAME)
    if end:
        records.end(NAME, **end)
    state = reader(records).state(NAME)
    assert (state.status, state.num_attempts) == (status, 1)
    assert state.reason == (end or {}).get("reason", state.reason)


def test_many_trials_are_read_by_one_listing(records, tmp_path, monkeypatch):
    names = [f"c{number}-seed1" for number in range(4)]
    for name in names:
        records.publish(name, work(tmp_path / name))
    other, calls = reader(records), []
    assert {state.status for state in other.states(names).values()} == {TrialStatus.DONE}
    listed, read = Storage.files, Storage.read_all
    monkeypatch.setattr(Storage, "files", lambda *a: calls.append("list") or listed(*a))
    monkeypatch.setattr(
        Storage, "read_all", lambda s, paths: calls.append(len(p := list(paths))) or read(s, p)
    )
    other.states(names)
    lists = len(names) if other.storage.is_local else 1
    assert calls == ["list"] * lists + [0]  # what has not changed is not read again
    assert other.read_each(names, "per_query.parquet") == dict.fromkeys(names, b"values 0.5")


def test_a_storage_that_goes_away_is_waited_for_two_minutes(records, waits, monkeypatch):
    storage = Storage(records.storage.uri, opened=True, sleep=waits.sleep)
    storage.write("a", b"x")
    back = 60.0

    def away(*args, **kwargs):
        if waits.now < back:
            raise ConnectionError("no route")

    monkeypatch.setattr(storage, "require", away)
    assert storage.read("a") == b"x" and 60 <= waits.now < 90
    back = 1e9
    start = waits.now
    with pytest.raises(StorageAway, match="no route"):
        storage.write("a", b"y")
    assert 120 <= waits.now - start < 140
    monkeypatch.setattr(storage, "_opened", False)  # of a command that only reads: at once
    pauses = waits.pauses
    with pytest.raises((BadInput, OSError), match="no route"):
        storage.read("a")
    assert waits.pauses == pauses


def test_nothing_is_written_below_a_mount_point_without_its_mount(tmp_path, waits):
    mounted = Storage(str(tmp_path / "s"))
    mounted.open()
    storage = Storage(str(tmp_path / "s"), opened=True, sleep=waits.sleep)
    storage.write("kept", b"x")
    (tmp_path / "s").rename(tmp_path / "away")
    (tmp_path / "s").mkdir()
    for call in (
        lambda: storage.write("trials/a", b"y"),
        lambda: storage.create("b", b"y"),
        lambda: storage.read("kept"),
        lambda: storage.files(""),
        lambda: Records(storage, SWEEP).begin(NAME),
    ):
        with pytest.raises(StorageAway, match="not mounted"):
            call()
    assert os.listdir(tmp_path / "s") == []
    assert (tmp_path / "away" / MARK).exists()


def test_an_equal_trial_of_another_sweep_is_there_already(records, tmp_path):
    records.begin(NAME)
    records.publish(NAME, work(tmp_path / "one"))
    records.end(NAME, "done")
    other = reader(records, "seeds/woods")
    state = other.state(NAME)
    assert (state.status, state.attempts, state.num_attempts) == (TrialStatus.DONE, (), 1)
    # The first one counts, unless the second has more files.
    other.publish(NAME, work(tmp_path / "two", 0.25))
    assert other.result(NAME).facts["dev"] == {"m": 0.5}
    other.publish(NAME, work(tmp_path / "three", 0.25, weights="w"))
    assert reader(records).result(NAME).facts["dev"] == {"m": 0.25}


def test_a_trial_is_whole_by_its_result(records, tmp_path, monkeypatch):
    written, write = [], Storage.write

    def killed(storage, path, data, **how):
        if path.endswith("result.json"):
            raise KeyboardInterrupt
        written.append(path)
        write(storage, path, data, **how)

    monkeypatch.setattr(Storage, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        records.publish(NAME, work(tmp_path / NAME))
    assert len(written) == 2
    assert records.state(NAME).status is TrialStatus.PLANNED
    monkeypatch.setattr(Storage, "write", write)
    records.publish(NAME, work(tmp_path / NAME))
    assert records.state(NAME).status is TrialStatus.DONE


@pytest.fixture
def full(monkeypatch):
    """Makes the disk one without room for files of these ends, until it is called again."""
    put = Storage._put

    def full(*ends):
        def refuse(self, path, data, **options):
            if path.endswith(ends):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            put(self, path, data, **options)

        monkeypatch.setattr(Storage, "_put", refuse if ends else put)

    return full


def test_weights_that_do_not_fit_cost_no_values(tmp_path, full, caplog):
    own = Records(Storage(str(tmp_path / "results"), sleep=lambda seconds: None), SWEEP)
    own.storage.open()
    full("weights.safetensors")
    own.publish(NAME, work(tmp_path / NAME, **{"weights.safetensors": "w"}))
    state = own.state(NAME)
    assert state.status.used and not own.damage(state, thorough=True)
    assert own.read(NAME, "per_query.parquet") == b"values 0.5"
    assert "weights.safetensors" not in state.files
    [line] = caplog.messages
    assert f"{TRIALS}/{NAME}/weights.safetensors: No space left" in line
    assert "values are kept" in line and "same command" in line
    full()
    own.publish(NAME, work(tmp_path / "again", **{"weights.safetensors": "w"}))
    assert own.read(NAME, "weights.safetensors") == b"w"


def test_a_disk_that_is_full_for_some_files_has_one_message_a_minute(
    tmp_path, full, monkeypatch, caplog
):
    now = [1000.0]

    def sleep(seconds):
        now[0] += seconds
        storage.write("small", b"fits")

    monkeypatch.setattr(storages, "time", SimpleNamespace(monotonic=lambda: now[0]))
    storage = Storage(str(tmp_path / "results"), sleep=sleep)
    monkeypatch.setattr(storages.time, "time", lambda: now[0], raising=False)
    storage.open()
    full("large")
    with pytest.raises(StorageAway, match="No space left"):
        storage.write("large", b"does not")
    assert len(caplog.messages) == storages.WAIT_SECONDS / storages.LINE_SECONDS
    assert all("large cannot be written" in line for line in caplog.messages)


@pytest.mark.parametrize("seed", [-1, 0, 1, 12, 2**40])
@pytest.mark.parametrize("cell", ["maxp-w64-s48-ae7de6462e17", "a-seed3"])
def test_the_name_of_a_trial_says_its_cell_and_its_seed(cell, seed):
    assert cell_and_seed(trial_name(cell, seed)) == (cell, seed)


@pytest.mark.parametrize("name", ["notes", "maxp-seed", "maxp-seedx", "maxp-seed\u00b2"])
def test_another_name_has_seed_0(name):
    assert cell_and_seed(name)[1] == 0
