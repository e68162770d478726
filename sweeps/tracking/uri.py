"""Tracking URIs, checked before anything is launched and without the network."""

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from rank_core.cache import cache_root
from rank_core.errors import BadInput
from sweeps.plan.command_line import check_writable
from sweeps.plan.secrets import redact_text
from sweeps.store.records import Records

NONE = "none"
"""The tracking URI that sends nothing."""
_CHOICES = "sqlite:///FILE, http(s)://HOST:PORT, postgresql://USER@HOST/DATABASE, none"


def default_tracking_uri(records: Records) -> str:
    """A database next to the sweeps. A remote storage cannot hold one, so each machine makes its
    own from the trials."""
    storage = records.storage
    folder = Path(storage.root) if storage.is_local else cache_root() / "mirrors"
    return f"sqlite:///{folder.absolute() / 'mlflow.db'}"


def check_tracking_uri(uri: str) -> None:
    """Raise `BadInput` if `uri` cannot be a tracking URI. The network is not touched."""
    if uri != NONE and (problem := _problem(uri)):
        raise BadInput(
            f"the tracking URI must be one of the known forms, got {redact_text(uri)!r}: "
            f"{problem}; known: {_CHOICES}"
        )


def _problem(uri: str) -> str:
    try:
        parts = urlsplit(uri)
        scheme, _, driver = parts.scheme.partition("+")
        hostname, port = parts.hostname, parts.port
    except ValueError as error:
        return f"it is not a URL ({error})"
    if scheme == "sqlite":
        file = uri.removeprefix("sqlite:///").partition("?")[0]
        lost = file.startswith(":memory:") or not file or file.endswith("/")
        if uri.startswith("sqlite:///") and not lost:
            return ""
        return "sqlite takes three slashes, or four before an absolute path, and a file"
    if scheme in ("http", "https"):
        plain = hostname and port != 0 and not any(letter.isspace() for letter in uri)
        return "" if plain else "a server needs a host, as in http://127.0.0.1:5000"
    if scheme == "postgresql":
        if not hostname or not parts.path.strip("/"):
            return "a PostgreSQL URI needs a host and a database"
        driver = driver or "psycopg"  # SQLAlchemy's choice
        missing = f"the package {driver} is missing; pip install 'ranksweep[tracking]' has psycopg"
        return "" if find_spec(driver) else missing
    return "MLflow writes no folders; use a sqlite file" if scheme in ("", "file") else "unknown"


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
        raise BadInput(f"--tracking-uri: {file} cannot be written ({error.strerror})") from None


def sqlite_file(tracking_uri: str) -> Path:
    """The file of a sqlite URI, absolute."""
    return Path(tracking_uri.removeprefix("sqlite:///").partition("?")[0]).absolute()


def is_server(uri: str) -> bool:
    """True if `uri` names an MLflow server, not a database."""
    return uri.startswith(("http://", "https://"))
