"""`ranksweep ui` and `ranksweep sync`: a sweep in MLflow."""

from collections.abc import Sequence

from rank_core.errors import BadInput
from sweeps.plan.command_line import Parser
from sweeps.plan.secrets import REDACTED, redact_text
from sweeps.store.driver_lock import living_driver
from sweeps.store.opened_sweep import drives_here, opened
from sweeps.store.sweep_file import FILE, read_sweep_file
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import read_state
from sweeps.tracking.ui import serve
from sweeps.tracking.uploader import sync as send_pending
from sweeps.tracking.uri import default_tracking_uri


def ui(argv: Sequence[str]) -> int:
    """Serve the sweep's MLflow experiment on loopback and print the links to its views. For a
    remote sweep whose database is on the driver's machine it is rebuilt here first."""
    parser = _parser("ui", ui.__doc__)
    parser.add_argument(
        "--port", metavar="N", type=int, default=0, help="port (default: a free one)"
    )
    arguments = parser.parse_args(argv)
    with opened(arguments.sweep) as store:
        uri, experiment = _target(store, arguments.tracking_uri)
        if not store.is_local and uri == default_tracking_uri(store) and not drives_here(store):
            store.pull(store.finished())
            _send(store, uri, experiment)
    return serve(uri, experiment, arguments.port)


def sync(argv: Sequence[str]) -> int:
    """Send MLflow what it lacks: runs, summary, report, models. A repetition changes nothing."""
    arguments = _parser("sync", sync.__doc__).parse_args(argv)
    with opened(arguments.sweep, trials=True) as store:
        uri, experiment = _target(store, arguments.tracking_uri)
        if lease := living_driver(store):
            raise BadInput(f"{store.uri} is driven by {lease.text()}, which sends its events")
        sent = _send(store, uri, experiment)
    print(f"{sent} events sent to {redact_text(uri)}")
    return 0


def _send(store: Store, uri: str, experiment: str) -> int:
    """Sends the events and, of a sweep with a report, the results; the number of events."""
    from sweeps.driver.results import log_results

    sent = send_pending(store.folder, uri, experiment)
    store.pull_folder("report")
    if (store.folder / "report" / "results.json").is_file():
        log_results(store, read_state(store).trials, uri, experiment)
    return sent


def _parser(command: str, description: str | None) -> Parser:
    parser = Parser(f"ranksweep {command}", description)
    parser.add_argument("sweep", metavar="DIR", help="a sweep's folder or URI")
    parser.add_argument("--tracking-uri", metavar="URI", help="MLflow (default: the sweep's)")
    return parser


def _target(store: Store, tracking_uri: str | None) -> tuple[str, str]:
    """The tracking URI and the experiment of a sweep."""
    sweep = read_sweep_file(store.folder)
    if not sweep.experiment:
        raise BadInput(f"{store.uri}/{FILE}: must name the experiment")
    uri = tracking_uri or sweep.tracking_uri or default_tracking_uri(store)
    if REDACTED in uri:
        raise BadInput(
            f"the tracking URI {uri} of {store.uri}/{FILE} lacks its secrets, which are not "
            "stored; give --tracking-uri"
        )
    return uri, sweep.experiment
