"""Tracking URIs, checked without the network, and a connection to MLflow that fails fast and
initialises a new database once."""

import fcntl
import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from rank_core.cache import cache_root
from rank_core.errors import BadInput, not_installed
from sweeps.store.records import Records
from sweeps.store.storage import reason
from sweeps.terminal.command_line import check_writable

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

NONE = "none"
"""The tracking URI that sends nothing."""
_HOST = r"(\S*@)?(\[[\da-fA-F:]+\]|[^\s/@:\[\]]+)(:\d*[1-9]\d*)?"
_FORMS = (
    r"sqlite:///(?!:memory:|file:)[^?]*[^/?](\?.*)?",
    rf"https?://{_HOST}(/\S*)?",
    rf"postgresql(\+\w+)?://{_HOST}/+[^\s/]\S*",
)
_CHOICES = "sqlite:///FILE, http(s)://HOST:PORT, postgresql://USER@HOST/DATABASE, none"
OTHER_TRACKERS = {"wandb": "Weights & Biases", "trackio": "trackio"}
"""{scheme: its tracker} of those that a finished sweep is copied to, by hand."""
EXPERIMENT = "rank.sweep"
"""The tag of an experiment that identifies its sweep."""
CLIENT_ENVIRONMENT = {
    # With the defaults a call on a dead server takes four minutes; the thread retries.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def shown_name(experiment: str) -> str:
    """The name of an experiment on MLflow's pages, which cut its end: without the identity of its
    storage. After a slash they show the last part alone."""
    return re.sub(r"-[0-9a-f]{6}$", "", experiment)


def default_tracking_uri(records: Records) -> str:
    """A database next to the sweeps. A remote storage cannot hold one, so each machine makes its
    own from the trials."""
    storage = records.storage
    folder = Path(storage.root) if storage.is_local else cache_root() / "mirrors"
    return sqlite_uri(folder.absolute() / "mlflow.db")


def tracking_uri_of(records: Records, given: str | None) -> str:
    """The tracking URI of a command, by its flag or the default. Raises `BadInput` for one that
    cannot be used."""
    uri = default_tracking_uri(records) if given is None else given
    check_tracking_uri(uri)
    if given is not None:
        check_database(uri)
    return uri


def sqlite_uri(file: Path) -> str:
    """The tracking URI of a database file: `?` and `%` of its path are quoted."""
    try:
        from sqlalchemy.engine import URL
    except ModuleNotFoundError:  # it comes with MLflow: no database can be opened either
        return f"sqlite:///{file}"
    return URL.create("sqlite", database=str(file)).render_as_string(hide_password=False)


def check_tracking_uri(uri: str) -> None:
    """Raise `BadInput` if `uri` cannot be a tracking URI. The network is not touched."""
    if uri == NONE:
        return
    if (other := uri.partition("://")[0]) in OTHER_TRACKERS:
        raise BadInput(
            f"--tracking-uri {other}:// is not read: the one tracker is MLflow ({_CHOICES}), and "
            f"docs/tracking.md copies a finished sweep to {OTHER_TRACKERS[other]}"
        )
    if not any(re.fullmatch(form, uri) for form in _FORMS):
        raise BadInput(f"the tracking URI must be one of {_CHOICES}; got {uri!r}")
    scheme, _, driver = uri.partition("://")[0].partition("+")
    if scheme == "postgresql" and not find_spec(driver or "psycopg"):  # SQLAlchemy's choice
        raise not_installed(driver or "psycopg", "tracking")


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
    from sqlalchemy.engine import make_url

    return Path(make_url(tracking_uri).database or "").absolute()


def mlflow_uri(tracking_uri: str) -> str:
    """A tracking URI for MLflow. A sqlite file is opened by a URI of SQLite that does not make it:
    below a mount point whose disk is away, a new file would hide. The URI names the driver, or
    MLflow would make a folder of its own for it."""
    if not tracking_uri.startswith("sqlite:"):
        return tracking_uri
    from sqlalchemy.engine import make_url

    url = make_url(tracking_uri).set(
        drivername="sqlite+pysqlite", database=sqlite_file(tracking_uri).as_uri()
    )
    url = url.update_query_dict({"mode": "rw", "uri": "true"})
    return url.render_as_string(hide_password=False)


def create_database(tracking_uri: str) -> None:
    """Makes the sqlite file of a tracking URI, empty, and before it the lock for its first
    connection. A server's is left alone. Raises `OSError`."""
    if not tracking_uri.startswith("sqlite:"):
        return
    database = sqlite_file(tracking_uri)
    database.parent.mkdir(parents=True, exist_ok=True)
    for file in (_lock_of(database), database):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o666))


def _lock_of(database: Path) -> Path:
    return database.with_name(f"{database.name}.lock")


@contextmanager
def _locked(database: Path) -> Iterator[None]:
    """Holds a database's lock, which is not made: one without a lock is not new."""
    try:
        lock = os.open(_lock_of(database), os.O_RDWR)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _begin_again(database: Path) -> None:
    """Empties a database whose first connection was interrupted: MLflow, which begins with its
    tables and ends with its first experiment, cannot go on from there."""
    # A database that somebody locks is in use: it was made.
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", timeout=0.1, uri=True)) as file:
        try:
            begun = file.execute("SELECT count(*) FROM experiments").fetchone() == (0,)
        except sqlite3.DatabaseError:  # it has no such table, or MLflow says what it is
            begun = False
    if begun:
        os.truncate(database, 0)


def is_server(uri: str) -> bool:
    """True if `uri` names an MLflow server, not a database."""
    return uri.startswith(("http://", "https://"))


def connect(tracking_uri: str, *, create: bool = True) -> "MlflowClient":
    """A client for `tracking_uri`; a new database is initialised first. Without `create` its file
    must exist: the disk may be away."""
    os.environ.update(CLIENT_ENVIRONMENT)
    from mlflow import MlflowClient

    logging.getLogger("alembic").setLevel(logging.WARNING)
    # They also print a traceback of each error that they raise.
    for name in ("mlflow.store.db.utils", "sqlalchemy.pool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    uri = mlflow_uri(tracking_uri)
    if not tracking_uri.startswith("sqlite:"):
        return MlflowClient(uri, uri)
    if create:
        create_database(tracking_uri)
    sqlite_file(tracking_uri).stat()  # MLflow would try a missing file for two minutes
    # Processes that initialise a new file at the same time can break it for good.
    with _locked(sqlite_file(tracking_uri)):
        _begin_again(sqlite_file(tracking_uri))
        client = MlflowClient(uri, uri)
        client.search_experiments(max_results=1)
    return client


_PLAIN = {
    "Can't locate revision": "its database has the schema of another program or of a newer MLflow",
    "Detected out-of-date database schema": "its database has the schema of an older MLflow, which "
    "`mlflow db upgrade URI` renews",
    "file is not a database": "the file is no SQLite database",
    "not authenticated": "the server asks for a user and a password, as MLFLOW_TRACKING_USERNAME "
    "and MLFLOW_TRACKING_PASSWORD",
    "error code 401": "the server asks for a user and a password, as MLFLOW_TRACKING_USERNAME and "
    "MLFLOW_TRACKING_PASSWORD",
    "error code 403": "the server does not allow it to this user",
    "error code 404": "the address answers, but not as an MLflow server",
    "Expecting value": "the address answers, but not as an MLflow server",
}
"""{part of what MLflow and its libraries say: what it means}"""


def reason_of(error: Exception) -> str:
    """Why MLflow does not take something, in a line."""
    if isinstance(error, BadInput):
        return str(error)
    text = str(error)
    return next((plain for part, plain in _PLAIN.items() if part in text), "") or reason(error)


def every_page(search: Callable[..., Any]) -> Iterator[Any]:
    """All results of one of the client's searches, page after page."""
    page = None
    while True:
        results = search(page_token=page)
        yield from results
        page = results.token
        if not page:
            return


def artifact_root(tracking_uri: str, folder: Path) -> Path | None:
    """The folder of artifacts: next to a database file, otherwise in `folder`; None: the server's.
    Without it MLflow would write to `mlruns` in the current directory."""
    if is_server(tracking_uri):
        return None
    if tracking_uri.startswith("sqlite:"):
        return sqlite_file(tracking_uri).parent / "artifacts"
    return folder.absolute() / "artifacts"


def find_experiment(client: "MlflowClient", experiment: str) -> "Experiment | None":
    """The experiment of a sweep by its tag: a user may rename it."""
    from mlflow.entities import ViewType

    found = client.search_experiments(
        view_type=ViewType.ALL, filter_string=f"tags.`{EXPERIMENT}` = '{experiment}'"
    )
    return found[0] if found else None


def follow_storage(tracking_uri: str, experiment_id: str, location: str | None) -> None:
    """Lets the artifacts of an experiment be those beside its sqlite file, where both were moved or
    copied together: MLflow keeps absolute addresses and has no call that changes them."""
    if location is None or not tracking_uri.startswith("sqlite:"):
        return
    here = Path(url2pathname(urlsplit(location).path))
    file = f"{sqlite_file(tracking_uri).as_uri()}?mode=rw"
    with closing(sqlite3.connect(file, timeout=60, uri=True)) as database, database:
        found = database.execute(
            "SELECT artifact_location FROM experiments WHERE experiment_id = ?", (experiment_id,)
        ).fetchone()
        before = found[0] if found else location
        name = location.rpartition("/artifacts/")[2]
        if before == location or not before.endswith(f"/artifacts/{name}") or not here.is_dir():
            return
        database.execute(
            "UPDATE experiments SET artifact_location = ? WHERE experiment_id = ?",
            (location, experiment_id),
        )
        database.execute(
            "UPDATE runs SET artifact_uri = ? || substr(artifact_uri, ?) "
            "WHERE experiment_id = ? AND substr(artifact_uri, 1, ?) = ?",
            (location, len(before) + 1, experiment_id, len(before), before),
        )


def artifact_location(experiment: str, artifacts: Path | None) -> str | None:
    """The address of an experiment's artifacts; None: the server's."""
    return None if artifacts is None else (artifacts / experiment).as_uri()


def ensure_experiment(client: "MlflowClient", experiment: str, artifacts: Path | None) -> str:
    """MLflow's id of a sweep's experiment, created if it is new. It is shown without the identity
    of the storage, unless another sweep has that name."""
    from mlflow.exceptions import MlflowException

    location = artifact_location(experiment, artifacts)
    tags = {EXPERIMENT: experiment, "mlflow.experimentKind": "custom_model_development"}
    for name in (shown_name(experiment), experiment):
        found = find_experiment(client, experiment)
        if found is not None:
            if found.lifecycle_stage != "active":
                raise BadInput(f"experiment {found.name} was deleted in MLflow; restore it there")
            return str(found.experiment_id)
        try:
            return str(client.create_experiment(name, artifact_location=location, tags=tags))
        except MlflowException as error:
            # Another process or sweep has it; every other refusal is an error.
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
    raise BadInput(f"MLflow has another experiment {experiment}; rename it there")
