"""Secrets in the environment, in URLs and in settings reach nothing that a sweep writes."""

import gzip
import socket
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from sweeps.__main__ import main

pytestmark = pytest.mark.slow

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDPLANTED01",
    "AWS_SECRET_ACCESS_KEY": "planted/aws+secret/0123456789",
    "OPENAI_API_KEY": "sk-proj-planted0123456789abcdef",
    "HF_TOKEN": "hf_planted0123456789abcdef",
    "DATABASE_PASSWORD": "planted-in-the-environment",
}
PASSWORD = "planted-in-a-url"
WORDS = "--smoke-test --num-seeds 1 chunking.window=48 chunking.stride=32".split()


@pytest.fixture
def planted(monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    return [value.encode() for value in (*SECRETS.values(), PASSWORD)]


def texts(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """What can be read in every file below a folder; compressed ones as what they hold."""
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            yield path, pd.read_parquet(path).to_csv().encode()
        elif path.suffix == ".gz":
            yield path, gzip.decompress(path.read_bytes())
        elif path.is_file():
            yield path, path.read_bytes()


def test_no_secret_is_in_anything_written(planted, run_local, tmp_path, monkeypatch, capsys):
    def command(*words: str, code: int = 0) -> str:
        """Standard output and error of a command."""
        assert main(words) == code
        return "".join(capsys.readouterr())

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    uri = f"http://somebody:{PASSWORD}@127.0.0.1:{port}"
    # Nobody is there: warnings name the server, and everything waits in the log.
    monkeypatch.setattr("sweeps.launch.sweep.DRAIN_SECONDS", 1.0)
    sweep = run_local(tmp_path / "results", *WORDS, "--tracking-uri", uri)
    assert "http://[redacted]@127.0.0.1" in sweep.text and "MLflow is missing" in sweep.text
    said = command("sync", str(sweep.folder), "--tracking-uri", uri, code=2)
    assert "http://[redacted]@127.0.0.1" in said
    database = f"sqlite:///{tmp_path / 'mlflow.db'}"
    said += command("sync", str(sweep.folder), "--tracking-uri", database)
    said += command("report", str(sweep.folder)) + command("status", str(sweep.folder))
    (tmp_path / "said.txt").write_text(sweep.text + said)
    found = dict(texts(tmp_path))
    names = {path.name for path in found}
    assert {"sweep.json", "attempt-1.json", "index.html", "mlflow.db", "result.json"} <= names
    leaks = [(path, secret) for path in found for secret in planted if secret in found[path]]
    assert leaks == []
