"""`ranksweep rerank FOLDER`: a first stage's run in the order of an exported model.

Each shard of queries is a file, written atomically, so that a killed command resumes; the last step
merges them."""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cached_property
from pathlib import Path

import torch

from rank_core.data.load import load_collection
from rank_core.data.named_files import absolute, named_digest, named_queries, named_run
from rank_core.data.readers import parse_fields
from rank_core.data.tables import check_run_name
from rank_core.data.transforms.expression import base_of, folder_and_fields
from rank_core.data.trec import read_run, write_run
from rank_core.encoders.backbones import EXPORT_FILE
from rank_core.errors import BadInput, shown
from rank_core.export.folder import is_packaged, published_model, read_settings
from rank_core.export.reranker import Reranker
from rank_core.files import atomic_write, file_sha256
from rank_core.machine import begin_on_device
from rank_core.records import Run
from rank_core.settings.config import TrialConfig
from sweeps.plan.flags import add_flags
from sweeps.plan.options import named_collection
from sweeps.terminal.command_line import Parser, check_writable
from sweeps.terminal.text import about, num_queries, numbered, say

TAG = "ranksweep"
LINE_SECONDS = 30.0


@dataclass(frozen=True)
class RerankJob:
    """A reranking job, which reads its inputs once."""

    folder: str  # of the exported model; empty for a published one
    collection: str
    run: str
    out: str
    queries: str  # a file of queries; empty: the collection's
    depth: int  # of each query; 0: the trial's
    depth_only: bool  # without the candidates behind it
    shard_queries: int
    threads: int
    trust_code: bool = False  # of a model from outside the package
    model_alone: bool = False  # of a system with the first stage
    published: TrialConfig | None = None  # how a published reranker is read, in place of a folder

    @property
    def parts(self) -> Path:
        """The folder of the shards until they are merged."""
        return Path(f"{self.out}.parts")

    def part(self, number: int) -> Path:
        """The file of a shard."""
        return self.parts / f"shard-{number:06}.run.gz"

    def queries_of(self, shard: int) -> list[str]:
        """The ids of a shard's queries."""
        return [*self.first_stage][shard * self.shard_queries : (shard + 1) * self.shard_queries]

    @cached_property
    def first_stage(self) -> Run:
        """The run to rerank."""
        return dict(named_run(self.run))

    @cached_property
    def model(self) -> Reranker:
        """The model."""
        if self.published:
            return Reranker(published_model(self.published), None, "")
        return Reranker.load(self.folder, trust_code=self.trust_code)

    @cached_property
    def texts(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The texts of queries (of all splits, or of a file) and of documents."""
        collection = load_collection(self.collection)
        if self.queries:
            _, fields = folder_and_fields(base_of(self.collection))
            renamed = parse_fields(fields) if fields else None
            return named_queries(self.queries, renamed), collection.documents
        texts: dict[str, str] = {}
        for split in collection.splits.values():
            texts |= split.queries
        return texts, collection.documents


def main(argv: Sequence[str]) -> int:
    """Rerank a run with an exported model, on this machine's GPU or CPU. Candidates below --depth
    follow in the order of the run. Finished shards of queries are kept in OUT.parts, and the same
    command resumes from them."""
    args = parser().parse_args(argv)
    for flag in ("shard_queries", "cpus_per_worker", "depth"):
        if (value := vars(args)[flag]) is not None and value < 1:
            raise BadInput(f"--{flag.replace('_', '-')} >= 1 must hold, got {value}")
    for flag, name in (("run", args.run), ("out", args.out), ("queries", args.queries)):
        if re.match(r"\w+:/", name or ""):
            raise BadInput(f"--{flag} must be a file on this machine, got {name}; copy it first")
    check_run_name("--out", Path(args.out))
    check_writable("the folder of --out", Path(args.out).parent)
    rerank_run(
        RerankJob(
            folder=os.path.abspath(args.folder),
            collection=str(named_collection(args.collection, args.fields)),
            run=absolute(args.run),
            out=os.path.abspath(args.out),
            queries=absolute(args.queries) if args.queries else "",
            depth=args.depth or 0,
            depth_only=args.depth_only,
            shard_queries=args.shard_queries,
            threads=args.cpus_per_worker,
            trust_code=args.trust_code,
        )
    )
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep rerank`."""
    parser = Parser("ranksweep rerank", main.__doc__)
    parser.add_argument("folder", metavar="FOLDER", help="an exported model")
    add = parser.add_argument
    add("--collection", required=True, metavar="NAME|DIR", help="collection with the texts")
    add_flags(parser, ("fields", "cpus_per_worker"))
    add("--run", required=True, metavar="FILE|ir:ID", help="the run to rerank")
    add("--out", required=True, metavar="FILE", help="the reranked run, a new file")
    add("--queries", metavar="FILE|ir:ID", help="texts of the queries (default: the collection's)")
    add(
        "--depth",
        type=int,
        metavar="N",
        help="candidates reranked per query (default: the trial's)",
    )
    add("--depth-only", action="store_true", help="omit the candidates below the depth")
    add(
        "--shard-queries", type=int, default=50, metavar="N", help="queries per shard (default: 50)"
    )
    trust = "allow the model's source code in FOLDER/code to run; read it first"
    add("--trust-code", action="store_true", help=trust)
    return parser


def rerank_run(job: RerankJob) -> None:
    """Reranks the missing shards of a job in this process, and writes the run."""
    number = open_job(job)
    with _alone(job):
        _rerank_missing(job, number)


@contextmanager
def _alone(job: RerankJob) -> Iterator[None]:
    """Refuses a job that another command is at. Its lock ends with its process."""
    job.parts.mkdir(parents=True, exist_ok=True)
    with (job.parts / "lock").open("a") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise BadInput(
                f"another command is writing {job.out}: wait for its end, or name another --out"
            ) from None
        if Path(job.out).exists():  # it ended just now
            shutil.rmtree(job.parts, ignore_errors=True)
            raise BadInput(f"--out must be a new file, but {job.out} exists")
        yield


def _rerank_missing(job: RerankJob, number: int) -> None:
    shards = [shard for shard in range(number) if not job.part(shard).exists()]
    depth = job.depth or job.model.config.evaluation.depth
    if longer := sum(len(ranked) > depth for ranked in job.first_stage.values()):
        others = "are left out" if job.depth_only else "follow in their order"
        say(
            f"depth       the first {depth} candidates of {num_queries(longer)} are reranked "
            f"(--depth N); the rest {others}"
        )
    if num_done := number - len(shards):
        say(f"resumed     {num_done} of {numbered(number, 'shard')} already done")
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
    config = job.published or read_settings(job.folder, trust_code=job.trust_code)
    name = config.model.name
    if job.trust_code and is_packaged(name):
        raise BadInput(
            f"--trust-code has no effect: {name} of {job.folder} is a model of ranksweep"
        )
    if Path(job.out).exists():
        raise BadInput(f"--out must be a new file, but {job.out} exists")
    run, (queries, documents) = job.first_stage, job.texts
    if not run:
        raise BadInput(f"--run must rank documents, but {job.run} is empty")
    if lost := next((query_id for query_id in run if query_id not in queries), None):
        raise BadInput(f"query {shown(lost)} of --run has no text; --queries FILE has others")
    if lost := next((d for ranked in run.values() for d in ranked if d not in documents), None):
        raise BadInput(f"document {shown(lost)} of --run has no text in --collection")
    facts, file = json.dumps(_facts(job), indent=1), job.parts / "job.json"
    if any(job.parts.glob("shard-*")) and (not file.exists() or file.read_text() != facts):
        raise BadInput(
            f"{job.parts} holds the shards of another command (model, data, --depth, --depth-only "
            "or shard size differ); remove it or name another --out"
        )
    job.parts.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as unfinished:
        unfinished.write_text(facts)
    return -(-len(run) // job.shard_queries)


def rerank_shard(job: RerankJob, shard: int) -> None:
    """Reranks one shard and writes its file."""
    torch.set_num_threads(max(1, job.threads))
    begin_on_device(1.0)
    some = {query_id: job.first_stage[query_id] for query_id in job.queries_of(shard)}
    depth = job.depth or None
    reranked = job.model.rerank(
        some, *job.texts, depth=depth, depth_only=job.depth_only, model_alone=job.model_alone
    )
    write_run(job.part(shard), reranked, tag=TAG)


def put_together(job: RerankJob, number: int) -> None:
    """Writes the merged run atomically and removes the shards."""
    whole: Run = {}
    for shard in range(number):
        part = read_run(job.part(shard))
        if part.keys() != set(job.queries_of(shard)):
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

    def digest(path: Path) -> str:
        return file_sha256(path)[:16]

    collection = load_collection(job.collection).content_hash
    if job.published:
        backbone = job.model.backbone.content_hash
        model = job.published.fingerprint(collection_hash=collection, backbone_hash=backbone)
    else:
        model = digest(Path(job.folder) / EXPORT_FILE)  # has the hashes of all others
    queries = job.queries and (named_digest(job.queries, "queries") or digest(Path(job.queries)))
    return {
        "depth": job.depth,
        "depth_only": job.depth_only,
        "shard_queries": job.shard_queries,
        "model": model,
        "collection": collection,
        "run": named_digest(job.run, "scoreddocs") or digest(Path(job.run)),
        "queries": queries,
    }
