"""What a chaos test kills, and brings back: raylets of a cluster, and an MLflow server."""

import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from ray._raylet import GcsClient
from ray.cluster_utils import Cluster
from ray.core.generated import autoscaler_pb2

from rank_core.errors import BadInput
from sweeps.tracking.server import local_server

JOINS = 4  # a machine under load misses Ray's deadlines
MEMORY = 80 * 2**20  # of each node's object store: trials put nothing into it


class Machines:
    """A head that runs no trials, and nodes of one core each, which may die; with a folder of
    `caches`, each node has a cache of its own there."""

    def __init__(self, nodes: int, caches: Path | None = None) -> None:
        self.caches, self._joined = caches, 0
        head = {"num_cpus": 0, "object_store_memory": MEMORY, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self._join() for _ in range(nodes)]

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def _join(self):
        self._joined += 1
        cache = self.caches and {"RANKSWEEP_CACHE": str(self.caches / str(self._joined))}
        own = {"env_vars": cache} if cache else {}
        for attempt in range(JOINS):
            try:
                return self.cluster.add_node(num_cpus=1, object_store_memory=MEMORY, **own)
            except Exception:  # Ray gives a raylet 30 s, and has no other class for it
                if attempt == JOINS - 1:
                    raise

    def raylets(self) -> list[int]:
        """Process ids, in the order the nodes joined."""
        return [node.all_processes["raylet"][0].process.pid for node in self.nodes]

    def join(self) -> None:
        """A new node joins."""
        self.nodes.append(self._join())

    def leave(self, number: int) -> None:
        """Kills a raylet, and with it its node."""
        os.kill(self.raylets()[number], signal.SIGKILL)
        self.cluster.remove_node(self.nodes.pop(number), allow_graceful=False)

    def drain(self, number: int, seconds: float) -> None:
        """Tells Ray that a node goes after so many seconds, as a cloud that takes a spot machine
        back; nothing ends it."""
        deadline = int(1000 * (time.time() + seconds))
        reason = autoscaler_pb2.DRAIN_NODE_REASON_PREEMPTION
        gcs = GcsClient(address=self.address)
        taken, why = gcs.drain_node(self.nodes[number].node_id, reason, "test", deadline)
        assert taken, why

    def kill(self, number: int) -> None:
        """Kills a raylet; a new node joins."""
        self.leave(number)
        self.join()

    def close(self) -> None:
        self.cluster.shutdown()


class Server:
    """An MLflow server that comes back on its port, while the test goes on."""

    def __init__(self, store: str) -> None:
        self.store, self._starter = store, ThreadPoolExecutor(1)
        self._running = ExitStack()
        self.address, self._process = self._running.enter_context(local_server(store))
        self._returning: Future[None] | None = None

    def kill(self) -> bool:
        """Kills it, unless it is on its way back; whether it did."""
        if self._returning and not self._returning.done():
            return False
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(300)
        self._returning = self._starter.submit(self._start)
        return True

    def _start(self) -> None:
        port = int(self.address.rpartition(":")[2])
        deadline = time.monotonic() + 300
        while True:
            try:
                _, self._process = self._running.enter_context(local_server(self.store, port))
            except BadInput:  # the dead server's children still hold the port
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return

    def close(self) -> None:
        """Waits until it is back, and ends it."""
        if self._returning:
            self._returning.result(120)
        self._running.close()
        self._starter.shutdown()
