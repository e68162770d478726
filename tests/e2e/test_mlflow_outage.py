"""MLflow may go away for a while or for good: the sweep ends well and every point arrives once."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from sweeps.tracking.server import local_server

pytestmark = pytest.mark.long

AWAY_SECONDS = float(os.environ.get("RANKSWEEP_OUTAGE_SECONDS", "10"))
"""How long the server is away: ten seconds, or a full minute by hand."""
# Longer trials for longer outages, so that the sweep lives through all of it.
STEPS, TRIALS = 30 if AWAY_SECONDS < 30 else 60, 6
WORDS = (
    f"--smoke-test --num-seeds 2 training.max_steps={STEPS} training.num_epochs={STEPS // 2} "
    "training.validate_every=10 --engine local"
).split()

IMPATIENT = """
import sys
import sweeps.driver.command
import sweeps.driver.sweep
from sweeps.window_stride import EXPERIMENT
sweeps.driver.sweep.DRAIN_SECONDS = 2.0
sys.exit(sweeps.driver.command.main(EXPERIMENT, sys.argv[1:], doc=None))
"""


def assert_complete(runs):
    assert len(runs) == TRIALS
    for status, metrics in runs.values():
        assert status == "FINISHED"
        assert [step for step, _ in metrics["train/loss"]] == list(range(1, STEPS + 1))
        assert [step for step, _ in metrics["dev/ndcg_cut_10"]] == list(range(10, STEPS + 1, 10))
        assert len(metrics["test/ndcg_cut_10"]) == len(metrics["cost/train_seconds"]) == 1


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("outage")


@pytest.fixture(scope="module")
def outage(home, start_sweep):
    """A sweep in whose middle the server is killed, and started again when it has been away for
    a while and a trial has ended without it."""
    store = f"sqlite:///{home / 'server.db'}"
    with local_server(store) as (base, server):
        sweep_context = start_sweep(home / "results", *WORDS, "--tracking-uri", base)
        with sweep_context as sweep:
            sweep.wait_for("[1/6]")
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(300)
            killed = time.monotonic()
            sweep.wait_for("is unavailable")
            sweep.wait_for("[2/6]")
            time.sleep(max(0.0, killed + AWAY_SECONDS - time.monotonic()))
            with local_server(store, int(base.rpartition(":")[2])):
                assert sweep.end() == 0, sweep.text
    return sweep, store


def test_a_server_that_comes_back_gets_every_point_once(outage, read_mlflow):
    sweep, store = outage
    assert_complete(read_mlflow(store))
    assert "Nothing is lost" in sweep.text
    assert "is back after" in sweep.text and "ranksweep sync" not in sweep.text


def test_a_server_that_stays_away_gets_everything_by_sync(outage, home, run_sweep, read_mlflow):
    sweep, _ = outage
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Another server has nothing of this sweep yet, and nobody is there.
    words = [*WORDS, "--tracking-uri", f"http://127.0.0.1:{port}"]
    away = run_sweep(sweep.storage, *words, program=["-c", IMPATIENT])
    assert "nothing to launch" in away.text and f"lacks {TRIALS} trials" in away.text
    assert f" sync {sweep.folder}" in " ".join(away.text.split())
    store = f"sqlite:///{home / 'second.db'}"
    command = [sys.executable, "-m", "sweeps", "sync", str(sweep.folder)]
    with local_server(store, port) as (base, _):
        for number in (TRIALS, 0):
            sent = subprocess.run(
                command, capture_output=True, text=True, timeout=500, check=True, cwd=home
            )
            assert sent.stdout == f"{number} runs sent to {base}\n"
    assert_complete(read_mlflow(store))
