"""An exported model over a first stage's run: here, or on the cluster of this command."""

import time
from collections.abc import Iterator

from sweeps.engine.rerank import (
    RerankJob,
    missing_shards,
    open_job,
    put_together,
    rerank_here,
)
from sweeps.plan.options import cluster_address
from sweeps.plan.terminal import about, numbered, say

LINE_SECONDS = 30.0


def rerank_run(job: RerankJob, *, engine: str, gpus: float | None) -> None:
    """Reranks what is missing of a job, on a cluster (`ray`) or in this process (`local`; what is
    left empty is decided by where the command runs), and writes the run."""
    number = open_job(job)
    shards = missing_shards(job, number)
    if kept := number - len(shards):
        say(f"resumed     {numbered(kept, 'shard')} of {number} are there already")
    on_ray = engine == "ray" or (not engine and cluster_address() is not None)
    start = told = time.monotonic()
    done = _on_ray(job, shards, gpus) if on_ray and shards else rerank_here(job, shards)
    for count, _ in enumerate(done, start=1):
        now = time.monotonic()
        if now - told > LINE_SECONDS:
            told = now
            left = (now - start) / count * (len(shards) - count)
            say(f"[{kept + count}/{number}] shards  (about {about(left)} left)")
    put_together(job, number)


def _on_ray(job: RerankJob, shards: list[int], gpus: float | None) -> Iterator[int]:
    from sweeps.ray_engine.rerank import rerank_on_cluster

    return rerank_on_cluster(job, shards, job.threads, gpus)
