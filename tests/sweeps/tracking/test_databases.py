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
from sweeps.tracking.cursor import pending
from sweeps.tracking.server import local_server
from sweeps.tracking.uploader import Uploader
from tests.sweeps.made_log import MadeLog

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
    uri = new_database(postgres, "fresh")
    four_at_once(uri)
    client = connect(uri)
    experiment = client.get_experiment_by_name("rank/ws")
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["c #0", "c #1", "c #2", "c #3"]
    assert not leaks(tmp_path)


def small_log(folder: Path) -> MadeLog:
    log = MadeLog(folder / "ws")
    for trial in ("c-seed1", "c-seed2"):
        (log.folder / "runs" / trial).mkdir(parents=True)
        (log.folder / "runs" / trial / "config.json").write_text("{}")
        log.start(trial)
        for step in range(1, 51):
            log.report(trial, step, loss=1 / step)
        log.end(trial, files=["config.json"])
    return log


def upload(log: MadeLog, base: str, seconds: float = 60) -> int:
    uploader = Uploader(log.folder, base, "rank/ws")
    uploader.start()
    return uploader.close(seconds)


def assert_arrived(base: str) -> None:
    client = connect(base)
    experiment = client.get_experiment_by_name("rank/ws")
    runs = client.search_runs([experiment.experiment_id])
    assert sorted((run.info.run_name, run.info.status) for run in runs) == [
        ("c #1", "FINISHED"),
        ("c #2", "FINISHED"),
    ]
    for run in runs:
        points = client.get_metric_history(run.info.run_id, "train/loss")
        assert sorted((p.step, p.value) for p in points) == [(n, 1 / n) for n in range(1, 51)]
        assert [f.path for f in client.list_artifacts(run.info.run_id, "config")] == [
            "config/config.json"
        ]


def leaks(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if b"hunter2" in path.read_bytes()]


@needs_postgres
def test_a_server_over_postgresql_takes_a_log_twice_and_stores_it_once(postgres, tmp_path):
    uri = new_database(postgres, "team")
    log = small_log(tmp_path)
    options = ["--artifacts-destination", (tmp_path / "artifacts").as_uri()]
    with local_server(uri, options=options) as (base, server):
        assert PASSWORD not in Path(f"/proc/{server.pid}/cmdline").read_text()
        for _ in range(2):
            assert upload(log, base) == 0
            assert_arrived(base)
            (log.folder / "mlflow" / "cursor.json").unlink()
    assert not leaks(tmp_path)


AUTH = """[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{folder}/users.db
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""


@needs_auth
def test_a_server_that_asks_who_is_there_takes_records_from_those_who_say_it(
    tmp_path, monkeypatch, caplog
):
    config = tmp_path / "auth.ini"
    config.write_text(AUTH.format(folder=tmp_path))
    env = {
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
        "MLFLOW_FLASK_SERVER_SECRET_KEY": "any text of a test",
    }
    log = small_log(tmp_path)
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    with local_server(store, options=["--app-name", "basic-auth"], env=env) as (base, _):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{base}/api/2.0/mlflow/experiments/get?experiment_id=0")
        with caplog.at_level(logging.WARNING, "sweeps.tracking"):
            assert upload(log, base, 3) == pending(log.folder) > 100
        assert "is unavailable now" in caplog.text
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
        assert upload(log, base) == 0
        assert_arrived(base)
    assert not (log.folder / "mlflow" / "refused.jsonl").exists()
    assert not leaks(tmp_path)
