"""MLflow's web pages for a sweep, by a local server as a child process: loopback only, one worker,
no telemetry."""

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
from urllib.parse import urlsplit

from rank_core.errors import BadInput
from sweeps.tracking.client import connect, find_experiment
from sweeps.tracking.names import shown_name
from sweeps.tracking.uri import NONE, check_tracking_uri, is_server, sqlite_file
from sweeps.tracking.view import links

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


def serve(tracking_uri: str, experiment: str, port: int = 0) -> int:
    """Print the links to the view of a sweep and serve a database until Ctrl-C; an exit status. For
    an http(s) URI, whose server runs already, only the links are printed."""
    check_tracking_uri(tracking_uri)
    if tracking_uri == NONE:
        raise BadInput("there are no pages to show with the tracking URI none")
    client = connect(tracking_uri)
    found = find_experiment(client, experiment)
    if found is None:
        names = ", ".join(sorted(item.name for item in client.search_experiments()))
        raise BadInput(
            f"no experiment {shown_name(experiment)!r} in this store; known: {names}. If the sweep "
            "was copied here, `ranksweep sync DIR` creates it"
        )
    if is_server(tracking_uri):
        parts = urlsplit(tracking_uri)  # a browser asks for name and password
        base = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        print(links(base, found.experiment_id), flush=True)
        return 0
    try:
        with local_server(tracking_uri, port) as (base, process):
            print(links(base, found.experiment_id))
            print("Ctrl-C ends the server.", flush=True)
            return process.wait()
    except KeyboardInterrupt:  # or SIGTERM
        return 0


@contextlib.contextmanager
def local_server(
    store_uri: str,
    port: int = 0,
    *,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """(base URL, process) of an answering server over `store_uri`, which ends with the block.
    `options` of `mlflow server` and variables of its environment are added."""
    connect(store_uri)  # initialises a new database before the server's processes compete for it
    port = _free_port(port)
    base = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [*_command(store_uri, port), *options],
        # By environment, not as an argument: the URI may hold a password, and `ps` shows all.
        env=os.environ
        | SERVER_ENVIRONMENT
        | {"MLFLOW_BACKEND_STORE_URI": _patient(store_uri)}
        | dict(env or {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # its workers end with it; Ctrl-C reaches us alone
    )
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
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, sign)
            process.wait(10)
            os.killpg(process.pid, 0)  # its workers may outlive it
