"""`ranksweep ui` and `ranksweep sync`: a sweep in MLflow."""

from collections.abc import Sequence

from rank_core.errors import BadInput
from rank_core.secrets import REDACTED
from sweeps.store.lock import living_driver
from sweeps.store.records import Records
from sweeps.store.sweep_file import FILE, find_sweep, read_sweep_file
from sweeps.terminal.command_line import Parser
from sweeps.terminal.text import numbered, say
from sweeps.tracking.client import default_tracking_uri
from sweeps.tracking.server import serve
from sweeps.tracking.thread import sync as send


def ui(argv: Sequence[str]) -> int:
    """Serve the sweep's MLflow experiment on loopback and print the links to its table and its
    charts. A database on this machine is brought up to date first."""
    arguments = ui_parser().parse_args(argv)
    records = find_sweep(arguments.sweep)
    uri, experiment = _target(records, arguments.tracking_uri)
    driver = living_driver(records)
    # A driver elsewhere that writes to a bucket has a database of its own.
    drives = driver and (driver.is_here or records.storage.is_local)
    if uri == default_tracking_uri(records) and not drives:
        send(records, uri, experiment)
    return serve(uri, experiment, arguments.port)


def ui_parser() -> Parser:
    """The arguments and flags of `ranksweep ui`."""
    parser = _sweep_parser("ui", ui.__doc__)
    parser.add_argument(
        "--port", metavar="N", type=int, default=0, help="port (default: a free one)"
    )
    return parser


def sync(argv: Sequence[str]) -> int:
    """Upload the runs, report and view that MLflow does not have. A second run changes nothing."""
    arguments = sync_parser().parse_args(argv)
    records = find_sweep(arguments.sweep)
    uri, experiment = _target(records, arguments.tracking_uri)
    if driver := living_driver(records):
        raise BadInput(f"{records.uri} is driven by {driver.text()}, which sends its runs")
    written = send(records, uri, experiment)
    say(f"{numbered(written, 'run')} sent to {uri}")
    return 0


def sync_parser() -> Parser:
    """The arguments and flags of `ranksweep sync`."""
    return _sweep_parser("sync", sync.__doc__)


def _sweep_parser(command: str, description: str | None) -> Parser:
    parser = Parser(f"ranksweep {command}", description)
    parser.add_argument("sweep", metavar="DIR", help="the folder or URI of one sweep")
    uri = "tracking URI of MLflow (default: the sweep's)"
    parser.add_argument("--tracking-uri", metavar="URI", help=uri)
    return parser


def _target(records: Records, tracking_uri: str | None) -> tuple[str, str]:
    """The tracking URI and the experiment of a sweep."""
    sweep = read_sweep_file(records)
    if not sweep.experiment:
        raise BadInput(f"{records.uri}/{FILE}: must name the experiment")
    uri = tracking_uri or sweep.tracking_uri or default_tracking_uri(records)
    if REDACTED in uri:
        raise BadInput(
            f"the tracking URI {uri} of {records.uri}/{FILE} lacks its secrets, which are not "
            "stored; give --tracking-uri"
        )
    return uri, sweep.experiment
