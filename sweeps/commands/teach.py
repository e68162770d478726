"""`ranksweep teach FOLDER`: the scores of an exported model over the training candidates, which
`training.teacher` and the filters of negatives read."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rank_core.data.load import load_collection
from rank_core.data.trec import write_run
from rank_core.errors import BadInput
from rank_core.records import Collection, Run
from sweeps.commands.rerank import RerankJob, rerank_run
from sweeps.plan.flags import add_flags
from sweeps.plan.options import named_collection
from sweeps.terminal.command_line import Parser, check_writable

DEPTH, SHARD_QUERIES = 100, 50


def main(argv: Sequence[str]) -> int:
    """Score the training candidates of a collection, and all relevant documents, with an exported
    model, and write them as a run. In a sweep: training.teacher=OUT with a loss of a teacher
    (training.loss=margin-mse), or with training.negatives_share=0.95, which drops candidates that
    the teacher scores like relevant ones. Finished shards are kept in OUT.parts, and the same
    command resumes from them."""
    parser = Parser("ranksweep teach", main.__doc__)
    parser.add_argument("folder", metavar="FOLDER", help="an exported model, the teacher")
    add = parser.add_argument
    add("--collection", required=True, metavar="NAME|DIR", help="collection with a split train")
    add_flags(parser, ("fields", "cpus_per_worker"))
    add("--out", required=True, metavar="FILE", help="the teacher's run, a new file")
    add(
        "--depth",
        type=int,
        default=DEPTH,
        metavar="N",
        help=f"candidates scored per query (default: {DEPTH})",
    )
    trust = "allow the model's source code in FOLDER/code to run; read it first"
    add("--trust-code", action="store_true", help=trust)
    given = parser.parse_args(argv)
    for flag in ("cpus_per_worker", "depth"):
        if (value := vars(given)[flag]) < 1:
            raise BadInput(f"--{flag.replace('_', '-')} >= 1 must hold, got {value}")
    check_writable("the folder of --out", Path(given.out).parent)
    name = str(named_collection(given.collection, given.fields))
    run = candidates(load_collection(name), given.depth)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.run.gz"
        write_run(file, run, tag="candidates")
        job = RerankJob(
            folder=os.path.abspath(given.folder),
            collection=name,
            run=str(file),
            out=os.path.abspath(given.out),
            queries="",
            depth=max(map(len, run.values())),
            depth_only=True,
            shard_queries=SHARD_QUERIES,
            threads=given.cpus_per_worker,
            trust_code=given.trust_code,
        )
        if job.model.needs_first_stage:
            raise BadInput(
                f"a teacher scores texts alone, {given.folder} adds the first stage's scores: "
                "export a cell without them"
            )
        rerank_run(job)
    return 0


def candidates(collection: Collection, depth: int) -> Run:
    """The first `depth` training candidates of each query, then its relevant documents that are not
    among them: a teacher's losses and filters compare candidates with these."""
    run: Run = {}
    split, texts = collection.splits["train"], collection.documents
    for query_id, judged in split.qrels.items():
        ranked = dict(list(split.candidates.get(query_id, {}).items())[:depth])
        lowest = min(ranked.values(), default=0.0)
        relevant = [doc_id for doc_id, grade in judged.items() if grade > 0 and doc_id in texts]
        missing = [doc_id for doc_id in relevant if doc_id not in ranked]
        run[query_id] = ranked | {
            doc_id: lowest - place for place, doc_id in enumerate(missing, start=1)
        }
    return run
