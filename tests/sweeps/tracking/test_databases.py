"""The set-up of docs/tracking.md for a team: a server that asks who is there."""

import importlib.util
import logging
import urllib.error
import urllib.request

import pytest

from sweeps.tracking.client import connect
from sweeps.tracking.server import local_server
from sweeps.tracking.thread import MlflowThread
from tests.sweeps.tracking.made_sweep import EXPERIMENT, MadeSweep
from tests.sweeps.tracking.test_runs import losses, runs_in

pytestmark = pytest.mark.long

PASSWORD = "hunter2-hunter2"
needs_auth = pytest.mark.skipif(
    importlib.util.find_spec("flask_wtf") is None, reason="needs mlflow[auth]"
)


def send(sweep: MadeSweep, base: str, seconds: float = 60) -> str:
    mlflow = MlflowThread(sweep.records, base, EXPERIMENT)
    mlflow.start()
    return mlflow.close(seconds)


AUTH = """[mlflow]
default_permission = NO_PERMISSIONS
database_uri = sqlite:///{folder}/users.db
admin_username = admin
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""


@needs_auth
def test_a_server_that_asks_who_is_there_takes_runs_from_those_who_say_it(
    tmp_path, monkeypatch, caplog
):
    sweep = MadeSweep(tmp_path / "sweep")
    sweep.whole("c1-seed1", "c1-seed2", steps=50)
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
            assert send(sweep, base, 3) == "2 trials and the report"
        assert "is unavailable now" in caplog.text
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
        assert send(sweep, base) == ""
        runs = runs_in(base)
        assert sorted(runs) == ["FirstP 48 #1", "FirstP 48 #2"]
        for run in runs.values():
            assert losses(base, run) == [(n, 1 / n) for n in range(1, 51)]
            files = connect(base).list_artifacts(run.info.run_id, "config")
            assert [file.path for file in files] == ["config/config.json"]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []
