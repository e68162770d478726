"""How evenly a global batch is dealt to workers: by number (in turn), and by tokens as in training.

Shown are the tokens of the slowest worker over the mean, averaged over batches; the efficiency is
one over it, as all wait for the slowest.
The embedded collection with the groups that training draws, and documents with the lengths of MS
MARCO (`msmarco_shape`, each group two of them). `--measure N` also trains N steps of MaxP over such
documents with two gloo processes of a core each, first by number and then by tokens.
Run: python -m tests.benchmarks.dealing [--ranks 8,64] [--groups 2,4,8] [--measure 10]
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed as dist

from rank_core import distributed
from rank_core.chunking.batches import PairEncoder
from rank_core.chunking.inputs import Inputs
from rank_core.models.build import build_model
from rank_core.ranking.encode import Work
from rank_core.seeding import generator
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import (
    TrainingQuery,
    TrainingReader,
    training_groups,
    training_queries,
)
from rank_core.training.train import Streams, train
from tests.benchmarks.msmarco_shape import document_lengths
from tests.benchmarks.workload import Workload, parser, print_table, save, workload

STREAMS = Streams(init=1, order=2, negatives=3, dropout=4)
WORD_PIECES = 1.3  # of a word
NUM_DOCUMENTS = 20_000  # of MS MARCO's lengths
Deal = Callable[[Sequence[int], int], list[list[int]]]


def by_number(sizes: Sequence[int], num_workers: int) -> list[list[int]]:
    """The items of each worker, in turn."""
    return [list(range(len(sizes)))[rank::num_workers] for rank in range(num_workers)]


WAYS: dict[str, Deal] = {"by number": by_number, "by tokens": distributed.dealt}


def main(argv: Sequence[str]) -> None:
    """Computes, measures where asked, and prints."""
    flags = parser(__doc__ or "")
    flags.add_argument("--ranks", default="8,64")
    flags.add_argument("--groups", default="2,4,8", help="of a worker in a step")
    flags.add_argument("--measure", type=int, default=0, help="steps of two gloo processes")
    args = flags.parse_args(argv)
    work = workload(args.collection, args.size)
    config = TrialConfig().override(
        {"model.name": "maxp", "model.backbone": str(work.backbone.folder)}
    )
    drawn = {args.collection: _of_collection(work, config), "MS MARCO's lengths": _made(work)}
    rows = [
        _row(name, sizes, int(ranks), int(groups), args.repeats)
        for name, sizes in drawn.items()
        for ranks in args.ranks.split(",")
        for groups in args.groups.split(",")
    ]
    print_table(rows)
    figures: dict[str, object] = {"rows": rows}
    if args.measure:
        figures["measured"] = measured = _measured(work, config, args.measure)
        print()
        print_table(measured)
    save(args.json, figures)


def _of_collection(work: Workload, config: TrialConfig) -> Iterator[int]:
    """Tokens of the groups that training draws, exactly, as they are read."""
    inputs = Inputs(work.collection, work.backbone, work.tokens)
    queries = training_queries(inputs, config)
    pairs = PairEncoder(work.tokens, config.chunking, False, work.backbone)
    reader = TrainingReader.of(pairs, config.training, STREAMS.dropout)
    seeds = {"order_seed": STREAMS.order, "negatives_seed": STREAMS.negatives}
    for group in training_groups(queries, config.training.negatives, **seeds):
        yield sum(row.tokens for row in reader.rows(group))


class _Made:
    """{number: a document of this length}."""

    def __init__(self) -> None:
        self.lengths = (WORD_PIECES * document_lengths(NUM_DOCUMENTS)).astype(np.int64)

    def __getitem__(self, number: int) -> NDArray[np.int32]:
        return np.broadcast_to(np.int32(5), self.lengths[number])


def _made(work: Workload) -> Iterator[int]:
    documents: Any = _Made()
    pairs = PairEncoder(documents, TrialConfig().chunking, False, work.backbone)
    rng, query = generator(1, "dealing"), np.zeros(6, np.int32)
    while True:
        drawn: list[Any] = rng.integers(NUM_DOCUMENTS, size=2).tolist()
        yield sum(pairs.num_tokens(query, number) for number in drawn)


def _row(name: str, sizes: Iterator[int], ranks: int, groups: int, repeats: int) -> dict[str, str]:
    slowest: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(4 * repeats):
        batch = np.array(list(islice(sizes, ranks * groups)))
        for way, deal in WAYS.items():
            shares = [batch[items].sum() for items in deal(batch.tolist(), ranks)]
            slowest[way].append(max(shares) / np.mean(shares))
    row = {"documents": name, "ranks": str(ranks), "groups each": str(groups)}
    for way, ratios in slowest.items():
        mean = np.mean(ratios)
        row |= {f"slowest / mean, {way}": f"{mean:.2f}", f"efficiency, {way}": f"{1 / mean:.0%}"}
    return row


def _measured(work: Workload, config: TrialConfig, num_steps: int) -> list[dict[str, str]]:
    """What two processes need for a step."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_worker, (folder, work, config, num_steps), nprocs=2)
        measured = np.load(Path(folder, "seconds.npy"))
    return [
        {
            "way": way,
            "steps": str(num_steps),
            "s/step, median": f"{np.median(each[:, 0]):.2f}",
            "range": f"{each[:, 0].min():.2f}-{each[:, 0].max():.2f}",
            "processor time, slowest / mean": f"{each[:, 1].mean():.2f}",
        }
        for way, each in zip(WAYS, measured, strict=True)
    ]


def _worker(rank: int, folder: str, work: Workload, config: TrialConfig, num_steps: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    config = config.override({"training.num_epochs": 1000, "training.validate_every": 1})
    config = config.override({"training.batch_size": 8})
    seconds = [_seconds(work, config, deal, num_steps) for deal in WAYS.values()]
    if rank == 0:
        np.save(Path(folder, "seconds.npy"), seconds)
    dist.barrier()


def _seconds(work: Workload, config: TrialConfig, deal: Deal, num_steps: int) -> NDArray[Any]:
    """(wall seconds, and the slowest worker's processor seconds over the mean's) of each step."""
    documents: Any = _Made()
    model = build_model(config, work.backbone, init_seed=0)
    pairs = type(model).reader(config, work.backbone, documents)
    query, seconds = np.full(6, 5, np.int32), []
    queries = [
        TrainingQuery(f"q{i}", query, (2 * i,), (1,), ((2 * i + 1,),))  # type: ignore[arg-type]
        for i in range(100)
    ]
    kinds: dict[str, Any] = {"streams": STREAMS, "autocast": None, "work": Work()}
    with patch.object(distributed, "dealt", deal):
        steps = train(model, pairs, queries, config.training, **kinds)
        next(steps)  # a warm-up
        for _ in range(num_steps):
            start, used = time.perf_counter(), time.process_time()
            next(steps)
            used = time.process_time() - used
            each = distributed.gather(used)
            seconds.append((time.perf_counter() - start, max(each) / np.mean(each)))
    return np.array(seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
