"""Tracking URIs, checked before anything is launched and without the network."""

import re
from importlib.util import find_spec
from pathlib import Path

from rank_core.cache import cache_root
from rank_core.errors import BadInput
from sweeps.plan.command_line import check_writable
from sweeps.plan.secrets import redact_text
from sweeps.store.records import Records

NONE = "none"
"""The tracking URI that sends nothing."""
_HOST = r"(\S*@)?(\[[\da-fA-F:]+\]|[^\s/@:\[\]]+)(:\d*[1-9]\d*)?"
_FORMS = (
    r"sqlite:///(?!:memory:)[^?]*[^/?](\?.*)?",
    rf"https?://{_HOST}(/\S*)?",
    rf"postgresql(\+\w+)?://{_HOST}/+[^\s/]\S*",
)
_CHOICES = "sqlite:///FILE, http(s)://HOST:PORT, postgresql://USER@HOST/DATABASE, none"


def default_tracking_uri(records: Records) -> str:
    """A database next to the sweeps. A remote storage cannot hold one, so each machine makes its
    own from the trials."""
    storage = records.storage
    folder = Path(storage.root) if storage.is_local else cache_root() / "mirrors"
    return f"sqlite:///{folder.absolute() / 'mlflow.db'}"


def check_tracking_uri(uri: str) -> None:
    """Raise `BadInput` if `uri` cannot be a tracking URI. The network is not touched."""
    if uri == NONE:
        return
    if not any(re.fullmatch(form, uri) for form in _FORMS):
        raise BadInput(f"the tracking URI must be one of {_CHOICES}; got {redact_text(uri)!r}")
    scheme, _, driver = uri.partition("://")[0].partition("+")
    if scheme == "postgresql" and not find_spec(driver or "psycopg"):  # SQLAlchemy's choice
        raise BadInput(f"{driver or 'psycopg'} is missing: pip install 'ranksweep[tracking]'")


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
