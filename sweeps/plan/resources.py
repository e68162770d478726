"""The resources of a trial, and how many trials run at a time."""

from dataclasses import dataclass

from rank_core.errors import BadInput
from sweeps.plan.options import Options
from sweeps.plan.terminal import numbered

CLUSTER, MACHINE = "the cluster", "this machine"
DRIVER_CPU = 0.01  # of a Tune trial that only drives a Ray Train group


@dataclass(frozen=True)
class Resources:
    """The resources of a trial, and the number of trials that run at a time."""

    num_workers: int
    cpus: float  # of a worker
    gpus: float  # of a worker
    threads: int  # of a worker
    slots: int


def resources_of(options: Options, *, cpus: float, gpus: float, place: str) -> Resources:
    """The resources of a trial at a `place`, `CLUSTER` or `MACHINE`, with so many CPUs and GPUs in
    all. Raises `BadInput` for those that it can never provide."""
    gpus_per_worker = options.gpus_per_worker
    if gpus_per_worker is None:
        gpus_per_worker = 1.0 if gpus else 0.0
    n = options.num_workers
    # The Tune trial of a group needs a little of a core besides its workers.
    cpus_per_worker = options.cpus_per_worker - (0.1 if n > 1 else 0.0)
    fits = [cpus / (n * cpus_per_worker + (DRIVER_CPU if n > 1 else 0.0))]
    if gpus_per_worker:
        fits.append(gpus / (n * gpus_per_worker))
    slots = int(min(fits))
    if slots < 1:
        raise BadInput(
            f"a trial needs {numbered(n, 'worker')} with {options.cpus_per_worker} CPU and "
            f"{gpus_per_worker:g} GPU each; {place} has {cpus:g} CPU and {gpus:g} GPU in all. "
            "Lower --num-workers, --cpus-per-worker or --gpus-per-worker, or "
            + ("add nodes" if place == CLUSTER else "set RAY_ADDRESS to a cluster that has them")
        )
    return Resources(n, cpus_per_worker, gpus_per_worker, options.cpus_per_worker, slots)
