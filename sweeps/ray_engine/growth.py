"""The wish of the driver that a group of workers goes on with more of them, which its workers learn
from an actor. Ray Train would end the group at once, also between two checkpoints."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ACTOR = "ranksweep-growth"
"""The name of the actor, in the namespace of the driver's job."""
LOOK_SECONDS = 1.0


class Wishes:
    """The actor: the attempts that should leave at their next checkpoint."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def ask(self, attempt: str) -> None:
        """Asks an attempt to leave."""
        self._asked.add(attempt)

    def asked(self, attempt: str) -> bool:
        """Whether an attempt was asked."""
        return attempt in self._asked


def start_wishes() -> Any:
    """The actor, beside the driver. It ends with this handle of it: those that others look up by
    its name do not keep it."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor: Any = ray.remote(Wishes)
    return actor.options(name=ACTOR, num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()


def notice_of_growth(attempt: str) -> Callable[[], bool]:
    """True within a second or two once the driver has asked this attempt to leave."""
    notice = threading.Event()

    def look() -> None:
        while not notice.is_set():
            with suppress(RayError, ValueError):  # while it does not run, nobody asks
                if ray.get(ray.get_actor(ACTOR).asked.remote(attempt)):
                    notice.set()
            time.sleep(LOOK_SECONDS)

    threading.Thread(target=look, daemon=True, name="growth").start()
    return notice.is_set
