"""Folders built once, however many processes want them and however they end."""

import getpass
import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from rank_core import cache
from rank_core.cache import (
    build_seconds,
    cache_root,
    cached_directory,
    loaded_once,
    opened_anew,
    restored_by,
    used_folders,
)
from rank_core.errors import BadInput
from rank_core.home import has_home, lend_home

ROOT = Path(__file__).parents[2]
BUILDER = """
import os, sys, time
from rank_core.cache import cached_directory
def build(folder):
    print([path.name for path in folder.iterdir()], end=" ")
    (folder / "part").write_text("half")
    print("building", flush=True)
    time.sleep(float(sys.argv[1]))
    (folder / "part").write_text("whole")
made = cached_directory("kind", "key", build)
print((made / "part").read_text(), flush=True)
"""


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    return cache_root()


@pytest.fixture
def nobody(monkeypatch):
    """A user without a home folder and a name."""
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "")  # what is set later is undone, too
        monkeypatch.delenv(name)


def test_a_user_without_a_home_folder_gives_the_cache_one(nobody, monkeypatch, root):
    assert cache_root() == root
    monkeypatch.delenv("RANKSWEEP_CACHE")
    with pytest.raises(BadInput, match=r"no home folder .*: set RANKSWEEP_CACHE"):
        cache_root()
    lend_home()
    assert not has_home()


def test_the_cache_is_the_home_folder_of_a_user_without_one(nobody, root):
    lend_home()
    assert Path.home() == root and getpass.getuser()


def test_nobody_else_s_home_folder_changes(monkeypatch):
    before = dict(os.environ)
    lend_home()
    assert dict(os.environ) == before


def test_the_cache_of_others_is_in_their_home_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("RANKSWEEP_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "ranksweep"


def start(seconds):
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(seconds)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def folders(root):
    return [path.name for path in (root / "kind").iterdir() if path.is_dir()]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_build_leaves_nothing(root, error):
    def fail(folder):
        (folder / "part").write_text("half")
        raise error("half way")

    with pytest.raises(error, match="half way"):
        cached_directory("kind", "key", fail)
    assert [path for path in (root / "kind").iterdir() if path.is_dir()] == []
    cached_directory("kind", "key", lambda folder: (folder / "part").touch())
    assert (root / "kind" / "key" / "part").exists()


def test_several_processes_build_a_folder_once():
    builders = [start(0.3) for _ in range(4)]
    output = "".join(builder.communicate(timeout=300)[0] for builder in builders)
    assert output.count("building") == 1
    assert output.count("whole") == 4
    assert all(builder.returncode == 0 for builder in builders)


def test_a_killed_builders_folder_is_removed(root):
    killed = start(600)
    assert killed.stdout.readline() == "[] building\n"
    waiting = start(0)
    time.sleep(0.1)
    assert "key" not in folders(root), "nothing half-made may bear the name"
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=300)
    assert waiting.communicate(timeout=300)[0] == "[] building\nwhole\n"
    assert folders(root) == ["key"]


def test_a_cache_that_is_no_folder_is_named_with_its_variable(root, monkeypatch):
    root.mkdir(parents=True, exist_ok=True)
    (root / "file").touch()
    monkeypatch.setenv("RANKSWEEP_CACHE", str(root / "file"))
    with pytest.raises(
        BadInput, match=r"cache must be a writable folder, got .*/file: .*RANKSWEEP"
    ):
        cached_directory("kind", "key", lambda folder: None)


@pytest.mark.parametrize("key", ["../up", "a/b", "/abs", ".", "..", "", "a/"])
def test_a_key_is_the_name_of_a_folder(root, key):
    with pytest.raises(ValueError, match="not the name of a folder"):
        cached_directory("kind", key, lambda folder: None)
    assert not root.exists()


def test_a_cache_below_the_home_folder_may_be_written_with_a_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RANKSWEEP_CACHE", "~/ranks")
    assert cache_root() == tmp_path / "ranks"


def test_a_block_counts_what_it_opens_itself_or_has_from_memory(root):
    @loaded_once(maxsize=4)
    def load(key):
        return cached_directory("kind", key, lambda folder: None)

    def names():
        return [key for _, key in used_folders()]

    load("first")
    load("others")
    with opened_anew():
        assert names() == []
        with opened_anew():
            load("first")
            cached_directory("kind", "second", lambda folder: None)
            assert names() == ["first", "second"]
        load("new")
        assert names() == ["first", "second", "new"]
    assert {"first", "others", "second", "new"} <= {*names()}


def test_what_another_machine_has_built_is_not_built_again(root, monkeypatch):
    asked = []

    def restore(kind, key, folder):
        asked.append(key)
        if key == "there":
            (folder / "part").write_text("brought")
        return key == "there"

    with restored_by(restore):
        there = cached_directory("kind", "there", lambda folder: pytest.fail("it was built"))
        cached_directory("kind", "new", lambda folder: (folder / "part").touch())
        cached_directory("kind", "there", lambda folder: pytest.fail("it was built"))
    cached_directory("kind", "later", lambda folder: (folder / "part").touch())
    assert (there / "part").read_text() == "brought" and asked == ["there", "new"]
    assert {"there", "new", "later"} <= {key for _, key in used_folders()}


def test_the_time_of_what_was_built_for_another_folder_counts_once(root, monkeypatch):
    clock = itertools.count(step=10.0)  # a look at the clock: 10 s
    monkeypatch.setattr(cache.time, "monotonic", lambda: next(clock))

    def candidates(folder):
        cached_directory("kind", "index", lambda folder: None)  # 10 s

    def collection(folder):
        cached_directory("kind", "candidates", candidates)  # 30 s
        cached_directory("kind", "candidates", candidates)

    with monkeypatch.context() as no_lock:
        no_lock.setattr(cache, "_locked", lambda path, kind: nullcontext())
        cached_directory("kind", "collection", collection)  # 50 s
    names = [("kind", key) for key in ("collection", "candidates", "index", "none")]
    assert [build_seconds([name]) for name in names] == [50.0, 30.0, 10.0, 0.0]
    assert build_seconds(names) == build_seconds([names[0], names[2]]) == 50.0
