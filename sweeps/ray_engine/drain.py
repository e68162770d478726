"""Ray's notice of a node that goes soon: an autoscaler drains it, a spot machine is taken back, or
`ray start --block` on it got SIGTERM, as Kubernetes and Slurm send it."""

import threading
import time
from contextlib import suppress
from functools import cache

import ray

LOOK_SECONDS = 1.0


def draining_nodes() -> set[str]:
    """Ray's ids of the nodes that get no further work and go soon."""
    # Ray Train has a public notice, for the workers of a group, who have to ask at the same step.
    from ray._private.state import state

    if ray.util.client.ray.is_connected():
        return set()  # a client is not told
    with suppress(Exception):  # Ray's end, which shows elsewhere
        return set(state.get_draining_nodes())
    return set()


def this_node() -> str:
    """Ray's id of the node of this process."""
    return str(ray.get_runtime_context().get_node_id())


@cache
def notice_of(*nodes: str) -> threading.Event:
    """Set within a second or two once one of these nodes goes soon."""
    notice = threading.Event()

    def look() -> None:
        while draining_nodes().isdisjoint(nodes):
            time.sleep(LOOK_SECONDS)
        notice.set()

    threading.Thread(target=look, daemon=True, name="notice").start()
    return notice
