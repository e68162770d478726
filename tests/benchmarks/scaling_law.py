"""What a document costs as it grows, and what candidates cost in memory.

Times MaxP scoring of documents of 1 to 60 chunks and fits a line; then scores 10 to 300
candidates and reads the peak memory of each.
Run: python -m tests.benchmarks.scaling_law [--size minilm] [--json FILE]
"""

import sys
import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rank_core.chunking.batches import PairEncoder
from rank_core.machine import peak_memory, reset_peak_memory, trial_device
from rank_core.models.build import build_model
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work
from rank_core.ranking.rerank import rerank
from rank_core.records import Run
from rank_core.settings.config import TrialConfig
from tests.benchmarks.workload import machine, median, parser, print_table, save, workload

WINDOW, STRIDE = 150, 75
CHUNKS = "1,2,4,8,12,16,20,30,40,50,60"
CANDIDATES = "10,30,100,300"
DOCUMENTS_AT_ONCE = 4  # of one length
MEMORY_CHUNKS = 4  # of a document of the memory test

Tokens = NDArray[np.int32]


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    words = parser(__doc__ or "")
    words.add_argument("--chunks", default=CHUNKS, help="of a document, with commas between")
    words.add_argument("--candidates", default=CANDIDATES, help="whose memory is read")
    flags = words.parse_args(argv)
    chunks = [int(number) for number in flags.chunks.split(",")]
    torch.set_num_threads(flags.threads)
    work = workload(flags.collection, flags.size)
    config = TrialConfig().override(
        {
            "model.name": "maxp",
            "model.backbone": str(work.backbone.folder),
            "chunking.window": WINDOW,
            "chunking.stride": STRIDE,
            "chunking.max_document_tokens": 10**6,
            "evaluation.batch_tokens": flags.batch_tokens,
        }
    )
    model = build_model(config, work.backbone, init_seed=0)
    text = np.concatenate([work.tokens[doc_id] for doc_id in list(work.tokens)[:200]])

    def score(documents: dict[str, Tokens]) -> Work:
        return _score(model, PairEncoder(documents, config.chunking, False, work.backbone), config)

    seconds = {
        n: _time(score, _documents(text, n, DOCUMENTS_AT_ONCE), flags.repeats) for n in chunks
    }
    per_document = {n: median(times) / DOCUMENTS_AT_ONCE for n, times in seconds.items()}
    slope, start, r2 = fit(list(per_document), list(per_document.values()))
    print(machine())
    print_table([{"chunks": f"{n}", "ms": f"{s * 1e3:.1f}"} for n, s in per_document.items()])
    print(f"{start * 1e3:.1f} ms + {slope * 1e3:.1f} ms a chunk, R2 = {r2:.4f}")
    memory = {}
    for number in map(int, flags.candidates.split(",")):
        reset_peak_memory()
        score(_documents(text, MEMORY_CHUNKS, number))
        memory[number] = peak_memory(trial_device()) / 2**20
    print_table([{"candidates": f"{n}", "peak MiB": f"{m:,.0f}"} for n, m in memory.items()])
    save(flags.json, {"seconds": per_document, "r2": r2, "peak_mib": memory})


def fit(x: list[int], y: list[float]) -> tuple[float, float, float]:
    """(slope, intercept, R2) of the least-squares line."""
    slope, start = np.polyfit(x, y, 1)
    residual = np.asarray(y) - (slope * np.asarray(x) + start)
    return float(slope), float(start), 1 - float(np.var(residual) / np.var(y))


def _documents(text: Tokens, num_chunks: int, number: int) -> dict[str, Tokens]:
    """Documents of exactly so many chunks, from the collection's own tokens."""
    length = WINDOW + (num_chunks - 1) * STRIDE
    rng = np.random.default_rng(num_chunks)
    starts = rng.integers(0, len(text) - length, number)
    return {f"d{i:05}": text[start : start + length] for i, start in enumerate(starts)}


def _time(score, documents: dict[str, Tokens], repeats: int) -> list[float]:  # type: ignore[no-untyped-def]
    score(documents)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        score(documents)
        seconds.append(time.perf_counter() - start)
    return seconds


def _score(model: Ranker, pairs: PairEncoder, config: TrialConfig) -> Work:
    work = Work()
    candidates: Run = {"q": dict.fromkeys(pairs.tokens, 0.0)}
    rerank(
        model,
        pairs,
        queries={"q": np.arange(5, 15, dtype=np.int32)},
        candidates=candidates,
        depth=10**9,
        batch_tokens=config.evaluation.batch_tokens,
        work=work,
    )
    return work


if __name__ == "__main__":
    main(sys.argv[1:])
