"""The only room that knows Ray: Tune runs trials, Train runs their workers."""

import os

from sweeps.plan.options import cluster_address

# A local Ray must not listen on the network. Ray has one switch for that, made for other systems,
# which it reads on import, hence after this line.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1" if cluster_address() else "0")
