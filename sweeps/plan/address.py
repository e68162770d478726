"""Where the Ray cluster is that a command was submitted to, known without importing Ray."""

import os
from pathlib import Path

BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")  # `ray up` leaves it on the head


def cluster_address() -> str | None:
    """The cluster to join; None: this machine alone."""
    return os.environ.get("RAY_ADDRESS") or ("auto" if BOOTSTRAP.expanduser().exists() else None)
