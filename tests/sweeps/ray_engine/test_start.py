"""A Ray that is not there, or does not start, is said in a sentence; what it starts with: a folder
with short names, and workers that take no library from the working directory."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from ray.tune.execution import class_cache

from rank_core.errors import BadInput
from sweeps.ray_engine import start
from sweeps.ray_engine.cluster import connect
from sweeps.ray_engine.start import (
    LONGEST,
    SOCKET,
    keep_secrets_from_ray,
    ray_folder,
    workers_path,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://localhost:{}"])
def test_the_address_of_a_dead_head_is_refused(monkeypatch, free_port, address):
    monkeypatch.setenv("RAY_ADDRESS", address.format(free_port))
    with pytest.raises(BadInput, match=f"RAY_ADDRESS .*:{free_port}: Connection refused"):
        connect(1)


def test_a_ray_that_does_not_start_is_tried_twice_and_the_local_engine_offered(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setattr("sweeps.ray_engine.cluster.ray_folder", lambda: tmp_path / "file/x")
    with pytest.raises(BadInput, match="--engine local"):
        connect(1)
    assert capsys.readouterr().out.count("trying once more") == 1


@pytest.fixture
def places(tmp_path, monkeypatch):
    """In place of /tmp and its like: one that is not a folder, and one that can be written."""
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    (tmp_path / "none").touch()
    (tmp_path / "some").mkdir()
    monkeypatch.setattr(start, "SHORT", (str(tmp_path / "none"), str(tmp_path / "some")))
    return tmp_path


@pytest.mark.parametrize("letter", ["x", "é"])  # one byte, and two
@pytest.mark.parametrize("over", [0, 1])
def test_the_longest_folder_is_that_of_a_socket_s_longest_name(places, monkeypatch, letter, over):
    room = LONGEST - len("/tmp/") + over
    rest = letter * (room // len(letter.encode()))
    folder = "/tmp/" + "x" * (room - len(rest.encode())) + rest
    monkeypatch.setenv("TMPDIR", folder)
    with suppress(BadInput):  # of a name that no file system takes
        assert ray_folder().is_relative_to(folder) == (over == 0)
    name = os.fsencode(f"{folder}/{SOCKET}")
    with socket.socket(socket.AF_UNIX) as one:  # Python's error, and that of a missing folder
        with pytest.raises(OSError, match="too long" if over else "No such file"):
            one.bind(name)


def test_a_tmpdir_too_long_gives_way_to_a_private_folder(places, monkeypatch, capsys):
    monkeypatch.setenv("TMPDIR", f"/tmp/{'x' * 120}")
    folder = ray_folder()
    assert folder.parent == places / "some" and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert str(folder) in capsys.readouterr().out
    assert ray_folder() != folder  # each command has its own


def test_the_folder_is_private_in_a_place_that_anyone_can_write(tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as place:
        os.chmod(place, 0o777)
        monkeypatch.delenv("RAY_TMPDIR", raising=False)
        for name in ("TMPDIR", "RAY_TMPDIR"):
            monkeypatch.setenv(name, place)
            folder = ray_folder()
            assert folder.parent == Path(place)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_place_that_cannot_be_written_is_refused_with_its_variable(places, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", "/dev/null/x")
    with pytest.raises(BadInput, match=r"^RAY_TMPDIR must be a folder that can be written"):
        ray_folder()
    monkeypatch.setattr(start, "SHORT", (str(places / "none"),))
    monkeypatch.delenv("RAY_TMPDIR")
    monkeypatch.setenv("TMPDIR", f"/tmp/{'x' * 120}")
    with pytest.raises(BadInput, match=r"TMPDIR is too long .* Set RAY_TMPDIR"):
        ray_folder()


def test_tune_hands_no_secret_to_the_processes_of_trials(monkeypatch):
    keys = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"}
    handed = {*class_cache.ENV_VARS_TO_PROPAGATE, *keys, "RAY_TRAIN_V2_ENABLED"}
    monkeypatch.setattr(class_cache, "ENV_VARS_TO_PROPAGATE", handed)
    keep_secrets_from_ray()
    left = class_cache.ENV_VARS_TO_PROPAGATE
    assert "RAY_TRAIN_V2_ENABLED" in left and not left & keys


def test_a_ray_tmpdir_too_long_is_the_user_s_to_change(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", f"/tmp/{'x' * 120}")
    with pytest.raises(BadInput, match=r"^RAY_TMPDIR is too long .*125 bytes"):
        connect(1)
    assert "trying" not in capsys.readouterr().out


def test_workers_do_not_look_into_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    job = workers_path()
    job._py_driver_sys_path.extend(["/scripts", str(tmp_path)])  # as Ray does
    assert job._py_driver_sys_path == ["/scripts"]


@pytest.mark.parametrize("installed", [True, False])
def test_a_checkout_that_is_not_installed_stays_on_their_path(monkeypatch, installed):
    class Package:
        def read_text(self, name):
            assert name == "direct_url.json"
            place = ROOT.as_uri() if installed else "file:///another"
            return f'{{"dir_info": {{"editable": true}}, "url": "{place}"}}'

    monkeypatch.setattr(start, "distribution", lambda name: Package())
    monkeypatch.chdir(ROOT)
    job = workers_path()
    job._py_driver_sys_path.extend([str(ROOT)])
    assert job._py_driver_sys_path == ([] if installed else [str(ROOT)])


SHADOWS = ("transformers/__init__.py", "torch.py", "yaml.py", "random.py", "pandas/__init__.py")


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_runs_where_modules_have_the_names_of_libraries(
    tmp_path, backbone_folder, collection_folder
):
    """The script `ranksweep` looks into the working directory last, and so do its workers."""
    for name in SHADOWS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise ImportError('{name} of the working directory')")
    script = "import sys; sys.path[:] = [p for p in sys.path if p]\n"
    script += "from sweeps.__main__ import script; sys.exit(script())"
    inputs = ["--backbone", str(backbone_folder), "--collection", str(collection_folder)]
    more = ["--storage", "results", "--tracking-uri", "none", "--smoke-test", "--num-seeds", "1"]
    done = subprocess.run(
        [sys.executable, "-c", script, "run", "window_stride", "--verbose", *inputs, *more],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": f"/tmp/{'x' * 120}"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "TMPDIR is too long" in done.stdout and done.stdout.count(" 1/1 ") >= 3
