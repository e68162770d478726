"""The preparation of a sweep's inputs on every node, before a trial reserves a GPU."""

import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rank_core.errors import BadInput
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import prepare
from sweeps.plan.terminal import numbered, say
from sweeps.ray_engine.cluster import connect, disconnect


def prepare_cluster(configs: Sequence[TrialConfig], code: Sequence[str]) -> None:
    """Prepares the configurations' inputs on every node of the cluster."""
    try:
        connect(num_workers=1, code=code)
        prepare_nodes(configs)
    finally:
        disconnect()


def prepare_nodes(configs: Sequence[TrialConfig]) -> None:
    """Prepares the configurations on all nodes of the connected cluster, a task for each node, and
    prints their messages. Nodes with a shared cache folder prepare everything once.

    Raises `BadInput` for inputs that a node cannot read. A node that dies causes no error: its
    trials run on others.
    """
    nodes = [node for node in ray.nodes() if node["Alive"]]
    # Seeds share their inputs.
    settings = [config.settings() for config in dict.fromkeys(replace(c, seed=0) for c in configs)]
    if len(nodes) < 2:
        for values in settings:
            prepare(TrialConfig().override(values))
        return
    say(f"preparing   inputs on {numbered(len(nodes), 'node')}")
    tasks: dict[Any, str] = {
        _on(node["NodeID"]).remote(settings): node["NodeManagerHostname"] for node in nodes
    }
    while tasks:
        # A task's lines, which Ray's types call a reference to a single value.
        ready: list[Any] = ray.wait(list(tasks), num_returns=1)[0]
        for lines in ready:
            try:
                say(f"{tasks[lines]}: {ray.get(next(lines))}")
            except StopIteration:
                del tasks[lines]
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, BadInput):
                    raise BadInput(f"{tasks[lines]}: {error.cause}") from None
                raise
            except ray.exceptions.RayError:
                say(f"{tasks.pop(lines)}: lost while it prepared its inputs")


def _on(node_id: str) -> Any:
    where = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return _prepared.options(scheduling_strategy=where)


@ray.remote(num_cpus=0, max_retries=0, num_returns="streaming")
def _prepared(settings: Sequence[dict[str, Any]]) -> Iterator[str]:
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for values in settings:
                prepare(TrialConfig().override(values))
        except BaseException as error:
            failures.append(error)
        finally:
            lines.put(None)

    before, sys.stderr = sys.stderr, _Lines(lines)
    try:
        threading.Thread(target=work, daemon=True).start()
        yield from iter(lines.get, None)
    finally:
        sys.stderr = before
    if failures:
        raise failures[0]


class _Lines:
    """A standard error that puts whole lines into a queue."""

    def __init__(self, lines: "queue.SimpleQueue[str | None]") -> None:
        self._lines, self._rest = lines, ""

    def write(self, text: str) -> int:
        *whole, self._rest = (self._rest + text).split("\n")
        for line in filter(None, whole):
            self._lines.put(line)
        return len(text)

    def flush(self) -> None:
        """Do nothing: lines are sent when they end."""

    def isatty(self) -> bool:
        return False
