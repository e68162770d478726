"""A node with an empty cache builds nothing that the driver has put into the storage, and takes
nothing from it that was changed."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from errno import EIO, ENOSPC
from pathlib import Path
from types import SimpleNamespace

import pytest

from rank_core.cache import SECONDS, cache_root, cached_directory, restored_by
from sweeps.store import prepared as module
from sweeps.store.prepared import FOLDER, LIST, Prepared
from sweeps.store.storage import Storage

ROOT = Path(__file__).parents[3]
NODE = """
import json, sys
from rank_core import cache
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import prepare
from sweeps.store.prepared import KINDS, Prepared
from sweeps.store.storage import Storage
prepared, built = Prepared(Storage(sys.argv[1])), []
build = cache._build
cache._build = lambda kind, *rest: (built.append(kind), build(kind, *rest))
with cache.restored_by(prepared.restore):
    prepare(TrialConfig().override(json.loads(sys.argv[2])))
print(json.dumps([kind for kind in built if kind in KINDS]))
prepared.put(prepared.missing())
"""


def files_of(cache: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(cache)): path.read_bytes()
        for path in cache.rglob("*")
        if path.is_file()
        and path.suffix != ".lock"
        and path.name != SECONDS
        and path.parts[len(cache.parts)] in module.KINDS
    }


@pytest.mark.slow
def test_a_node_restores_all_tables_that_a_trial_reads(small_trial, tmp_path):
    Storage(str(tmp_path / "s")).open()

    def node(name: str) -> list[str]:
        command = [
            sys.executable,
            "-c",
            NODE,
            str(tmp_path / "s"),
            json.dumps(small_trial.settings()),
        ]
        env = {**os.environ, "RANKSWEEP_CACHE": str(tmp_path / name), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    assert {"collections", "tokens", "training"} <= set(node("driver"))
    assert node("worker") == []
    assert files_of(tmp_path / "worker") == files_of(tmp_path / "driver")


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A storage that has a folder of tokens, and a node that lacks it."""
    storage = Storage(str(tmp_path / "s"))
    storage.open()
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "driver"))

    def build(folder):
        (folder / "below").mkdir()
        (folder / "below" / "ids.uint8").write_bytes(b"ids")
        (folder / SECONDS).write_text("{}")

    for kind in ("tokens", "code"):  # the second is a user's, which nobody else runs
        cached_directory(kind, "k", build)
    prepared = Prepared(storage)
    missing = prepared.missing()
    assert missing == {"tokens/k": 3}
    prepared.put(missing)
    assert prepared.missing() == {}
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "node"))
    return prepared


def opened(prepared, kind="tokens"):
    """What a node has in the folder; `built` where it made that itself."""
    with restored_by(prepared.restore):
        folder = cached_directory(kind, "k", lambda folder: (folder / "built").touch())
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_folder_is_restored_whole(stored):
    assert opened(stored) == ["ids.uint8"]
    assert (cache_root() / "tokens" / "k" / "below" / "ids.uint8").read_bytes() == b"ids"
    assert opened(stored, "code") == ["built"]


def _other_content(folder, names):
    (folder / "below" / "ids.uint8").write_bytes(b"idz")


def _lost(folder, names):
    (folder / "below" / "ids.uint8").unlink()


def _outside(folder, names):
    (folder.parent / "evil").write_bytes(b"ids")
    names["../evil"] = names["below/ids.uint8"]


def _of_another_form(folder, names):
    names["below/ids.uint8"] = "3"


@pytest.mark.parametrize("damage", [_other_content, _lost, _outside, _of_another_form])
def test_damage_costs_the_preparation_alone(stored, damage, tmp_path, caplog, monkeypatch):
    folder = Path(stored.storage.root, FOLDER, "tokens", "k")
    names = json.loads((folder / LIST).read_text())
    damage(folder, names)
    (folder / LIST).write_text(json.dumps(names))
    word = "cannot be restored (No such file" if damage is _lost else "is damaged and not used"
    assert opened(stored) == ["built"] and word in caplog.text
    assert not (tmp_path / "node" / "tokens" / "evil").exists()
    # The next driver that has it puts it there again.
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "driver"))
    assert stored.missing() == {"tokens/k": 3}
    stored.put(stored.missing())
    assert stored.missing() == {}
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "other"))
    assert opened(stored) == ["ids.uint8"]


def test_a_list_that_cannot_be_read_is_removed(stored, caplog):
    path = Path(stored.storage.root, FOLDER, "tokens", "k", LIST)
    path.write_text('{"below/ids')
    assert opened(stored) == ["built"] and "is damaged and not used" in caplog.text
    assert not path.exists()


def test_what_fails_here_is_no_damage(stored, monkeypatch, caplog):
    def full(*_):
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    with monkeypatch.context() as no_room:
        no_room.setattr(module.shutil, "copyfile", full)
        assert opened(stored) == ["built"]
    assert "cannot be restored (No space left on device)" in caplog.text
    assert "damaged" not in caplog.text
    assert Path(stored.storage.root, FOLDER, "tokens", "k", LIST).exists()


@pytest.mark.parametrize("content", [b"", b"id"])
def test_a_file_that_was_cut_off_is_put_again_before_a_node_meets_it(
    stored, content, tmp_path, monkeypatch
):
    Path(stored.storage.root, FOLDER, "tokens", "k", "below", "ids.uint8").write_bytes(content)
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "driver"))
    assert stored.missing() == {"tokens/k": 3}


def test_the_time_until_a_node_can_begin_is_that_of_making_and_of_bringing(monkeypatch):
    seconds = {("tokens", "k"): 600.0, ("code", "c"): 9.0}
    monkeypatch.setattr(module, "used_folders", lambda: [*seconds])
    monkeypatch.setattr(module, "build_seconds", lambda names: sum(map(seconds.get, names)))
    files = [SimpleNamespace(stat=lambda: SimpleNamespace(st_size=37_500_000_000))]
    monkeypatch.setattr(module, "_files", lambda kind, key: files)
    found = module.preparation()
    assert found == (37_500_000_000, 600.0) and found.there == 600 + 300
    assert "made once in 10 min" in found.text and "in 5 min" in found.text
    seconds["tokens", "k"] = 59.0
    assert (module.preparation().text, module.preparation().there) == ("", 0.0)


def test_a_sweep_shares_what_it_reads_itself(monkeypatch, tmp_path):
    """A notebook runs several sweeps, which may have storages of several readers."""
    from sweeps.launch import sweep

    storage = Storage(str(tmp_path / "s"))

    def run(*_, **__):
        cached_directory("tokens", "own", lambda folder: (folder / "f").touch())
        return Prepared(storage).missing()

    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    cached_directory("tokens", "private", lambda folder: (folder / "f").touch())
    monkeypatch.setattr(sweep, "_sweep", run)
    options = SimpleNamespace(storage=storage.uri, engine="local", dry_run=False, confirm=False)
    assert sweep.run_sweep(SimpleNamespace(name="e"), options, []) == {"tokens/own": 0}


@pytest.mark.parametrize(("number", "tries"), [(EIO, 3), (ENOSPC, 1)])
def test_a_hiccup_of_the_storage_is_waited_for_and_a_full_one_is_not(
    stored, number, tries, tmp_path, monkeypatch
):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "driver"))
    Path(stored.storage.root, FOLDER, "tokens", "k", LIST).unlink()
    prepared = Prepared(Storage(stored.storage.uri, opened=True))
    put, tried = prepared.storage._put, []

    def failing(path, data, **how):
        tried.append(path)
        if len(tried) < 3:
            raise OSError(number, os.strerror(number))
        put(path, data, **how)

    monkeypatch.setattr(prepared.storage, "_put", failing)
    monkeypatch.setattr(prepared.storage, "_sleep", lambda seconds: None)
    with nullcontext() if number == EIO else pytest.raises(OSError, match="No space left"):
        prepared.put(prepared.missing())
    file = f"{FOLDER}/tokens/k/below/ids.uint8"
    assert tried[:tries] == [file] * tries and tried[tries:] in ([], [f"{FOLDER}/tokens/k/{LIST}"])
    assert bool(prepared.missing()) == (number == ENOSPC)


def test_a_storage_without_room_takes_nothing(stored, tmp_path, monkeypatch):
    usage = os.statvfs(tmp_path)
    full = type("Usage", (), {"free": 5, "total": usage.f_blocks})
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: full)
    with pytest.raises(OSError, match="No space left"):
        stored.put({"tokens/k": 3})
