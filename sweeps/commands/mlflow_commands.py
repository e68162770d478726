"""The commands of `python -m sweeps` that concern MLflow."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rank_core.errors import BadInput
from sweeps.plan.secrets import REDACTED, redact_text
from sweeps.store.sweep_file import FILE, read_sweep_file
from sweeps.tracking.ui import serve
from sweeps.tracking.uploader import sync as send_pending


def ui(argv: Sequence[str]) -> int:
    """Serves the sweep's MLflow experiment on loopback and prints the links to its views."""
    parser = _parser("ui", ui.__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    arguments = parser.parse_args(argv)
    uri, experiment = _where(arguments)
    return serve(uri, experiment, arguments.port)


def sync(argv: Sequence[str]) -> int:
    """Sends what MLflow has not taken yet; sending twice changes nothing."""
    arguments = _parser("sync", sync.__doc__).parse_args(argv)
    uri, experiment = _where(arguments)
    sent = send_pending(arguments.folder, uri, experiment)
    print(f"{sent} events sent to {redact_text(uri)}")
    return 0


def _parser(command: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m sweeps {command}", description=description)
    parser.add_argument("folder", metavar="DIR", type=Path)
    parser.add_argument("--tracking-uri", help="default: the one the sweep was run with")
    return parser


def _where(arguments: argparse.Namespace) -> tuple[str, str]:
    """The tracking URI and the experiment of a sweep."""
    sweep = read_sweep_file(arguments.folder)
    uri = arguments.tracking_uri or sweep.tracking_uri
    if not uri or not sweep.experiment:
        raise BadInput(f"{arguments.folder / FILE}: must name tracking_uri and experiment")
    if REDACTED in uri:
        raise BadInput(
            f"the tracking URI must be complete, and a sweep's folder keeps none of its secrets, "
            f"got {uri} from {arguments.folder / FILE}; pass --tracking-uri"
        )
    return uri, sweep.experiment
