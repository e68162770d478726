"""The reranking of a run with an exported model, in this process or on the cluster."""

import time
from collections.abc import Iterator

from sweeps.engine.rerank import RerankJob, open_job, put_together, rerank_shard
from sweeps.plan.options import cluster_address
from sweeps.plan.terminal import about, numbered, say

LINE_SECONDS = 30.0


def rerank_run(job: RerankJob, *, engine: str, gpus: float | None) -> None:
    """Reranks the missing shards of a job and writes the run. `engine` is `ray`, `local` (this
    process) or empty: ray within a cluster."""
    number = open_job(job)
    shards = [shard for shard in range(number) if not job.part(shard).exists()]
    if num_done := number - len(shards):
        say(f"resumed     {numbered(num_done, 'shard')} of {number} are done already")
    on_ray = engine == "ray" or (not engine and cluster_address() is not None)
    start = last_line = time.monotonic()
    for count, _ in enumerate(_done(job, shards, gpus, on_ray=on_ray), start=1):
        now = time.monotonic()
        if now - last_line > LINE_SECONDS:
            last_line = now
            seconds_left = (now - start) / count * (len(shards) - count)
            say(f"[{num_done + count}/{number}] shards  (about {about(seconds_left)} left)")
    put_together(job, number)


def _done(
    job: RerankJob, shards: list[int], gpus: float | None, *, on_ray: bool
) -> Iterator[object]:
    """Reranks the shards; yields when one is done."""
    if not on_ray or not shards:
        for shard in shards:
            rerank_shard(job, shard)
            yield shard
        return
    from sweeps.ray_engine.rerank import rerank_on_cluster

    yield from rerank_on_cluster(job, shards, job.threads, gpus)
