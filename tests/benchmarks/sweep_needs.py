"""What a sweep needs: cache of a node, storage, requests, memory and hours, from measured laws.

Collections with MS MARCO's shape are prepared at three small sizes, which gives the bytes of the
cache for each document and for each training query with 100 candidates; a run that is written gives
the storage of a trial. The hours are those of a bert-base MaxP (150/75, all chunks, one epoch, a
negative for each relevant document, validated once) at the MFU that
`tests.benchmarks.modelled_mfu` models for an H100: no GPU was there to measure it. Requests of S3
are those counted in a sweep on moto's server (`tests/sweeps/store/test_s3_requests.py` bounds them
by kind); memory is that of
`tests.benchmarks.trial_start`, beside a bert-base in fp32 with its gradients and two moments.
Run:
python -m tests.benchmarks.sweep_needs [--documents 3000] [--queries 300] [--json FILE]
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rank_core.chunking.inputs import load_inputs
from rank_core.data.trec import write_run
from rank_core.seeding import generator
from rank_core.settings.config import TrialConfig
from rank_core.trial.prepare import prepare
from sweeps.plan.trial_cost import chunk_statistics
from tests.benchmarks.modelled_mfu import LENGTH, model_flops
from tests.benchmarks.msmarco_shape import Shape, texts_of, write_shape
from tests.benchmarks.workload import PEAKS, print_table, random_backbone, save

MFU = {"scoring": 0.44, "training": 0.41}  # modelled_mfu: H100, flat rows, 65,536 tokens a call
PARAMETERS = 110e6
REQUESTS = 45  # of S3, a trial with its reports and files
START_MIB = 60  # private memory of a trial beside its model
CHUNKS = {"chunking.window": 150, "chunking.stride": 75}


class Sweep(NamedTuple):
    """A sweep of MaxP; `documents` are those of the collection."""

    name: str
    documents: int
    train: int  # queries
    dev: int
    cells: int = 20
    seeds: int = 5


SWEEPS = (
    Sweep("a company's pages", 100_000, 3_000, 500),
    Sweep("MS MARCO, 30 k queries", 3_213_835, 30_000, 500),
    Sweep("MS MARCO, all", 3_213_835, 300_000, 5_193),
)
TEST, DEPTH = 43, 100


class Laws(NamedTuple):
    """Bytes of the cache, and encoder tokens of a pair."""

    per_document: float
    per_query: float  # of training, with its candidates
    per_candidate: float  # of a run in the storage
    tokens_per_pair: float


def laws(documents: int, queries: int) -> Laws:
    """Measured: the cache at a size, with twice the documents, with twice the queries."""
    shape = Shape(documents, queries, dev=10, candidates=min(100, documents // 2))
    once = _cache_bytes(shape)
    with_documents = _cache_bytes(shape._replace(documents=2 * documents))
    with_queries = _cache_bytes(shape._replace(train=2 * queries))
    return Laws(
        (with_documents[0] - once[0]) / documents,
        (with_queries[0] - once[0]) / queries,
        _run_bytes(),
        with_documents[1],
    )


def _cache_bytes(shape: Shape) -> tuple[int, float]:
    """Bytes of a cache after the preparation, and encoder tokens of a pair."""
    with tempfile.TemporaryDirectory() as home:
        cache = Path(home) / "cache"
        os.environ["RANKSWEEP_CACHE"] = str(cache)
        collection = str(write_shape(Path(home) / "made", shape))
        texts = list(islice(texts_of(shape, seed=1), 200))
        backbone = str(random_backbone(Path(home) / "backbone", texts, "tiny"))
        named = {"collection": collection, "model.backbone": backbone, "model.name": "maxp"}
        config = TrialConfig().override(named | CHUNKS)
        prepare(config)
        size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
        cut = chunk_statistics(config, load_inputs(collection, backbone))
        return size, cut.tokens_per_document


def _run_bytes() -> float:
    """Bytes on disk of a candidate in a run, compressed."""
    rng, queries = generator(1, "sweep_needs"), 100
    run = {
        f"query{number}": {f"D{rng.integers(1 << 32)}": rng.normal() for _ in range(DEPTH)}
        for number in range(queries)
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test.run.gz"
        write_run(path, run, "made")
        return path.stat().st_size / (queries * DEPTH)


def needs(sweep: Sweep, law: Laws) -> dict[str, str]:
    """A row of the table."""
    trials = sweep.cells * sweep.seeds
    scored = (sweep.dev + TEST) * DEPTH
    tokens = {
        "training": 3 * 2 * sweep.train * law.tokens_per_pair,
        "scoring": scored * law.tokens_per_pair,
    }
    per_token = model_flops("bert-base", 1) / LENGTH
    seconds = sum(tokens[phase] * per_token / (MFU[phase] * PEAKS["H100"]) for phase in MFU)
    cache = law.per_document * sweep.documents + law.per_query * sweep.train
    storage = trials * scored * law.per_candidate
    kept = sweep.cells * PARAMETERS * 4
    hours = [f"{seconds * -(-trials // gpus) / 3600:,.1f}" for gpus in (8, 64)]
    return {
        "sweep": sweep.name,
        "documents": f"{sweep.documents:,}",
        "queries (train, dev)": f"{sweep.train:,}, {sweep.dev:,}",
        "trials": str(trials),
        "cache of a node": f"{cache / 1e9:,.1f} GB",
        "storage": f"{storage / 1e9:.1f} GB",
        "weights of each cell's best": f"{kept / 1e9:.0f} GB",
        "S3 requests": f"{trials * REQUESTS:,}",
        "memory of a process": f"{(PARAMETERS * 16 / 2**20 + START_MIB) / 1024:.1f} GiB",
        "a trial": f"{seconds / 60:,.0f} min",
        "hours at 8, 64 H100": ", ".join(hours),
    }


def main(argv: Sequence[str]) -> None:
    """Measures, computes and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--documents", type=int, default=3000)
    flags.add_argument("--queries", type=int, default=300)
    flags.add_argument("--json", type=Path, help="write the figures here")
    given = flags.parse_args(argv)
    law = laws(given.documents, given.queries)
    rows = [needs(sweep, law) for sweep in SWEEPS]
    print(
        f"a document {law.per_document:,.0f} bytes, a training query with its candidates "
        f"{law.per_query:,.0f}, a candidate in a run {law.per_candidate:.1f}; "
        f"a pair {law.tokens_per_pair:,.0f} encoder tokens\n"
    )
    print_table(rows)
    save(given.json, {"laws": law._asdict(), "rows": rows})


if __name__ == "__main__":
    main(sys.argv[1:])
