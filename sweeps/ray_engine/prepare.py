"""The preparation of a sweep's inputs on every node, before a trial reserves a GPU."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rank_core.errors import BadInput
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import prepare
from sweeps.plan.terminal import duration, numbered, say
from sweeps.ray_engine.cluster import connect, disconnect

LINE_SECONDS = 30.0  # between lines about the nodes that still prepare


def prepare_cluster(configs: Sequence[TrialConfig], code: Sequence[str]) -> None:
    """Prepares the configurations' inputs on every node of the cluster."""
    try:
        connect(num_workers=1, code=code)
        prepare_nodes(configs)
    finally:
        disconnect()


def prepare_nodes(configs: Sequence[TrialConfig]) -> None:
    """Prepares the configurations on all nodes of the connected cluster, a task for each node.
    Nodes with a shared cache folder prepare everything once.

    Raises `BadInput` for inputs that a node cannot read. A node that dies causes no error: its
    trials run on others.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    # Seeds share their inputs.
    settings = [config.settings() for config in dict.fromkeys(replace(c, seed=0) for c in configs)]
    if len(nodes) < 2:
        _prepare_all(settings)
        return
    say(f"preparing   inputs on {numbered(len(nodes), 'node')}")
    start, waiting = time.monotonic(), dict[Any, str]()
    for node in nodes:
        where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task: Any = ray.remote(_prepare_all)
        task = task.options(num_cpus=0, max_retries=0, scheduling_strategy=where)
        waiting[task.remote(settings)] = node["NodeManagerHostname"]
    while waiting:
        ready = ray.wait(list(waiting), num_returns=1, timeout=LINE_SECONDS)[0]
        if not ready:
            hosts = ", ".join(sorted(waiting.values()))
            say(f"preparing   for {duration(time.monotonic() - start)}, still on {hosts}")
        for task in ready:
            host = waiting.pop(task)
            try:
                ray.get(task)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, BadInput):
                    raise BadInput(f"{host}: {error.cause}") from None
                raise
            except ray.exceptions.RayError:
                say(f"{host}: lost while it prepared its inputs")


def _prepare_all(settings: Sequence[dict[str, Any]]) -> None:
    for values in settings:
        prepare(TrialConfig().override(values))
