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
from pathlib import Path

import pytest
from mlflow.entities import Metric, Param, RunTag

from rank_core.errors import BadInput
from sweeps.tracking.client import connect
from sweeps.tracking.server import local_server
from sweeps.tracking.thread import MlflowThread, sync
from sweeps.tracking.view import links
from tests.sweeps.tracking.made_sweep import EXPERIMENT, MadeSweep, report
from tests.sweeps.tracking.test_runs import losses, runs_in
from tests.sweeps.tracking.test_thread import wait_for

pytestmark = pytest.mark.slow

SEND = """
import sys
from pathlib import Path
from sweeps.tracking.thread import MlflowThread
from tests.sweeps.tracking.made_sweep import EXPERIMENT, MadeSweep
folder, uri, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sweep = MadeSweep(folder / str(number), seeds=[number])
mlflow = MlflowThread(sweep.records, uri, EXPERIMENT)
mlflow.start()
sweep.whole(f"c1-seed{number}", steps=1)
mlflow.changed(f"c1-seed{number}")
sys.exit(mlflow.close(400))
"""


@pytest.fixture
def four_at_once(tmp_path):
    """Four processes that send a run each to a database that does not exist yet; none may fail or
    be turned away."""

    def send(uri: str) -> None:
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", SEND, str(tmp_path), uri, str(number)],
                stderr=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[3],
            )
            for number in range(4)
        ]
        errors = "".join(process.communicate(timeout=500)[1] for process in processes)
        assert [process.returncode for process in processes] == [0] * 4, errors
        assert "is unavailable" not in errors
        assert set(runs_in(uri)) == {f"FirstP 48 #{number}" for number in range(4)}

    return send


@pytest.mark.long
def test_four_processes_on_a_new_database_all_succeed(four_at_once, tmp_path):
    four_at_once(f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}")


@pytest.mark.long
def test_a_server_killed_in_mid_sweep_costs_no_point_and_makes_no_second_run(tmp_path, caplog):
    store, steps = f"sqlite:///{tmp_path / 'mlflow.db'}", 150
    sweep, names = MadeSweep(tmp_path, seeds=(1, 2, 3)), [f"c1-seed{seed}" for seed in (1, 2, 3)]
    caplog.set_level(logging.WARNING, "sweeps.tracking")
    with local_server(store) as (base, process):
        mlflow = MlflowThread(sweep.records, base, EXPERIMENT)
        mlflow.start()

        def train() -> None:
            for name in names:
                mlflow.changed(sweep.begin(name))
                for step in range(1, steps + 1):
                    mlflow.reported(name, report(step, steps))
                    time.sleep(0.01)
                sweep.publish(name, steps=steps)
                mlflow.changed(name)

        training = threading.Thread(target=train)
        training.start()
        wait_for(lambda: mlflow._ever and len(runs_in(base)) == 2)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    wait_for(lambda: "is unavailable" in caplog.text)
    training.join()
    with local_server(store, int(base.rpartition(":")[2])):
        assert mlflow.close(60) == 0
        runs = runs_in(base)
        expected = [(step, pytest.approx(1 / step)) for step in range(1, steps + 1)]
        assert [losses(base, run) for run in runs.values()] == [expected] * 3
    assert caplog.text.count("is unavailable") == caplog.text.count("is back after") == 1


CLIENTS, BATCHES, POINTS = 40, 8, 25


@pytest.mark.long
def test_forty_clients_at_once_meet_no_error(tmp_path, monkeypatch):
    with local_server(f"sqlite:///{tmp_path / 'mlflow.db'}") as (base, _):
        client = connect(base)  # never tries a call again
        # A busy machine may answer late, which is no error of the server.
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
        logging.getLogger("urllib3").setLevel(logging.ERROR)
        experiment = client.create_experiment("crowd")
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
from sweeps.tracking.server import serve
heed_interrupts()
sys.exit(serve(sys.argv[1], sys.argv[2]))
"""


def test_serve_prints_links_that_answer_and_ends_its_server(tmp_path, uri):
    sweep = MadeSweep(tmp_path)
    sweep.whole("c1-seed1")
    sync(sweep.reader, uri, EXPERIMENT)
    [run] = runs_in(uri).values()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, uri, EXPERIMENT], stdout=subprocess.PIPE, text=True
    )
    try:
        table = process.stdout.readline().strip()
        base = table.split()[1].partition("/#/")[0]
        assert table == links(base, run.info.experiment_id).splitlines()[0]
        assert list(runs_in(base)) == ["FirstP 48 #1"]
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
