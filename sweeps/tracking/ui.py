"""MLflow's web pages for a sweep, opened at the view that shows something."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TextIO

from rank_core.errors import BadInput
from sweeps.tracking.client import connect
from sweeps.tracking.server import local_server
from sweeps.tracking.uri import NONE, check_tracking_uri, is_server
from sweeps.tracking.views import deep_link


def serve(tracking_uri: str, experiment: str, port: int = 0) -> int:
    """Print the link to `experiment` and serve a database until Ctrl-C; an exit status.

    For an http(s) URI the server is there already, and only the link is printed.
    """
    check_tracking_uri(tracking_uri)
    if tracking_uri == NONE:
        raise BadInput("there are no pages to show with the tracking URI none")
    experiment_id = _experiment_id(tracking_uri, experiment)
    if is_server(tracking_uri):
        _say(deep_link(tracking_uri, experiment_id))
        return 0
    with _terminated_like_ctrl_c():
        try:
            with local_server(tracking_uri, port) as (base, process):
                _say(f"{deep_link(base, experiment_id)}\nCtrl-C ends the server.")
                return process.wait()
        except KeyboardInterrupt:
            return 0


def _experiment_id(tracking_uri: str, experiment: str) -> str:
    client = connect(tracking_uri)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        names = ", ".join(sorted(item.name for item in client.search_experiments()))
        raise BadInput(f"no experiment {experiment!r} in this store; known: {names}")
    return str(found.experiment_id)


def _say(text: str, stream: TextIO | None = None) -> None:
    print(text, file=stream or sys.stdout, flush=True)


@contextlib.contextmanager
def _terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM ends the child, too. Only the main thread may set this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
