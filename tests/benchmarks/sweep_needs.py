"""What a sweep needs: disk, requests, memory, preparation and GPU-hours, from measured laws.

Collections with MS MARCO's shape are prepared at three small sizes, which gives the bytes of the
cache for each document and for each training query with 100 candidates, and the processor time for
each document; a run that is written gives the storage of a trial. GPU-hours are those of a
bert-base MaxP (150/75, all chunks, one epoch, a negative for each relevant document, validated
once), or of the configurations of the sweep in docs/cluster.md, at the MFU that
`tests.benchmarks.modelled_mfu` models. A checkpoint has weights and two moments; counted are one,
one being written, and as much again for the best weights. Requests of S3 are those counted in a
sweep on moto's server (`tests/e2e/test_s3_storage.py` bounds them); memory is that of a trial's
process, beside a bert-base in fp32 with its gradients and two moments.
Run:
python -m tests.benchmarks.sweep_needs [--documents 3000] [--queries 300] [--json FILE]
"""

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rank_core.chunking.inputs import Inputs, load_inputs
from rank_core.data.trec import write_run
from rank_core.seeding import generator
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import prepare
from sweeps.plan.trial_cost import chunk_statistics
from tests.benchmarks.modelled_mfu import LENGTH, model_flops
from tests.benchmarks.msmarco_shape import Shape, texts_of, write_shape
from tests.benchmarks.workload import PEAKS, print_table, random_backbone, save

MFU = {  # modelled_mfu: flat rows, 65,536 tokens a call; +-30%
    "H100": {"scoring": 0.38, "training": 0.33},
    "A100": {"scoring": 0.48, "training": 0.43},
}
PARAMETERS = 110e6
REQUESTS = 45  # of S3, a trial with its reports and files
START_MIB = 60  # private memory of a trial beside its model, as once measured
AT_A_TIME = 4  # trials
DOWNLOADS = 8.9e9  # of MS MARCO, in ir_datasets
ENVIRONMENT = 6.1e9  # `.[sweep]` with PyPI's CUDA build of torch 2.13: `du -sm .venv`
MAXP = (("maxp", 150, 75),)  # model, window, stride
OF_CLUSTER = (
    ("firstp", 477, 477),
    *(("maxp", window, stride) for window in (150, 300) for stride in (75, 150)),
)
Chunked = tuple[tuple[str, int, int], ...]


class Sweep(NamedTuple):
    """A sweep; `documents` are those of the collection."""

    name: str
    documents: int
    train: int  # queries
    dev: int
    cells: int = 20
    seeds: int = 5
    chunked: Chunked = MAXP
    downloads: float = DOWNLOADS


SWEEPS = (
    Sweep("a company's pages", 100_000, 3_000, 500, downloads=0),
    Sweep("MS MARCO, 30 k queries", 3_213_835, 30_000, 500),
    Sweep("MS MARCO, all", 3_213_835, 367_013, 5_193),
    Sweep("the sweep above", 3_213_835, 367_013, 5_193, cells=5, chunked=OF_CLUSTER),
)
TEST, DEPTH = 43, 100


class Prepared(NamedTuple):
    """Bytes of a cache after the preparation, its processor seconds, and encoder tokens of a pair
    by configurations."""

    size: float
    seconds: float
    tokens: dict[Chunked, float]


class Laws(NamedTuple):
    """Bytes of the cache, processor seconds, and encoder tokens of a pair."""

    per_document: float
    per_query: float  # of training, with its candidates
    document_seconds: float
    per_candidate: float  # of a run in the storage
    tokens_per_pair: dict[Chunked, float]


def laws(documents: int, queries: int) -> Laws:
    """Measured: the preparation at a size, with twice the documents, with twice the queries."""
    shape = Shape(documents, queries, dev=10, candidates=min(100, documents // 2))
    once = _prepared(shape)
    with_documents = _prepared(shape._replace(documents=2 * documents))
    with_queries = _prepared(shape._replace(train=2 * queries))
    return Laws(
        (with_documents.size - once.size) / documents,
        (with_queries.size - once.size) / queries,
        (with_documents.seconds - once.seconds) / documents,
        _run_bytes(),
        with_documents.tokens,
    )


def _prepared(shape: Shape) -> Prepared:
    with tempfile.TemporaryDirectory() as home:
        cache = Path(home) / "cache"
        os.environ["RANKSWEEP_CACHE"] = str(cache)
        collection = str(write_shape(Path(home) / "made", shape))
        texts = list(islice(texts_of(shape, seed=1), 200))
        backbone = str(random_backbone(Path(home) / "backbone", texts, "tiny"))
        config = TrialConfig().override({"collection": collection, "model.backbone": backbone})
        before = _processor_seconds()
        prepare(config)
        seconds = _processor_seconds() - before
        size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
        inputs = load_inputs(collection, backbone)
        tokens = {
            chunked: fmean(_tokens(config, inputs, *each) for each in chunked)
            for chunked in (MAXP, OF_CLUSTER)
        }
        return Prepared(size, seconds, tokens)


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _tokens(config: TrialConfig, inputs: Inputs, model: str, window: int, stride: int) -> float:
    chunking = {"chunking.window": window, "chunking.stride": stride}
    cut = config.override({"model.name": model, **chunking})
    return chunk_statistics(cut, inputs).tokens_per_document


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
    """The needs of a sweep."""
    trials = sweep.cells * sweep.seeds
    scored = (sweep.dev + TEST) * DEPTH
    pairs = {"training": 3 * 2 * sweep.train, "scoring": scored}
    flops_per_pair = law.tokens_per_pair[sweep.chunked] * model_flops("bert-base", 1) / LENGTH
    seconds = {
        gpu: sum(pairs[phase] * flops_per_pair / (mfu[phase] * PEAKS[gpu]) for phase in pairs)
        for gpu, mfu in MFU.items()
    }
    cache = law.per_document * sweep.documents + law.per_query * sweep.train
    preparation = law.document_seconds * sweep.documents
    storage = trials * scored * law.per_candidate
    kept = sweep.cells * PARAMETERS * 4
    checkpoints = 3 * PARAMETERS * 12  # of a running trial
    disk = ENVIRONMENT + sweep.downloads + cache + storage + kept + AT_A_TIME * checkpoints
    hours = [f"{seconds['H100'] * -(-trials // gpus) / 3600:,.1f}" for gpus in (4, 8, 64)]
    return {
        "sweep": sweep.name,
        "documents": f"{sweep.documents:,}",
        "queries (train, dev)": f"{sweep.train:,}, {sweep.dev:,}",
        "trials": str(trials),
        "GPU-hours on H100, A100 (+-30%)": ", ".join(
            f"{trials * each / 3600:,.1f}" for each in seconds.values()
        ),
        "a trial on an H100 (+-30%)": f"{seconds['H100'] / 60:,.0f} min",
        "hours on 4, 8, 64 H100 (+-30%)": ", ".join(hours),
        "core-hours of `--prepare`": f"{preparation / 3600:.1f}",
        "memory of a process": f"{(PARAMETERS * 16 / 2**20 + START_MIB) / 1024:.1f} GiB",
        "cache of a node": f"{cache / 1e9:,.1f} GB",
        "downloads": f"{sweep.downloads / 1e9:.1f} GB",
        "results": f"{storage / 1e9:.1f} GB",
        "weights of each cell's best": f"{kept / 1e9:.0f} GB",
        "checkpoints of a running trial": f"{checkpoints / 1e9:.1f} GB",
        f"all disk, {AT_A_TIME} trials at a time": f"{disk / 1e9:,.0f} GB",
        "S3 requests": f"{trials * REQUESTS:,}",
    }


def main(argv: Sequence[str]) -> None:
    """Measures, computes and prints."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--documents", type=int, default=3000)
    flags.add_argument("--queries", type=int, default=300)
    flags.add_argument("--json", type=Path, help="write the figures here")
    args = flags.parse_args(argv)
    law = laws(args.documents, args.queries)
    rows = [needs(sweep, law) for sweep in SWEEPS]
    print(
        f"a document {law.per_document:,.0f} bytes, a training query with its candidates "
        f"{law.per_query:,.0f}, a candidate in a run {law.per_candidate:.1f}; prepared in "
        f"{1e3 * law.document_seconds:.1f} processor-ms a document; "
        f"a pair {law.tokens_per_pair[MAXP]:,.0f} encoder tokens\n"
    )
    print_table([{"": need} | {row["sweep"]: row[need] for row in rows} for need in rows[0]][1:])
    save(
        args.json,
        {"laws": {**law._asdict(), "tokens_per_pair": law.tokens_per_pair[MAXP]}, "rows": rows},
    )


if __name__ == "__main__":
    main(sys.argv[1:])
