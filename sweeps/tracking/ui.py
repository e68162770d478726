"""MLflow's web pages for a sweep, opened at its saved view."""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rank_core.errors import BadInput
from sweeps.tracking.client import connect
from sweeps.tracking.server import local_server
from sweeps.tracking.uri import NONE, check_tracking_uri, is_server
from sweeps.tracking.views import deep_link

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment


def serve(tracking_uri: str, experiment: str, port: int = 0) -> int:
    """Print the links to the views of `experiment` and serve a database until Ctrl-C; an exit
    status. For an http(s) URI, whose server runs already, only the links are printed."""
    check_tracking_uri(tracking_uri)
    if tracking_uri == NONE:
        raise BadInput("there are no pages to show with the tracking URI none")
    client = connect(tracking_uri)
    trials = _experiment(client, experiment)
    summary = client.get_experiment_by_name(f"{experiment}/summary")
    if is_server(tracking_uri):
        print(links(_without_password(tracking_uri), trials, summary), flush=True)
        return 0
    try:
        with local_server(tracking_uri, port) as (base, process):
            print(links(base, trials, summary))
            print("Ctrl-C ends the server.", flush=True)
            return process.wait()
    except KeyboardInterrupt:  # or SIGTERM
        return 0


def links(base: str, trials: "Experiment", summary: "Experiment | None") -> str:
    """A line per saved view: the trials, then the table to quote."""
    named = {"trials, means over seeds": trials, "summary, the table to quote": summary}
    return "\n".join(
        f"{name:<29}{deep_link(base, experiment.experiment_id)}"
        for name, experiment in named.items()
        if experiment is not None
    )


def _without_password(uri: str) -> str:
    """The address for a browser, without name and password."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _experiment(client: "MlflowClient", experiment: str) -> "Experiment":
    known = client.get_experiment_by_name(experiment)
    if known is None:
        names = ", ".join(sorted(item.name for item in client.search_experiments()))
        raise BadInput(
            f"no experiment {experiment!r} in this store; known: {names}. If the sweep was copied "
            "here, `ranksweep sync DIR` creates it"
        )
    return known
