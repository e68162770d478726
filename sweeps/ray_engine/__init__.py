"""The only room that knows Ray: Tune runs trials, Train runs their workers."""

import os

from sweeps.plan.options import cluster_address

# On this machine alone nothing of Ray shall listen on the network. Ray has one switch for that,
# made for other systems, and reads it when it is imported: here is before that.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1" if cluster_address() else "0")
