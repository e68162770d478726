"""The resources of a trial, and how many trials run at a time."""

from dataclasses import dataclass, replace

from rank_core.errors import BadInput
from sweeps.plan.options import Options
from sweeps.terminal.text import numbered

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
    max_slots: int | None = None  # --max-slots

    def fit(self, cpus: float, gpus: float) -> int:
        """The number of trials that so many CPUs and GPUs hold."""
        n = self.num_workers
        # The Tune trial of a group needs a little of a core besides its workers.
        fits = [cpus / (n * self.cpus + (DRIVER_CPU if n > 1 else 0.0))]
        if self.gpus:
            fits.append(gpus / (n * self.gpus))
        return int(min(fits))


def resources_of(options: Options, *, cpus: float, gpus: float, place: str) -> Resources:
    """The resources of a trial at a `place`, `CLUSTER` or `MACHINE`, with so many CPUs and GPUs in
    all. Raises `BadInput` for those that it can never provide."""
    gpus_per_worker = options.gpus_per_worker
    if gpus_per_worker is None:
        gpus_per_worker = 1.0 if gpus else 0.0
    n = options.num_workers
    cpus_per_worker = options.cpus_per_worker - (0.1 if n > 1 else 0.0)
    needed = Resources(
        *(n, cpus_per_worker, gpus_per_worker, options.cpus_per_worker),
        slots=0,
        max_slots=options.max_slots,
    )
    slots = needed.fit(cpus, gpus)
    if slots < 1:
        raise BadInput(
            f"a trial needs {numbered(n, 'worker')} with {options.cpus_per_worker} CPU and "
            f"{gpus_per_worker:g} GPU each; {place} has {cpus:g} CPU and {gpus:g} GPU in all. "
            "Lower --num-workers, --cpus-per-worker or --gpus-per-worker, or "
            + ("add nodes" if place == CLUSTER else "set RAY_ADDRESS to a cluster that has them")
        )
    return replace(needed, slots=min(slots, options.max_slots or slots))
