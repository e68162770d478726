"""The resources of a trial, and how many trials run at a time: a worker is on one node, and its
share of a GPU on one GPU."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rank_core.errors import BadInput, unknown
from sweeps.plan.options import Options
from sweeps.terminal.text import numbered

CLUSTER, MACHINE = "the cluster", "this machine"
DRIVER_CPU = 0.01  # of a Tune trial that only drives a Ray Train group
KIND = "accelerator_type:"  # of the names of Ray's resources
OF_KIND = 0.001  # of the one of a node, as Ray itself asks for a kind
Node = Mapping[str, float]
"""The amounts of a node's resources by Ray's names, such as CPU and GPU."""


@dataclass(frozen=True)
class Resources:
    """The resources of a trial, and the number of trials that run at a time."""

    num_workers: int  # at most
    cpus: float  # of a worker
    gpus: float  # of a worker
    threads: int  # of a worker
    slots: int
    max_slots: int | None = None  # --max-slots
    accelerator: str = ""  # the kind of GPU of its nodes; any
    min_workers: int = 0  # of an elastic group; 0: always all

    @property
    def least(self) -> int:
        """The workers without which a trial does not run."""
        return self.min_workers or self.num_workers

    @property
    def needs(self) -> dict[str, float]:
        """What a worker needs, by Ray's names."""
        kind = {f"{KIND}{self.accelerator}": OF_KIND} if self.accelerator else {}
        return {"CPU": self.cpus, "GPU": self.gpus} | kind

    def fit(self, nodes: Sequence[Node]) -> int:
        """The number of trials that these nodes hold at a time, each with its fewest workers."""
        n = self.least
        trials = self.workers(nodes) // n
        if self.num_workers > 1:  # the Tune trial of a group needs a little of a core, too
            cpus = sum(node.get("CPU", 0.0) for node in nodes)
            trials = min(trials, _whole(cpus, n * self.cpus + DRIVER_CPU))
        return trials

    def workers(self, nodes: Sequence[Node]) -> int:
        """The number of workers that these nodes hold. Each worker of a range counts
        whole cores: a trial takes as many workers as fit, and must not take more than the cores."""
        cores = {"CPU": float(self.threads)} if self.min_workers else {}
        return sum(workers_on(node, self.needs | cores) for node in nodes)

    def estimated(self, nodes: Sequence[Node], num_trials: int) -> "Resources":
        """What so many trials are estimated with: for a range, as many workers as these nodes hold
        for each that runs at a time. More trials than slots have the fewest, as each has while many
        wait."""
        at_once = max(1, min(num_trials, self.max_slots or num_trials))
        number = min(self.workers(nodes) // at_once, self.num_workers)
        if not self.min_workers or number <= self.min_workers:
            return replace(self, num_workers=self.least, min_workers=0)
        fit = replace(self, min_workers=number).fit(nodes)
        slots = max(1, min(fit, self.max_slots or fit))
        return replace(self, num_workers=number, min_workers=0, slots=slots)

    def group(self, room: int, share: float, trials: int, at_least: int = 0) -> int:
        """The workers of one of so many trials that may start in this room, which has this share of
        their work: so much of the room, and all that no other trial can take, but not what the
        others need to start."""
        wanted = max(round(room * share), room // trials, at_least)
        left = room - (trials - 1) * self.least
        return max(self.least, min(wanted, left, self.num_workers))

    def idle_gpus(self, nodes: Sequence[Node]) -> int:
        """The GPUs that trials cannot use, because the CPUs of their nodes are too few."""
        if not self.gpus:
            return 0
        but_cores = self.needs | {"CPU": 0.0}
        by_gpus = sum(workers_on(node, but_cores) for node in nodes)
        unused = by_gpus - sum(workers_on(node, self.needs) for node in nodes)
        return unused // _whole(1.0, self.gpus)


def workers_on(node: Node, needs: Mapping[str, float]) -> int:
    """The workers that a node holds."""
    wanted = {name: amount for name, amount in needs.items() if amount}
    gpus = wanted.pop("GPU", 0.0)
    fits = [_whole(node.get(name, 0.0), amount) for name, amount in wanted.items()]
    if gpus:  # at most 1: what two shares of .6 leave of two GPUs is no worker's
        fits.append(int(node.get("GPU", 0.0)) * _whole(1.0, gpus))
    return min(fits, default=0)


def _whole(amount: float, each: float) -> int:
    return math.floor(amount / each + 1e-9)


def resources_of(options: Options, nodes: Iterable[Node], *, place: str) -> Resources:
    """The resources of a trial at a `place`, `CLUSTER` or `MACHINE`, with these nodes. Raises
    `BadInput` for those that it can never provide."""
    nodes = _of_kind(list(nodes), options.accelerator, place)
    cpus, gpus = (sum(node.get(name, 0.0) for node in nodes) for name in ("CPU", "GPU"))
    gpus_per_worker = options.gpus_per_worker
    if gpus_per_worker is None:
        gpus_per_worker = 1.0 if gpus else 0.0
    n = options.num_workers
    cpus_per_worker = options.cpus_per_worker - (0.1 if n > 1 else 0.0)
    needed = Resources(
        *(n, cpus_per_worker, gpus_per_worker, options.cpus_per_worker),
        slots=0,
        max_slots=options.max_slots,
        accelerator=options.accelerator or "",
        min_workers=options.min_workers,
    )
    slots = needed.fit(nodes)
    if slots < 1:
        in_all = f"{cpus:g} CPU and {gpus:g} GPU in all"
        in_all += "" if len(nodes) < 2 else f", and {_largest(nodes)} on a node"
        raise BadInput(
            f"a trial needs {numbered(needed.least, 'worker')} with {options.cpus_per_worker} CPU "
            f"and {gpus_per_worker:g} GPU each; {place} has {in_all}. "
            "Lower --num-workers, --cpus-per-worker or --gpus-per-worker, or "
            + (
                "add nodes"
                if place == CLUSTER
                else "set RAY_ADDRESS to a cluster that has them; --dry-run --for 8xH100 plans for "
                "GPUs that are elsewhere"
            )
        )
    return replace(needed, slots=min(slots, options.max_slots or slots))


def _of_kind(nodes: Sequence[Node], accelerator: str | None, place: str) -> Sequence[Node]:
    """The nodes with this kind of GPU; all, where none is asked for."""
    if accelerator is None:
        return nodes
    if held := [node for node in nodes if node.get(f"{KIND}{accelerator}")]:
        return held
    names = {name.removeprefix(KIND) for node in nodes for name in node if name.startswith(KIND)}
    raise unknown(f"--accelerator of {place}", accelerator, sorted(names))


def _largest(nodes: Sequence[Node]) -> str:
    """The most CPUs and GPUs of any node."""
    cpus, gpus = (max(node.get(name, 0.0) for node in nodes) for name in ("CPU", "GPU"))
    return f"at most {cpus:g} CPU and {gpus:g} GPU"
