"""The only package that imports Ray: Tune runs trials, Train runs their workers."""

import os

from sweeps.plan.options import cluster_address

# Ray reads these on its import. A local Ray must not listen on the network; Ray's only switch for
# that is meant for other systems.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1" if cluster_address() else "0")
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # a Tuner that was given up must start none
os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # or Ray prints lines that it kept back as it ends
# Ray would abort this process, even after a restart, 60 s after the death of its GCS. Clients that
# Ray makes before it has joined have the value of its import.
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(10**6))
