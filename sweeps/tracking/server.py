"""MLflow's web pages for a sweep, by a local server as a child process: loopback only, one worker,
no telemetry."""

import os
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, Popen, TimeoutExpired
from types import MappingProxyType
from urllib.parse import urlsplit

from rank_core.children import python, start
from rank_core.errors import BadInput
from rank_core.lines import put
from sweeps.tracking.client import (
    NONE,
    check_tracking_uri,
    connect,
    find_experiment,
    is_server,
    mlflow_uri,
    shown_name,
    sqlite_file,
)
from sweeps.tracking.view import links

SERVER_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_ENABLE_AI_GATEWAY": "false",
    # One log_batch holds two connections; the default pool deadlocks with many clients.
    "MLFLOW_SQLALCHEMYSTORE_POOL_SIZE": "10",
    "MLFLOW_SQLALCHEMYSTORE_MAX_OVERFLOW": "80",
}
OF_THE_STORE = ("MLFLOW_", "PG", "MYSQL_", "AWS_", "AZURE_", "GOOGLE_")
"""What the variables begin with by which a server reads its own database and artifacts."""
_STARTUP_S = 120.0
_LOCK_WAIT_S = 60  # of SQLite's writers, which fail after five seconds by default


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
            f"was copied here, `ranksweep sync DIR --tracking-uri '{tracking_uri}'` creates it"
        )
    if is_server(tracking_uri):
        parts = urlsplit(tracking_uri)  # a browser asks for name and password
        base = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        put(links(base, found.experiment_id))
        return 0
    with suppress(KeyboardInterrupt), local_server(tracking_uri, port) as (base, process):
        put(f"{links(base, found.experiment_id)}\nCtrl-C ends the server.")
        return process.wait()
    return 0


@contextmanager
def local_server(
    store_uri: str,
    port: int = 0,
    *,
    options: Sequence[str] = (),
    env: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[str, Popen[bytes]]]:
    """(base URL, process) of an answering server over `store_uri`, which ends with the block.
    `options` of `mlflow server` and variables of its environment are added."""
    connect(store_uri)  # initialises a new database before the server's processes compete for it
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise BadInput(f"the port must be free, got {port} ({error.strerror})") from None
        port = int(probe.getsockname()[1])
    base = f"http://127.0.0.1:{port}"
    command = python("-m", "mlflow", "server", "--workers", "1")
    command += ["--host", "127.0.0.1", "--port", str(port)]
    artifacts = Path("mlartifacts").absolute()  # MLflow's default
    if store_uri.startswith("sqlite:"):
        artifacts = sqlite_file(store_uri).parent / "artifacts"
        if "timeout=" not in store_uri:
            store_uri += f"{'&' if '?' in store_uri else '?'}timeout={_LOCK_WAIT_S}"
    command += ["--artifacts-destination", artifacts.as_uri()]
    # By environment, not as an argument: the URI may hold a password, and `ps` shows all.
    environment = SERVER_ENVIRONMENT | {"MLFLOW_BACKEND_STORE_URI": mlflow_uri(store_uri), **env}
    process = start(
        [*command, *options],
        keeps=OF_THE_STORE,
        more=environment,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,  # its workers end with it; Ctrl-C reaches us alone
    )
    try:
        _wait_until_healthy(base, process)
        yield base, process
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, TimeoutExpired):
                os.killpg(process.pid, sign)
                process.wait(10)
                os.killpg(process.pid, 0)  # its workers may outlive it


def _wait_until_healthy(base: str, process: Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTUP_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{base}/health", timeout=2):
            return
        time.sleep(0.2)
    ended = f" (it ended with status {process.returncode})" if process.poll() is not None else ""
    raise BadInput(
        f"`mlflow server` did not answer at {base}{ended}: `mlflow server --backend-store-uri "
        "DATABASE` shows why"
    )
