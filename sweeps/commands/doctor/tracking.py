"""MLflow: does the tracking URI answer."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from sweeps.commands.doctor.finding import Finding
from sweeps.commands.doctor.reach import unreachable
from sweeps.commands.doctor.storage import nearest_existing
from sweeps.plan.secrets import redact_text
from sweeps.tracking.client import connect, sqlite_file
from sweeps.tracking.uri import NONE, is_server

LATER = "results are safe on disk, but MLflow shows nothing until they are sent again"


def tracking(uri: str) -> Iterator[Finding]:
    """Whether MLflow would take records; no database is created for the question."""
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
        yield _away(name, reason) if reason else Finding("ok", f"MLflow: {name} takes connections")


def _database(file: Path) -> Finding:
    if not file.exists():
        folder = nearest_existing(file.parent)
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            return _away(str(file), f"{folder} cannot be written")
        return Finding("ok", f"MLflow: {file} is new, a sweep will make it")
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
        return _away(str(file), "it cannot be written")
    return Finding("ok", f"MLflow: {file}, {count} experiment{'' if count == 1 else 's'}")


def _server(uri: str, name: str) -> Finding:
    parts = urlsplit(uri)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    reason = unreachable(parts.hostname or "", port)
    if reason:
        return _away(name, reason)
    try:
        connect(uri).search_experiments(max_results=1)
    except Exception as error:  # MLflow's, requests' and a proxy's: the remedy is the same
        text = redact_text(" ".join(str(error).split()))
        return _away(name, f"{type(error).__name__}: {text[:200]}")
    return Finding("ok", f"MLflow: {name} answers")


def _away(name: str, reason: str) -> Finding:
    return Finding(
        "error",
        f"MLflow: no answer from {name} ({reason})",
        LATER,
        "start the server or correct --tracking-uri; later `python -m sweeps sync DIR`",
    )
