"""The reranking of a run's shards as tasks of the cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray

from rank_core.errors import BadInput
from rank_core.export.folder import read_settings
from rank_core.own_code import travelling
from rank_core.trial.trial import own_paths
from sweeps.engine.rerank import RerankJob, rerank_shard
from sweeps.plan.terminal import numbered, say
from sweeps.ray_engine.cluster import capacity, check_shared, connect, disconnect
from sweeps.store.failures import first_line

RETRIES = 3  # of a shard whose process or node dies


def rerank_on_cluster(
    job: RerankJob, shards: Sequence[int], cpus: int, gpus: float | None
) -> Iterator[int]:
    """Reranks shards in parallel; yields each when it is done. Raises `BadInput` where a node does
    not see the job's files or a task needs too much."""
    try:
        config = replace(read_settings(job.folder), collection=job.collection)
        connect(num_workers=1, code=travelling(own_paths(config)))
        check_shared(job.parts, f"--out must be in a folder that every node sees, but {job.parts}")
        if gpus is None:
            gpus = 1.0 if capacity("GPU") else 0.0
        if cpus > capacity("CPU") or gpus > capacity("GPU"):
            raise BadInput(
                f"a shard needs {cpus} CPU and {gpus:g} GPU; the cluster has "
                f"{capacity('CPU'):g} CPU and {capacity('GPU'):g} GPU in all"
            )
        task = ray.remote(rerank_shard).options(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)
        waiting: dict[Any, int] = {task.remote(job, shard): shard for shard in shards}
        say(f"{numbered(len(waiting), 'shard')} on the cluster")
        while waiting:
            for done in ray.wait(list(waiting), num_returns=1)[0]:
                _get(done)
                yield waiting.pop(done)
    finally:
        disconnect()


def _get(done: Any) -> None:
    try:
        ray.get(done)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, BadInput):
            raise BadInput(str(error.cause)) from None
        raise
    except ray.exceptions.RayError as error:
        raise BadInput(
            f"a shard was lost {RETRIES + 1} times ({first_line(error)}); the same command "
            "resumes with the missing ones"
        ) from None
