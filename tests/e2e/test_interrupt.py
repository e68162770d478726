"""Ctrl-C or SIGTERM ends a sweep at once and says so, and the same command resumes."""

import json
import re
import signal
import time
from functools import partial

import pytest

from sweeps.commands.status import main as status
from tests.e2e.conftest import trials_of

SECONDS = 10.0  # from the signal to the end of the command
WORDS = (
    "--smoke-test --num-seeds 2 training.max_steps=30 training.num_epochs=15 --tracking-uri none"
).split()


def begun(sweep):
    """True once an attempt of a trial runs."""
    files = sweep.storage.glob("trials/*/attempt-*.json")
    return any(json.loads(file.read_text())["ended"] is None for file in files)


@pytest.fixture
def status_of(capsys):
    def text(folder):
        assert status([str(folder)]) == 0
        return capsys.readouterr().out

    return text


@pytest.fixture
def heeded_interrupts():
    """A command in the background of a script ignores interrupts, and so would what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hangs_up = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGHUP, hangs_up)


def assert_says_so(sweep, status_of):
    """How many trials the interrupt has cost an attempt."""
    assert "interrupted; the same command resumes" in sweep.text
    text = status_of(sweep.folder)
    assert "\nstopped     interrupted\n" in text
    assert "not running (incomplete)" in text and "\nresume" in text
    told = re.search(r"interrupted \((\d+)\)", text)
    assert told and int(told[1]) >= 1
    return int(told[1])


@pytest.mark.slow
def test_an_interrupted_sweep_says_so_and_resumes(
    run_local, status_of, heeded_interrupts, tmp_path, monkeypatch
):
    """In the middle of its second trial, by Ctrl-C and then by a closed terminal."""
    words = ("--smoke-test", "--num-seeds", "1", "--tracking-uri", "none")
    monkeypatch.setattr("sweeps.engine.progress.HEARTBEAT_SECONDS", 0.0)
    for ended, number in ((1, signal.SIGINT), (0, signal.SIGHUP)):
        actions = {f"[{ended}/{2 + ended}] running": partial(signal.raise_signal, number)}
        progress = tmp_path / f"progress-{ended}"
        monkeypatch.setenv("RANKSWEEP_PROGRESS_FILE", str(progress))
        sweep = run_local(tmp_path / "results", *words, code=130, actions=actions)
        assert progress.exists() == bool(ended)  # for a batch job: did this start get on?
    assert assert_says_so(sweep, status_of) == 2

    again = run_local(tmp_path / "results", *words)
    assert "stopped" not in json.loads((again.folder / "sweep.json").read_text())
    trials = trials_of(again.folder)
    assert trials["status"].tolist() == ["done"] * 3 and trials["attempts"].sum() == 3 + 2
    assert "stopped" not in status_of(again.folder)


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.parametrize("number, engine", [(signal.SIGINT, "ray"), (signal.SIGTERM, "local")])
def test_ctrl_c_and_sigterm_end_a_command_with_130(
    start_sweep, status_of, heeded_interrupts, tmp_path, number, engine
):
    with start_sweep(tmp_path / "results", *WORDS, "--engine", engine) as sweep:
        sweep.wait_for("[1/6]")
        while not begun(sweep):
            assert sweep.process.poll() is None, sweep.text
            time.sleep(0.1)
        sweep.process.send_signal(number)
        sent = time.monotonic()
        assert sweep.end() == 130, sweep.text
        assert time.monotonic() - sent <= SECONDS, sweep.text
    assert "SIGTERM" not in sweep.text  # Ray's message
    assert_says_so(sweep, status_of)
