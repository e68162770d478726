"""Milliseconds of a host's core to lay out a batch for a GPU: rows of 161 tokens (a query of 8, a
window of 150), as one page-locked block, and as it was: padded rows, a loop over them, their
tokens, eight page-locked copies.

Both give an encoder the same tensors (tests/rank_core/chunking/test_encoder_input.py). torch keeps
page-locked memory to use it again; without a GPU, ordinary memory that is kept stands for it. Run:
python -m tests.benchmarks.layout [--rows 407,1600]
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rank_core.chunking import encoder_input
from rank_core.chunking.batches import Chunk
from rank_core.chunking.encoder_input import RowFormat, RowSize, lay_out
from rank_core.encoders.flat_rows import FlatRows, flat_rows
from tests.benchmarks.workload import show

QUERY, WINDOW = 8, 150
CHUNKS = 4  # of a document
BERT = RowFormat(before=101, between=102, behind=102, pad_id=0, has_segments=True)
GPU_TOKENS = 65_536  # of a batch on a GPU


class Padded(NamedTuple):
    """What was laid out before there were blocks."""

    input_ids_CL: Tensor
    attention_mask_CL: Tensor
    token_type_ids_CL: Tensor | None
    query_length_C: Tensor
    sizes: tuple[RowSize, ...]
    query_rows: tuple[int, ...]
    padded: bool
    flat: FlatRows


def padded_rows(chunks: Sequence[Chunk], form: RowFormat) -> Padded:
    """The rows of chunks, padded, and their tokens."""
    shape = (len(chunks), max(map(len, chunks)))
    ids = np.full(shape, form.pad_id, dtype=np.int64)
    mask, segments = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, (query, text) in enumerate(chunks):
        start = len(query) + 2
        end = start + len(text)
        ids[row, 0], ids[row, start - 1], ids[row, end] = form[:3]
        ids[row, 1 : start - 1], ids[row, start:end] = query, text
        mask[row, : end + 1] = 1
        segments[row, start : end + 1] = 1
    first: dict[bytes, int] = {}
    return Padded(
        torch.from_numpy(ids),
        torch.from_numpy(mask),
        torch.from_numpy(segments) if form.has_segments else None,
        torch.tensor([len(chunk.query) for chunk in chunks]),
        tuple(RowSize(len(chunk.query), len(chunk.text)) for chunk in chunks),
        tuple(first.setdefault(chunk.query.tobytes(), row) for row, chunk in enumerate(chunks)),
        min(map(len, chunks)) < shape[1],
        flat_rows(mask),
    )


_kept: dict[tuple[int, int], Tensor] = {}


def kept(size: int, number: int = 0) -> Tensor:
    """Page-locked memory for some numbers of int64, or what stands for it."""
    if torch.cuda.is_available():
        return torch.empty(size, dtype=torch.int64, pin_memory=True)
    if (size, number) not in _kept:
        _kept[size, number] = torch.empty(size, dtype=torch.int64)
    return _kept[size, number]


def kept_block(size: int) -> tuple[Tensor, NDArray[np.int64]]:
    """The same, also as an array."""
    block = kept(size)
    return block, block.numpy()


def before(chunks: Sequence[Chunk]) -> None:
    """Padded rows, whose tensors are copied one by one."""
    rows = padded_rows(chunks, BERT)
    tensors = [part for part in (*rows, *rows.flat) if isinstance(part, Tensor)]
    for number, tensor in enumerate(tensors):
        kept(tensor.numel(), number).copy_(tensor.view(-1))


def after(chunks: Sequence[Chunk]) -> None:
    """The block."""
    queries, texts = [chunk.query for chunk in chunks], [chunk.text for chunk in chunks]
    with mock.patch.object(encoder_input, "host_block", lambda size, _: kept_block(size)):
        lay_out(queries, texts, BERT)


def chunks_of(number: int) -> list[Chunk]:
    """Chunks of documents of random tokens, a few for each query."""
    rng = np.random.default_rng(0)
    queries = rng.integers(1000, 30_000, (1 + number // 100, QUERY)).astype(np.int32)
    texts = rng.integers(1000, 30_000, (number, WINDOW)).astype(np.int32)
    return [Chunk(queries[row // 100], text) for row, text in enumerate(texts)]


def milliseconds(way: Callable[[], object], repeats: int) -> float:
    """The median time of calls in this thread: other programs on the machine do not count. The
    first calls find no memory that they may use again."""
    times = []
    for _ in range(repeats + 2):
        start = time.thread_time()
        way()
        times.append(1000 * (time.thread_time() - start))
    return float(np.median(times[2:]))


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--rows", default="407,814,1600,1628", help="of a batch, comma-separated")
    flags.add_argument("--repeats", type=int, default=30)
    flags.add_argument("--json", type=Path, help="write the figures here")
    options = flags.parse_args(argv)
    figures = []
    torch.set_num_threads(1)
    for number in map(int, options.rows.split(",")):
        chunks = chunks_of(number)
        tokens = sum(map(len, chunks))
        old, new = (milliseconds(partial(way, chunks), options.repeats) for way in (before, after))
        figures.append(
            {
                "rows": str(number),
                "tokens": f"{tokens:,}",
                "padded, ms": f"{old:.2f}",
                "block, ms": f"{new:.2f}",
                "block, ms for 65,536 tokens": f"{new * GPU_TOKENS / tokens:.2f}",
                "ratio": f"{old / new:.1f}",
            }
        )
    show(figures, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
