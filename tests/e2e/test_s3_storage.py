"""A sweep on S3 (moto's server on loopback): its driver is killed, and machines that share no
folder with it look, resume and copy. `pip install -e ".[dev]"` brings what it needs."""

import io
import logging
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from sweeps.__main__ import main as sweeps_command
from sweeps.launch.command import main as run_sweep
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import opened
from sweeps.window_stride import EXPERIMENT
from tests.e2e.conftest import ROOT, values_of
from tests.s3_server import s3_bucket

pytest.importorskip("s3fs", minversion="2026.1")
pytest.importorskip("moto")

pytestmark = pytest.mark.long

SECONDS, TRIALS = 300, 6
STORAGE = "s3://bucket/rank"
WORDS = "--smoke-test --engine local --tracking-uri none".split()
SWEEP = f"{STORAGE}/window_stride/woods"
MOST_REQUESTS = 70  # of a trial, those of the command's start and end included


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Call it with the name of a machine to be there; s3://bucket is there for all of them."""
    home = tmp_path_factory.mktemp("machines")
    with s3_bucket() as patch:
        yield lambda name: patch.setenv("RANKSWEEP_CACHE", str(home / name))


def printed(command, *arguments, code=0, **given):
    """What a command prints in this process; its exit code must be this one."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        ended = command(*arguments, **given)
    assert ended == code, out.getvalue()
    return out.getvalue()


@pytest.fixture(scope="module")
def sweep(machine, backbone_folder, collection_folder):
    """The smoke test, whose first driver was killed after two trials; before, it stood still while
    a second machine tried to drive and a third one looked."""
    inputs = ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]
    words = [*inputs, *WORDS, "--storage", STORAGE]
    storage = Storage(STORAGE)

    def finished():
        return sum(path.endswith("/result.json") for path in storage.files("trials"))

    machine("first")
    command = [sys.executable, "sweeps/window_stride.py", *words]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ, stdout=subprocess.DEVNULL) as first:
        try:
            deadline = time.monotonic() + SECONDS
            while finished() < 2:
                assert first.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            first.send_signal(signal.SIGSTOP)
            machine("second")
            refused = printed(run_sweep, EXPERIMENT, words, doc=None, code=2)
            machine("third")
            watched = printed(sweeps_command, ["status", SWEEP])
        finally:
            first.kill()
    missing, requests = TRIALS - finished(), []
    machine("second")
    log = logging.getLogger("werkzeug")  # of the server, a line for each request
    handler = logging.Handler()
    handler.emit = requests.append
    log.addHandler(handler)
    try:
        text = printed(run_sweep, EXPERIMENT, [*words, "--verbose"], doc=None)
    finally:
        log.removeHandler(handler)
    print(f"{len(requests) / missing:.0f} requests a trial")
    assert 0 < len(requests) < MOST_REQUESTS * missing
    return SimpleNamespace(pid=first.pid, refused=refused, watched=watched, text=text)


def test_the_second_of_two_machines_is_refused_and_told_who_drives(sweep):
    assert sweep.refused.startswith("error: one command at a time may drive a sweep")
    assert sweep.refused.count("\n") == 1
    assert f"{SWEEP} is driven by process {sweep.pid} of " in sweep.refused
    assert f"running, process {sweep.pid} on " in sweep.watched


def test_a_killed_driver_is_followed_at_once_and_the_last_line_is_the_uri(sweep):
    lines = sweep.text.strip().splitlines()
    assert lines[-1] == f"Report: {SWEEP}/report/index.html"
    assert Path(lines[-2].removeprefix("A copy to open: ")).is_file()
    assert len(re.findall(r" 2/2 ", sweep.text)) >= TRIALS / 2


def test_its_values_are_those_of_an_undisturbed_sweep_in_a_folder(sweep, machine, smoke):
    machine("third")
    with opened(SWEEP) as records:
        ours, theirs = values_of(records.folder), values_of(smoke.folder)
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


@pytest.mark.parametrize(
    "words, code, told",
    [
        (f"status {SWEEP}", 0, ["6 done", f" {SWEEP}/report/index.html"]),
        (f"report {SWEEP}", 0, [f"Report: {SWEEP}/report/index.html"]),
        (f"design {SWEEP} --delta .05", 0, ["seeds per system"]),
        (f"derive {SWEEP}", 2, [f"finished trials in {SWEEP} has"]),
        (f"report {SWEEP}x", 2, [f"found none in {SWEEP}x"]),
        ("ui s3://bucket/rank/window_stride", 2, ["holds the folders of sweeps: woods"]),
    ],
)
def test_a_machine_that_has_seen_nothing_opens_the_uri(sweep, machine, words, code, told):
    machine("third")
    text = printed(sweeps_command, words.split(), code=code)
    assert [one for one in told if one not in text] == []


def test_mlflow_gets_all_of_it_from_elsewhere_however_often(sweep, machine, tmp_path, read_mlflow):
    uri, seen = f"sqlite:///{tmp_path / 'mlflow.db'}", []
    for name in ("third", "fourth"):
        machine(name)
        text = printed(sweeps_command, ["sync", SWEEP, "--tracking-uri", uri])
        assert text == f"{TRIALS if not seen else 0} runs sent to {uri}\n"
        seen.append(read_mlflow(uri))
    assert seen[0] == seen[1] and len(seen[0]) == TRIALS
