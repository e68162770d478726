"""The commands of `python -m sweeps` that concern MLflow."""

from collections.abc import Sequence

from rank_core.errors import BadInput
from sweeps.plan.command_line import Parser
from sweeps.plan.secrets import REDACTED, redact_text
from sweeps.store.driver_lock import living_driver
from sweeps.store.opened_sweep import drives_here, opened
from sweeps.store.sweep_file import FILE, read_sweep_file
from sweeps.store.trial_store import Store
from sweeps.tracking.ui import serve
from sweeps.tracking.uploader import sync as send_pending
from sweeps.tracking.uri import default_tracking_uri


def ui(argv: Sequence[str]) -> int:
    """Serves the sweep's MLflow experiment on loopback and prints the links to its views. Of a URI
    that was tracked in a database of the driver's machine, it makes one here first."""
    parser = _parser("ui", ui.__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    arguments = parser.parse_args(argv)
    with opened(arguments.sweep) as store:
        uri, experiment = _target(store, arguments.tracking_uri)
        if not store.is_local and uri == default_tracking_uri(store) and not drives_here(store):
            store.pull(store.finished())
            send_pending(store.folder, uri, experiment)
    return serve(uri, experiment, arguments.port)


def sync(argv: Sequence[str]) -> int:
    """Sends what MLflow has not taken yet; sending twice changes nothing."""
    arguments = _parser("sync", sync.__doc__).parse_args(argv)
    with opened(arguments.sweep, trials=True) as store:
        uri, experiment = _target(store, arguments.tracking_uri)
        if lease := living_driver(store):
            raise BadInput(f"{store.uri} is driven by {lease.text()}, which sends its events")
        sent = send_pending(store.folder, uri, experiment)
    print(f"{sent} events sent to {redact_text(uri)}")
    return 0


def _parser(command: str, description: str | None) -> Parser:
    parser = Parser(f"ranksweep {command}", description)
    parser.add_argument("sweep", metavar="DIR", help="the folder or URI of one sweep")
    parser.add_argument("--tracking-uri", help="default: the one the sweep was run with")
    return parser


def _target(store: Store, given: str | None) -> tuple[str, str]:
    """The tracking URI and the experiment of a sweep."""
    sweep = read_sweep_file(store.folder)
    if not sweep.experiment:
        raise BadInput(f"{store.uri}/{FILE}: must name the experiment")
    uri = given or sweep.tracking_uri or default_tracking_uri(store)
    if REDACTED in uri:
        raise BadInput(
            f"the tracking URI must be complete, and a sweep's folder keeps none of its secrets, "
            f"got {uri} from {store.uri}/{FILE}; pass --tracking-uri"
        )
    return uri, sweep.experiment
