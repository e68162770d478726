"""The set-ups of docs/tracking.md for a team: PostgreSQL, and a server that asks who is there."""

import glob
import importlib.util
import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from sweeps.tracking.client import connect
from sweeps.tracking.server import local_server
from sweeps.tracking.thread import MlflowThread
from tests.sweeps.tracking.made_sweep import EXPERIMENT, MadeSweep
from tests.sweeps.tracking.test_runs import losses, runs_in
from tests.sweeps.tracking.test_server import four_at_once

__all__ = ["four_at_once"]
pytestmark = pytest.mark.long

PASSWORD = "hunter2-hunter2"
BINARIES = os.pathsep.join([os.environ["PATH"], *glob.glob("/usr/lib/postgresql/*/bin")])
NO_POSTGRES = [name for name in ("initdb", "postgres") if not shutil.which(name, path=BINARIES)]
NO_POSTGRES += [] if importlib.util.find_spec("psycopg") else ["psycopg"]
needs_postgres = pytest.mark.skipif(bool(NO_POSTGRES), reason=f"needs {', '.join(NO_POSTGRES)}")
needs_auth = pytest.mark.skipif(
    importlib.util.find_spec("flask_wtf") is None, reason="needs mlflow[auth]"
)


@pytest.fixture(scope="module")
def postgres():
    """The URI of a new PostgreSQL server on loopback, whose user `mlflow` has a password."""
    home = Path(tempfile.mkdtemp(prefix="ranksweep-postgres-"))
    (home / "password").write_text(PASSWORD)
    # PostgreSQL refuses to run as root; its Debian package makes this user.
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    as_user = user if os.geteuid() == 0 else []
    if as_user:
        shutil.chown(home, "postgres")
        shutil.chown(home / "password", "postgres")
    port = free_port()
    initdb, server = (shutil.which(name, path=BINARIES) for name in ("initdb", "postgres"))
    make = [initdb, "-U", "mlflow", "-A", "scram-sha-256", f"--pwfile={home}/password"]
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "cwd": home}
    subprocess.run([*as_user, *make, "--no-sync", f"{home}/data"], **quiet)
    options = ["-p", str(port), "-h", "127.0.0.1", "-c", "unix_socket_directories="]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [*as_user, server, "-D", f"{home}/data", *options, "-c", "fsync=off"],
            stderr=log,
            cwd=home,
        )
    try:
        deadline = time.monotonic() + 300
        while "ready to accept" not in (home / "log").read_text():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        yield f"postgresql://mlflow:{PASSWORD}@127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)  # SIGTERM would wait for idle clients
        process.wait(300)
        shutil.rmtree(home)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def new_database(postgres: str, name: str) -> str:
    import psycopg

    with psycopg.connect(f"{postgres}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{postgres}/{name}"


@needs_postgres
def test_four_processes_on_a_new_postgresql_database_all_succeed(postgres, four_at_once, tmp_path):
    four_at_once(new_database(postgres, "fresh"))
    assert not leaks(tmp_path)


@pytest.fixture
def sweep(tmp_path) -> MadeSweep:
    sweep = MadeSweep(tmp_path / "sweep")
    sweep.whole("c1-seed1", "c1-seed2", steps=50)
    return sweep


def send(sweep: MadeSweep, base: str, seconds: float = 60) -> int:
    mlflow = MlflowThread(sweep.records, base, EXPERIMENT)
    mlflow.start()
    return mlflow.close(seconds)


def assert_arrived(base: str) -> None:
    runs = runs_in(base)
    assert sorted(runs) == ["FirstP 48 #1", "FirstP 48 #2"]
    for run in runs.values():
        assert run.info.status == "FINISHED"
        assert losses(base, run) == [(n, 1 / n) for n in range(1, 51)]
        files = connect(base).list_artifacts(run.info.run_id, "config")
        assert [file.path for file in files] == ["config/config.json"]


def leaks(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if b"hunter2" in path.read_bytes()]


AUTH = """[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{folder}/users.db
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""


@needs_auth
def test_a_server_that_asks_who_is_there_takes_runs_from_those_who_say_it(
    sweep, tmp_path, monkeypatch, caplog
):
    config = tmp_path / "auth.ini"
    config.write_text(AUTH.format(folder=tmp_path))
    env = {
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "any text of a test",
    }
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with local_server(store, options=["--app-name", "basic-auth"], env=env) as (base, _):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{base}/api/2.0/mlflow/experiments/get?experiment_id=0")
        with caplog.at_level(logging.WARNING, "sweeps.tracking"):
            assert send(sweep, base, 3) == 2
        assert "is unavailable now" in caplog.text
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
        assert send(sweep, base) == 0
        assert_arrived(base)
    assert not leaks(tmp_path)
