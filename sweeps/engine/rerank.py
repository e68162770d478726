"""The reranking of a run with an exported model, in shards of queries. Each shard is a file,
written atomically, so that a killed job resumes; the last step merges them."""

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from rank_core.data.load import load_collection
from rank_core.data.named_files import named_digest, named_queries, named_run
from rank_core.data.readers import parse_fields
from rank_core.data.transforms.expression import base_of, folder_and_fields
from rank_core.data.trec import read_run, write_run
from rank_core.encoders.backbones import EXPORT_FILE
from rank_core.errors import BadInput, shown
from rank_core.export.folder import read_settings
from rank_core.export.reranker import Reranker
from rank_core.files import atomic_write, file_sha256
from rank_core.machine import begin_on_device
from rank_core.records import Run
from sweeps.plan.terminal import about, numbered, say

TAG = "ranksweep"
JOB = "job.json"
LINE_SECONDS = 30.0


@dataclass(frozen=True)
class RerankJob:
    """A reranking job."""

    folder: str  # of the exported model
    collection: str
    run: str
    out: str
    queries: str = ""  # a file of queries; empty: the collection's
    depth: int = 0  # of each query; 0: the trial's
    shard_queries: int = 50
    threads: int = 1

    @property
    def parts(self) -> Path:
        """The folder of the shards until they are merged."""
        return Path(f"{self.out}.parts")

    def part(self, number: int) -> Path:
        """The file of a shard."""
        return self.parts / f"shard-{number:06}.run.gz"


def rerank_run(job: RerankJob) -> None:
    """Reranks the missing shards of a job in this process, and writes the run."""
    number = open_job(job)
    shards = [shard for shard in range(number) if not job.part(shard).exists()]
    depth = job.depth or _reranker(job.folder).config.evaluation.depth
    if longer := sum(len(ranked) > depth for ranked in _run(job.run).values()):
        say(f"depth       the first {depth} candidates of {longer} longer queries (--depth N)")
    if num_done := number - len(shards):
        say(f"resumed     {numbered(num_done, 'shard')} of {number} are done already")
    start = last_line = time.monotonic()
    for count, shard in enumerate(shards, start=1):
        rerank_shard(job, shard)
        now = time.monotonic()
        if now - last_line > LINE_SECONDS:
            last_line = now
            seconds_left = (now - start) / count * (len(shards) - count)
            say(f"[{num_done + count}/{number}] shards  (about {about(seconds_left)} left)")
    put_together(job, number)


def open_job(job: RerankJob) -> int:
    """Check a job, make or reopen its folder, and return the number of its shards.

    Raises `BadInput` where the output exists, the run has ids that the collection lacks, or the
    folder belongs to another job.
    """
    read_settings(job.folder)
    for cached in (_reranker, _run, _texts):  # files of an earlier job may have changed
        cached.cache_clear()
    if Path(job.out).exists():
        raise BadInput(f"--out must be a new file, {job.out} exists")
    run, (queries, documents) = _run(job.run), _texts(job.collection, job.queries)
    if not run:
        raise BadInput(f"--run must rank documents, {job.run} is empty")
    if lost := next((query_id for query_id in run if query_id not in queries), None):
        raise BadInput(f"query {shown(lost)} of --run has no text; --queries FILE has others")
    if lost := next((d for ranked in run.values() for d in ranked if d not in documents), None):
        raise BadInput(f"document {shown(lost)} of --run has no text in --collection")
    facts, file = json.dumps(_facts(job), indent=1), job.parts / JOB
    if any(job.parts.glob("shard-*")) and (not file.exists() or file.read_text() != facts):
        raise BadInput(
            f"{job.parts} holds the shards of another command (model, data, --depth or shard size "
            "differ); remove it or name another --out"
        )
    job.parts.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as unfinished:
        unfinished.write_text(facts)
    return -(-len(run) // job.shard_queries)


def rerank_shard(job: RerankJob, shard: int) -> None:
    """Reranks one shard and writes its file."""
    torch.set_num_threads(max(1, job.threads))
    begin_on_device(1.0)
    run, (queries, documents) = _run(job.run), _texts(job.collection, job.queries)
    some: Run = {query_id: run[query_id] for query_id in _queries(job, shard)}
    depth = job.depth or None
    reranked = _reranker(job.folder).rerank(some, queries, documents, depth=depth)
    write_run(job.part(shard), reranked, tag=TAG)


def _queries(job: RerankJob, shard: int) -> list[str]:
    return list(_run(job.run))[shard * job.shard_queries : (shard + 1) * job.shard_queries]


def put_together(job: RerankJob, number: int) -> None:
    """Writes the merged run atomically and removes the shards."""
    whole: Run = {}
    for shard in range(number):
        part = read_run(job.part(shard))
        if part.keys() != set(_queries(job, shard)):
            raise BadInput(
                f"{job.part(shard)} must rank the queries of its shard; remove it, and the same "
                "command writes it again"
            )
        whole |= part
    write_run(Path(job.out), whole, tag=TAG)
    shutil.rmtree(job.parts)
    say(f"reranked    {len(whole)} queries: {job.out}")


def _facts(job: RerankJob) -> dict[str, object]:
    """The facts that commands must share for a common run."""
    queries = job.queries and (named_digest(job.queries, "queries") or _digest(Path(job.queries)))
    return {
        "depth": job.depth,
        "shard_queries": job.shard_queries,
        "model": _digest(Path(job.folder) / EXPORT_FILE),  # has the hashes of all others
        "collection": load_collection(job.collection).content_hash,
        "run": named_digest(job.run, "scoreddocs") or _digest(Path(job.run)),
        "queries": queries,
    }


def _digest(path: Path) -> str:
    return file_sha256(path)[:16]


@lru_cache(maxsize=1)
def _reranker(folder: str) -> Reranker:
    """The model, loaded once in a process."""
    return Reranker.load(folder)


@lru_cache(maxsize=1)
def _run(path: str) -> Run:
    return dict(named_run(path))


@lru_cache(maxsize=1)
def _texts(collection_name: str, queries: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The texts of queries (of all splits, or of a file) and of documents."""
    collection = load_collection(collection_name)
    if queries:
        _, fields = folder_and_fields(base_of(collection_name))
        renamed = parse_fields(fields) if fields else None
        return named_queries(queries, renamed), collection.documents
    texts: dict[str, str] = {}
    for split in collection.splits.values():
        texts |= split.queries
    return texts, collection.documents
