"""Tracking URIs, checked before anything is launched and without the network."""

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from rank_core.cache import cache_root
from rank_core.errors import BadInput
from sweeps.plan.command_line import check_writable
from sweeps.plan.secrets import redact_text
from sweeps.store.trial_store import Store

NONE = "none"
"""The tracking URI that uploads nothing."""

_CHOICES = "sqlite:///FILE, http(s)://HOST:PORT, postgresql://USER@HOST/DATABASE, none"


def default_tracking_uri(store: Store) -> str:
    """A database next to the sweeps. A remote storage cannot hold one, so each machine makes its
    own from the event logs."""
    folder = Path(store.all_sweeps) if store.is_local else cache_root() / "mirrors"
    return f"sqlite:///{folder.absolute() / 'mlflow.db'}"


def check_tracking_uri(uri: str) -> None:
    """Raise `BadInput` if `uri` cannot be a tracking URI. The network is not touched."""
    if uri == NONE:
        return
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        raise _bad(uri, f"it is not a URL ({error})") from None
    scheme = parts.scheme.partition("+")[0]
    if scheme == "sqlite":
        _check_sqlite(uri)
    elif scheme in ("http", "https"):
        if not parts.hostname or port == 0 or any(letter.isspace() for letter in uri):
            raise _bad(uri, "a server needs a host, as in http://127.0.0.1:5000")
    elif scheme == "postgresql":
        if not parts.hostname or not parts.path.strip("/"):
            raise _bad(uri, "a PostgreSQL URI needs a host and a database")
        driver = parts.scheme.partition("+")[2] or "psycopg"  # SQLAlchemy's choice
        if find_spec(driver) is None:
            raise BadInput(
                f"a PostgreSQL URI needs the Python package {driver}, which is not installed; "
                "pip install 'ranksweep[tracking]' brings psycopg"
            )
    elif scheme == "file":
        raise _bad(uri, "MLflow no longer writes file stores; use a sqlite file")
    elif not scheme:
        raise _bad(uri, "a folder is not a tracking store; use a sqlite file in it")
    else:
        raise _bad(uri, f"unknown kind {scheme!r}")


def _check_sqlite(uri: str) -> None:
    prefix, file = uri[: len("sqlite:///")], uri[len("sqlite:///") :].partition("?")[0]
    if prefix != "sqlite:///":
        raise _bad(uri, "sqlite takes three slashes, or four before an absolute path")
    if not file or file.endswith("/"):
        raise _bad(uri, "no file is named")
    if file.startswith(":memory:"):
        raise _bad(uri, "a database in memory is lost with the process")


def check_database(uri: str) -> None:
    """Raise `BadInput` for a sqlite file that can be neither made nor written."""
    if not uri.startswith("sqlite:"):
        return
    file = sqlite_file(uri)
    check_writable("the folder of --tracking-uri", file.parent)
    try:
        if file.exists():
            file.open("r+b").close()
    except OSError as error:
        raise _bad(uri, f"it cannot be written ({error.strerror})") from None


def sqlite_file(tracking_uri: str) -> Path:
    """The file of a sqlite URI, absolute."""
    return Path(tracking_uri.removeprefix("sqlite:///").partition("?")[0]).absolute()


def _bad(uri: str, problem: str) -> BadInput:
    return BadInput(
        f"the tracking URI must be one of the known forms, got {redact_text(uri)!r}: {problem}; "
        f"known: {_CHOICES}"
    )


def is_server(uri: str) -> bool:
    """True if `uri` names an MLflow server, not a database."""
    return uri.startswith(("http://", "https://"))
