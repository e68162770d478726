"""The findings on the Ray cluster and MLflow."""

import logging
import os
import socket
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sweeps.commands.doctor.environment import nearest_existing
from sweeps.commands.doctor.finding import Finding
from sweeps.plan.options import cluster_address
from sweeps.plan.secrets import redact_text
from sweeps.plan.terminal import numbered
from sweeps.tracking.client import connect
from sweeps.tracking.uri import NONE, is_server, sqlite_file

NODES_TIMEOUT_S = 30.0
COMPARED = ("torch", "transformers", "tokenizers", "numpy", "ir-measures", "ray", "ranksweep")

LATER = "results are safe on disk, but MLflow shows nothing until they are sent again"

CONNECT_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Node:
    """The answer of a node of the cluster."""

    name: str
    gpus: float  # known to Ray
    attached: int  # devices of the machine
    versions: Mapping[str, str]
    sees_storage: bool


def cluster(storage: Path | None) -> Iterator[Finding]:
    """The findings on the nodes; all should see the file `storage`. Ray is never started."""
    address = running_address()
    if address is None:
        yield Finding("ok", "no Ray cluster: a sweep starts Ray on this machine alone")
        return
    parts = urlsplit(address if "://" in address else f"ray://{address}")
    reason = unreachable(parts.hostname or "", parts.port or 6379)
    if reason:
        yield Finding(
            "error",
            f"no Ray cluster at {address} ({reason})",
            "a sweep would wait for it and then fail",
            "`ray up`, or unset RAY_ADDRESS to run on this machine alone",
        )
        return
    if cluster_address() is None:
        yield Finding(
            "note",
            f"a Ray cluster runs at {address}",
            "a sweep that is started here does not use it",
            f"RAY_ADDRESS={address}, or `ray submit`",
        )
        return
    try:
        nodes = _cluster_nodes(address, storage)
    except Exception as error:  # versions that differ, a token, a head without workers
        yield Finding(
            "error",
            f"the Ray cluster at {address} does not answer ({' '.join(str(error).split())[:200]})",
            "no trial could be sent there",
            "the same Python and Ray on all nodes; `ray status` on the head says more",
        )
        return
    yield from node_findings(nodes)


def running_address() -> str | None:
    """RAY_ADDRESS, or that of a cluster that `ray start` or `ray up` has started here."""
    address = os.environ.get("RAY_ADDRESS", "")
    if address == "local":
        return None
    if address and address != "auto":
        return address
    file = (
        Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray" / "ray_current_cluster"
    )
    return file.read_text().strip() or None if file.exists() else None


def node_findings(nodes: list[Node]) -> Iterator[Finding]:
    """The findings on differences between nodes."""
    gpus = sum(node.gpus for node in nodes)
    yield Finding("ok", f"Ray cluster of {numbered(len(nodes), 'node')}, {numbered(gpus, 'GPU')}")
    for package in ("python", *COMPARED):
        versions: dict[str, list[str]] = {}
        for node in nodes:
            versions.setdefault(node.versions.get(package, "missing"), []).append(node.name)
        if len(versions) > 1:
            where = "; ".join(
                f"{version} on {', '.join(names)}" for version, names in versions.items()
            )
            yield Finding(
                "error",
                f"{package} differs between nodes ({where})",
                "the same trial would compute other numbers there, or fail",
                "install the same requirements.lock on all nodes",
            )
        elif "missing" in versions and package == "ranksweep":
            yield Finding(
                "error",
                "ranksweep is installed on no node",
                "every trial would fail",
                "pip install it in the setup_commands of the cluster",
            )
    if blind := [node.name for node in nodes if not node.sees_storage]:
        yield Finding(
            "error",
            f"the storage is not the same folder on {', '.join(blind)}",
            "results of trials there would be lost",
            "a shared folder, or a URI such as s3://",
        )
    if idle := [node.name for node in nodes if node.attached > node.gpus]:
        yield Finding(
            "warning",
            f"Ray has fewer GPUs than are attached on {', '.join(idle)}",
            "the others stay idle",
            "num_gpus in the node's `ray start`, or CUDA_VISIBLE_DEVICES",
        )


def _cluster_nodes(address: str, storage: Path | None) -> list[Node]:
    """The answers of the nodes, through a connection that is closed again."""
    import ray

    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        return node_answers(None if storage is None else str(storage))
    finally:
        ray.shutdown()


def node_answers(storage: str | None) -> list[Node]:
    """The answers to a small task per node, on no CPU, so that busy nodes answer."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    # By value: a node that cannot import this project must be able to answer.
    task = ray.remote(num_cpus=0, max_retries=0)(_self_description())
    answers = [
        task.options(resources={f"node:{node['NodeManagerAddress']}": 0.001}).remote(
            COMPARED, storage
        )
        for node in nodes
    ]
    return [
        Node(
            name=node["NodeManagerHostname"],
            gpus=node["Resources"].get("GPU", 0.0),
            attached=attached,
            versions=versions,
            sees_storage=sees,
        )
        for node, (attached, versions, sees) in zip(
            nodes, ray.get(answers, timeout=NODES_TIMEOUT_S), strict=True
        )
    ]


def _self_description() -> Any:
    def describe(
        packages: tuple[str, ...], storage: str | None
    ) -> tuple[int, dict[str, str], bool]:
        import glob
        import os.path
        import platform
        from importlib import metadata

        installed = {
            package.metadata["Name"].lower().replace("_", "-"): package.version
            for package in metadata.distributions()
        }
        versions = {name: installed[name] for name in packages if name in installed}
        versions["python"] = platform.python_version()
        sees = storage is None or os.path.exists(storage)
        return len(glob.glob("/dev/nvidia[0-9]*")), versions, sees

    return describe


def tracking(uri: str) -> Iterator[Finding]:
    """The finding on MLflow, for which no database is created."""
    name = redact_text(uri)
    if uri == NONE:
        yield Finding("note", "MLflow is off (--tracking-uri none)", "results stay on disk alone")
    elif uri.startswith("sqlite:"):
        yield _database(sqlite_file(uri))
    elif is_server(uri):
        yield _server(uri, name)
    else:
        parts = urlsplit(uri)
        reason = unreachable(parts.hostname or "", parts.port or 5432)
        yield (
            _unreachable(name, reason)
            if reason
            else Finding("ok", f"MLflow: {name} takes connections")
        )


def _database(file: Path) -> Finding:
    if not file.exists():
        folder = nearest_existing(file.parent)
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            return _unreachable(str(file), f"{folder} cannot be written")
        return Finding("ok", f"MLflow: {file} is new; the sweep creates it")
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=5)) as database:
            [count] = database.execute("select count(*) from experiments").fetchone()
    except sqlite3.Error as error:
        return Finding(
            "error",
            f"{file} is no MLflow database ({error})",
            "the sweep could not record its trials there",
            "move the file away, or pass another --tracking-uri",
        )
    if not os.access(file, os.W_OK):
        return _unreachable(str(file), "it cannot be written")
    return Finding("ok", f"MLflow: {file}, {count} experiment{'' if count == 1 else 's'}")


def _server(uri: str, name: str) -> Finding:
    parts = urlsplit(uri)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    reason = unreachable(parts.hostname or "", port)
    if reason:
        return _unreachable(name, reason)
    try:
        connect(uri).search_experiments(max_results=1)
    except (
        Exception
    ) as error:  # MLflow, requests and proxies raise many kinds, with the same remedy
        text = redact_text(" ".join(str(error).split()))
        return _unreachable(name, f"{type(error).__name__}: {text[:200]}")
    return Finding("ok", f"MLflow: {name} answers")


def _unreachable(name: str, reason: str) -> Finding:
    return Finding(
        "error",
        f"MLflow: no answer from {name} ({reason})",
        LATER,
        "start the server or correct --tracking-uri; later `ranksweep sync DIR`",
    )


def unreachable(host: str, port: int) -> str:
    """The reason why no connection can be made; "" where one can."""
    try:
        socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return ""
