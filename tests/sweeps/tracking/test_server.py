"""Against real MLflow servers on loopback, and several processes on one new database."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from mlflow.entities import Metric, Param, RunTag

from rank_core.errors import BadInput
from sweeps.tracking.client import connect
from sweeps.tracking.cursor import Cursor
from sweeps.tracking.server import local_server
from sweeps.tracking.uploader import Uploader
from sweeps.tracking.views import deep_link
from tests.sweeps.made_log import MadeLog

pytestmark = pytest.mark.slow

TRIALS, STEPS = 6, 150


def _points(uri: str) -> dict[str, list[tuple[int, float]]]:
    client = connect(uri)
    experiment = client.get_experiment_by_name("rank/ws")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len({run.data.tags["rank.trial_key"] for run in runs}) == len(runs)
    return {
        run.info.run_name: sorted(
            (point.step, point.value)
            for point in client.get_metric_history(run.info.run_id, "train/loss")
        )
        for run in runs
    }


def _write_slowly(log: MadeLog, pause_s: float) -> None:
    for seed in range(TRIALS):
        log.start(f"c-seed{seed}")
        for step in range(1, STEPS + 1):
            log.report(f"c-seed{seed}", step, loss=1 / step)
            time.sleep(pause_s)
        log.end(f"c-seed{seed}")


def _wait_for(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.long
def test_a_server_killed_in_mid_upload_costs_no_point_and_makes_no_second_run(tmp_path, caplog):
    folder, store = tmp_path / "ws", f"sqlite:///{tmp_path / 'mlflow.db'}"
    log = MadeLog(folder)
    writer = threading.Thread(target=_write_slowly, args=(log, 0.01))
    caplog.set_level(logging.WARNING, "sweeps.tracking")
    with local_server(store) as (base, process):
        port = int(base.rpartition(":")[2])
        uploader = Uploader(folder, base, "rank/ws")
        uploader.start()
        writer.start()
        _wait_for(lambda: Cursor.load(folder).progress_offset > 20_000)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    _wait_for(lambda: "is unavailable" in caplog.text)
    writer.join()
    with local_server(store, port):
        assert uploader.close(60) == 0
        over_http = _points(base)
    expected = [(step, pytest.approx(1 / step)) for step in range(1, STEPS + 1)]
    assert over_http == {f"c #{seed}": expected for seed in range(TRIALS)}
    assert caplog.text.count("is unavailable") == caplog.text.count("is back after") == 1


@pytest.mark.long
def test_four_processes_on_a_new_database_all_succeed(four_at_once, tmp_path):
    uri = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    four_at_once(uri)
    assert sorted(_points(uri)) == ["c #0", "c #1", "c #2", "c #3"]


CLIENTS, BATCHES, POINTS = 40, 8, 25


@pytest.mark.long
def test_forty_clients_at_once_meet_no_error(tmp_path, monkeypatch):
    with local_server(f"sqlite:///{tmp_path / 'mlflow.db'}") as (base, _):
        client = connect(base)  # never tries a call again
        # A busy machine may answer late, which is no error of the server.
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        experiment = client.create_experiment("rank/crowd")
        together = threading.Barrier(CLIENTS)

        def write(number: int) -> str:
            together.wait()
            run = client.create_run(experiment, run_name=str(number)).info.run_id
            for batch in range(BATCHES):
                steps = range(batch * POINTS, (batch + 1) * POINTS)
                points = [Metric("train/loss", number + step / 1e4, step, step) for step in steps]
                client.log_batch(run, points, [Param(f"p{batch}", "1")], [RunTag("t", "1")])
            client.set_terminated(run)
            return run

        with ThreadPoolExecutor(CLIENTS) as pool:
            runs = list(pool.map(write, range(CLIENTS)))
        for number, run in enumerate(runs):
            points = client.get_metric_history(run, "train/loss")
            expected = [(step, number + step / 1e4) for step in range(BATCHES * POINTS)]
            assert sorted((point.step, point.value) for point in points) == expected


SERVE = """
import sys
from sweeps.plan.command_line import heed_interrupts
from sweeps.tracking.ui import serve
heed_interrupts()
sys.exit(serve(sys.argv[1], "rank/ws"))
"""


def test_serve_prints_a_link_that_answers_and_ends_its_server(tmp_path):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    log = MadeLog(tmp_path / "ws")
    _write_slowly(log, 0)
    uploader = Uploader(log.folder, uri, "rank/ws")
    uploader.start()
    assert uploader.close(60) == 0
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, uri], stdout=subprocess.PIPE, text=True
    )
    try:
        name, link = process.stdout.readline().strip().split("  ", 1)
        base = link.strip().partition("/#/")[0]
        assert name == "trials, means over seeds"
        assert link.strip() == deep_link(base, uploader.experiment_id)
        assert len(_points(base)) == TRIALS
    finally:
        process.terminate()
        status = process.wait(300)
    assert status == 0
    with pytest.raises(Exception, match="refused"):
        connect(base).search_experiments()


def test_a_port_in_use_is_refused(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BadInput, match=f"port must be free, got {port}"):
            with local_server(f"sqlite:///{tmp_path / 'mlflow.db'}", port):
                pytest.fail("a server started on a port in use")
