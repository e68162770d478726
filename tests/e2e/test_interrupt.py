"""Ctrl-C ends a sweep at once, says so to whoever looks later, and the same command goes on."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

WORDS = (
    "--smoke-test --num-seeds 2 training.max_steps=30 training.num_epochs=15 --tracking-uri none"
).split()


def status_of(folder):
    command = [sys.executable, "-m", "sweeps", "status", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=500)
    return done.stdout


def test_an_interrupted_sweep_says_so_and_goes_on(start_sweep, run_sweep, tmp_path):
    with start_sweep(tmp_path / "results", *WORDS) as sweep:
        sweep.wait_for("[1/6]")
        while "running" not in pd.read_parquet(sweep.folder / "trials.parquet")["status"].tolist():
            assert sweep.process.poll() is None, sweep.text
            time.sleep(0.1)
        os.kill(sweep.process.pid, signal.SIGINT)
        assert sweep.end() == 130, sweep.text
    assert "interrupted; the same command goes on from here" in sweep.text
    text = status_of(sweep.folder)
    print(text)  # shown where the test fails
    assert "\nstopped    interrupted (Ctrl-C or its like)\n" in text
    assert "the sweep stands still" in text and "\ngo on" in text
    told = re.search(r"interrupted \((\d+)\)", text)
    assert told and (lost := int(told[1])) >= 1

    again = run_sweep(tmp_path / "results", *WORDS)
    assert "stopped" not in json.loads((again.folder / "sweep.json").read_text())
    trials = pd.read_parquet(again.folder / "trials.parquet")
    assert trials["status"].tolist() == ["done"] * 6 and trials["attempts"].sum() == 6 + lost
    assert "stopped" not in status_of(again.folder)
    told = " ".join(again.text.split())
    assert f"{lost} of 6 trials needed more than one attempt;" in told
    page = (again.folder / "report" / "index.html").read_text()
    assert "What happened on the way" in page and f"interrupted ({lost})" in page
