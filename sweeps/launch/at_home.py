"""The commands of a reader's own machine for a sweep on the head of a cluster of Ray's launcher."""

import os
import shlex

from sweeps.store.records import Records
from sweeps.tracking.client import default_tracking_uri

CLUSTER = "RANKSWEEP_CLUSTER"
"""The variable with which a file of cluster/ names itself on the nodes."""
PORT = 5050  # of MLflow's pages, on both ends; MLflow's usual 5000 is taken on many laptops


def home_lines(records: Records, tracking_uri: str) -> list[str]:
    """The lines that show a sweep in MLflow and bring its results home; none where this is no head
    of such a cluster, or the storage is not on its disk."""
    config = os.environ.get(CLUSTER)
    if not config or not records.storage.is_local:
        return []
    root = records.storage.root
    ui = shlex.join(["ranksweep", "ui", "--port", str(PORT), str(records.folder)])
    shown = ["ray", "exec", config, "--port-forward", str(PORT), ui]
    home = ["ray", "rsync-down", config, f"{root}/", f"{os.path.basename(root)}/"]
    lines = {"results": home}
    if tracking_uri == default_tracking_uri(records):
        lines = {"MLflow": shown, **lines}
    return [
        "on your own machine, where `ray up` ran:",
        *(f"  {name:<9} {shlex.join(words)}" for name, words in lines.items()),
    ]
