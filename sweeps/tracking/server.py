"""A local MLflow server as a child process: loopback only, one worker, no telemetry."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rank_core.errors import BadInput
from sweeps.tracking.client import connect
from sweeps.tracking.uri import sqlite_file

SERVER_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ENABLE_AI_GATEWAY": "false",
    # One log_batch holds two connections; the default pool deadlocks with many clients.
    "MLFLOW_SQLALCHEMYSTORE_POOL_SIZE": "10",
    "MLFLOW_SQLALCHEMYSTORE_MAX_OVERFLOW": "80",
}
_STARTUP_S = 120.0
_LOCK_WAIT_S = 60


@contextlib.contextmanager
def local_server(
    store_uri: str,
    port: int = 0,
    *,
    log: Path | None = None,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """(base URL, process) of an answering server over `store_uri`, which ends with the block.
    `options` of `mlflow server` and variables of its environment are added."""
    connect(store_uri)  # initialises a new database before the server's processes compete for it
    port = _free_port(port)
    base = f"http://127.0.0.1:{port}"
    output = subprocess.DEVNULL if log is None else log.open("ab")
    try:
        process = subprocess.Popen(
            [*_command(store_uri, port), *options],
            # By environment, not as an argument: the URI may hold a password, and `ps` shows all.
            env={
                **os.environ,
                **SERVER_ENVIRONMENT,
                "MLFLOW_BACKEND_STORE_URI": _patient(store_uri),
                **(env or {}),
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its workers end with it; Ctrl-C reaches us alone
        )
    finally:
        if not isinstance(output, int):
            output.close()
    try:
        _wait_until_healthy(base, process)
        yield base, process
    finally:
        _end(process)


def _command(store_uri: str, port: int) -> list[str]:
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    if store_uri.startswith("sqlite:"):
        artifacts = sqlite_file(store_uri).parent / "artifacts"
        command += ["--artifacts-destination", artifacts.as_uri()]
    return command


def _patient(store_uri: str) -> str:
    """A longer wait of SQLite's writers, which fail after five seconds by default."""
    if not store_uri.startswith("sqlite:") or "timeout=" in store_uri:
        return store_uri
    return f"{store_uri}{'&' if '?' in store_uri else '?'}timeout={_LOCK_WAIT_S}"


def _free_port(wanted: int) -> int:
    """`wanted` if it is free, or any free port for 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise BadInput(f"the port must be free, got {wanted} ({error.strerror})") from None
        return int(probe.getsockname()[1])


def _wait_until_healthy(base: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTUP_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(
        f"mlflow server did not answer at {base} within {_STARTUP_S:.0f} s"
        if process.poll() is None
        else f"mlflow server ended with status {process.returncode} before it answered"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    for sign, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):  # already gone, with all its workers
            os.killpg(process.pid, sign)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
        if not _group_exists(process.pid):
            return


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
