"""`ranksweep rerank FOLDER`: a first stage's run in the order of an exported model."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from rank_core.data.named_files import absolute
from rank_core.errors import BadInput
from sweeps.engine.rerank import RerankJob, rerank_run
from sweeps.plan.command_line import Parser, check_writable
from sweeps.plan.options import named_collection


def main(argv: Sequence[str]) -> int:
    """Rerank a run with an exported model, on this machine's GPU or CPU. Finished shards of queries
    are kept in OUT.parts, and the same command resumes from them."""
    parser = Parser("ranksweep rerank", main.__doc__)
    parser.add_argument("folder", metavar="FOLDER", help="an exported model")
    add = parser.add_argument
    add("--collection", required=True, metavar="NAME|DIR", help="the source of the texts")
    add("--fields", metavar="THEIRS=OURS,...", help="field names: id=doc_id,body=text")
    add("--run", required=True, metavar="FILE|ir:ID", help="the first stage's run")
    add("--out", required=True, metavar="FILE", help="the reranked run, a new file")
    add("--queries", metavar="FILE|ir:ID", help="their texts; default: the collection's")
    add("--depth", type=int, default=0, metavar="N", help="of a query (default: the trial's)")
    add("--shard-queries", type=int, default=50, metavar="N", help="of a shard (default 50)")
    add("--cpus-per-worker", type=int, default=1, metavar="N", help="threads (default 1)")
    given = parser.parse_args(argv)
    for flag, least in (("shard_queries", 1), ("cpus_per_worker", 1), ("depth", 0)):
        if (value := vars(given)[flag]) < least:
            raise BadInput(f"--{flag.replace('_', '-')} >= {least} must hold, got {value}")
    for flag, name in (("run", given.run), ("out", given.out), ("queries", given.queries)):
        if re.match(r"\w+:/", name or ""):
            raise BadInput(f"--{flag} must be a file on this machine, got {name}; copy it first")
    check_writable("the folder of --out", Path(given.out).parent)
    job = RerankJob(
        folder=os.path.abspath(given.folder),
        collection=str(named_collection(given.collection, given.fields)),
        run=absolute(given.run),
        out=os.path.abspath(given.out),
        queries=absolute(given.queries) if given.queries else "",
        depth=given.depth,
        shard_queries=given.shard_queries,
        threads=given.cpus_per_worker,
    )
    rerank_run(job)
    return 0
