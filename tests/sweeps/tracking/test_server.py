"""Against real MLflow servers on loopback, and several processes on one new database."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rank_core.errors import BadInput
from sweeps.tracking.client import connect
from sweeps.tracking.server import local_server
from sweeps.tracking.thread import sync
from sweeps.tracking.view import links
from tests.sweeps.tracking.made_sweep import EXPERIMENT, MadeSweep
from tests.sweeps.tracking.test_runs import runs_in

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
sys.exit(bool(mlflow.close(400)))
"""


@pytest.mark.long
def test_four_processes_on_a_new_database_all_succeed(tmp_path):
    uri = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
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


SERVE = """
import sys
from sweeps.terminal.command_line import heed_interrupts
from sweeps.tracking.server import serve
heed_interrupts()
sys.exit(serve(sys.argv[1], sys.argv[2]))
"""


@pytest.mark.long
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
