"""Training speed on real documents: ours in fp32 and bf16, sentence-transformers' trainer, a plain
loop, and the papers' policy. All train turn by turn in one process; ratios are of medians.

First FirstP beside CrossEncoderTrainer, by its defaults and in bf16 (`tests.benchmarks.trainer`).
Then PARADE-Attn (150/75) on the same groups with the same effective batch beside the loops; at last
ours and the plain loop train side by side in fp32 without dropout, and their loss curves are
compared.
Run: python -m tests.benchmarks.training [--collection DIR] [--size minilm] [--json FILE]
"""

import copy
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

import torch

from rank_core.chunking.batches import PairEncoder
from rank_core.chunking.inputs import Inputs
from rank_core.machine import peak_memory, reset_peak_memory, trial_device
from rank_core.models.build import build_model
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import (
    TrainingGroup,
    TrainingQuery,
    training_groups,
    training_queries,
)
from rank_core.training.losses import pairwise_margin
from rank_core.training.optimizer import build_optimizer
from rank_core.training.train import train
from tests.benchmarks import trainer
from tests.benchmarks.papers_policy import padded_scores, untouched
from tests.benchmarks.trainer import STREAMS
from tests.benchmarks.workload import (
    Workload,
    encoder_flops,
    machine,
    parser,
    print_rates,
    print_table,
    save,
    shares,
    turns,
    workload,
)

NUM_QUERIES = 200
PAIRS, STEPS = {"cpu": "32", "cuda": "32,512"}, {"cpu": 6, "cuda": 60}


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    device = trial_device().type
    add = (words := parser(__doc__ or "")).add_argument
    add("--batch-size", type=int, default=4, help="groups of a step of the first table")
    add("--dropout", type=float, default=0.1)
    add("--curve-steps", type=int, default=20)
    add("--pairs", default=PAIRS[device], help=f"of a step beside {trainer.PEER}")
    add("--steps", type=int, default=STEPS[device], help="of a training beside it")
    add("--only", choices=("loops", "trainer"), help="one of the two parts")
    options = words.parse_args(argv)
    if options.steps < 2:
        words.error("--steps must be at least 2: the first ones are not timed")
    torch.set_num_threads(options.threads)
    work = workload(options.collection, options.size)
    print(machine())
    figures: dict[str, Any] = {}
    if options.only != "loops":
        _beside_trainer(work, options, figures)
    if options.only != "trainer":
        _beside_loops(work, options, figures)


def _beside_trainer(work: Workload, options: Namespace, figures: dict[str, Any]) -> None:
    """FirstP beside CrossEncoderTrainer; the figures are written after each table."""
    if lacking := trainer.missing():
        figures["missing"] = lacking
        print(f"{trainer.PEER} is not measured: {', '.join(lacking)} not installed")
    figures["trainer"] = {}
    for num_pairs in map(int, options.pairs.split(",")):
        training = trainer.Training.of(work, num_pairs, options.steps, options.dropout)
        rows, seconds = trainer.table(training, options.repeats)
        timed = training.steps - training.first
        print(f"\nFirstP, {num_pairs} pairs a step, {timed} steps, dropout {options.dropout}\n")
        print_table(rows)
        figures["trainer"][num_pairs] = {"steps": timed, "rows": rows, "seconds": seconds}
        save(options.json, figures)


def _beside_loops(work: Workload, options: Namespace, figures: dict[str, Any]) -> None:
    """PARADE-Attn beside a plain loop and the papers' policy, and the losses of ours and of the
    plain loop."""
    config = TrialConfig().override(
        {
            "model.name": "parade-attn",
            "model.backbone": str(work.backbone.folder),
            "model.dropout": options.dropout,
            "training.batch_size": options.batch_size,
            "training.validate_every": 1,
            "training.num_epochs": 1000,
            "training.warmup": 0.0,
        }
    )
    rows, seconds = _speed(config, work, options.repeats)
    print(f"\nPARADE-Attn, {options.batch_size} groups a step, dropout {options.dropout}\n")
    print_rates(options.repeats)
    print_table(rows)
    curves = _curves(config, work, options.curve_steps)
    gap = max(abs(a - b) for a, b in zip(*curves, strict=True))
    print(f"loss curves over {options.curve_steps} steps, fp32: largest difference {gap:.1e}")
    figures |= {"rows": rows, "seconds": seconds, "curves": curves, "gap": gap}
    save(options.json, figures)


def _speed(
    config: TrialConfig, work: Workload, repeats: int
) -> tuple[list[dict[str, str]], dict[str, list[float]]]:
    """The table and the seconds of each step."""
    counts = {name: Work() for name in ("ours fp32", "ours bf16")}
    systems = {
        "papers' policy fp32": _padded(config, work),
        "plain loop fp32": _plain(config, work),
        "ours fp32": _ours(config, work, None, counts["ours fp32"]),
        "ours bf16": _ours(config, work, torch.bfloat16, counts["ours bf16"]),
    }
    memory = {}
    for name, system in systems.items():  # a warm-up step
        reset_peak_memory()
        next(system)
        memory[name] = peak_memory(trial_device())
    seconds = turns({name: partial(next, system) for name, system in systems.items()}, repeats)
    steps = repeats + 1
    tokens = counts["ours fp32"].tokens / steps
    flops = 3 * encoder_flops(work, counts["ours fp32"].tokens, counts["ours fp32"].inputs) / steps
    base = median(seconds["papers' policy fp32"])
    rows = []
    for name, times in seconds.items():
        dtype = torch.bfloat16 if "bf16" in name else torch.float32
        padding = counts.get(name)
        rows.append(
            {
                "system": name,
                "s/step": f"{median(times):.2f}",
                "real tokens/s": f"{tokens / median(times):,.0f}",
                "ratio": f"{base / median(times):.2f}",
                "padding": f"{padding.padding_share:.1%}" if padding else "",
                **shares(flops / median(times), dtype, repeats),
                "peak memory": f"{memory[name] / 2**30:.1f} GiB",
            }
        )
    return rows, seconds


def _start(config: TrialConfig, work: Workload) -> tuple[Ranker, PairEncoder, list[TrainingQuery]]:
    model = build_model(config, work.backbone, init_seed=0).to(trial_device())
    queries = training_queries(Inputs(work.collection, work.backbone, work.tokens), config)[
        :NUM_QUERIES
    ]
    pairs = type(model).reader(config, work.backbone, work.tokens)
    return model, pairs, queries


def _ours(
    config: TrialConfig, work: Workload, autocast: torch.dtype | None, count: Work
) -> Iterator[float]:
    """The product's own loop: the loss of each step."""
    model, pairs, queries = _start(config, work)
    for record in train(
        model,
        pairs,
        queries,
        config.training,
        streams=STREAMS,
        autocast=autocast,
        work=count,
    ):
        yield record.curve[-1].loss


def _plain(config: TrialConfig, work: Workload) -> Iterator[float]:
    """A group at a time, its chunks padded to their longest, an encoder that nobody has tuned."""
    tuned, pairs, queries = _start(config, work)
    model = untouched(tuned, work.backbone)

    def scores(group: TrainingGroup) -> torch.Tensor:
        documents = [pairs.chunks(group.query, d) for d in group.documents]
        return model(pairs.collate(documents).to(model.device))

    yield from _loop(model, queries, config, scores)


def _padded(config: TrialConfig, work: Workload) -> Iterator[float]:
    """The same with everything padded to its limit."""
    tuned, _, queries = _start(config, work)
    model = untouched(tuned, work.backbone)

    def scores(group: TrainingGroup) -> torch.Tensor:
        documents = [work.tokens[doc_id] for doc_id in group.documents]
        return padded_scores(model, group.query, documents, config.chunking, work.backbone)

    yield from _loop(model, queries, config, scores)


def _loop(
    model: Ranker,
    queries: list[TrainingQuery],
    config: TrialConfig,
    scores: Callable[[TrainingGroup], torch.Tensor],
) -> Iterator[float]:
    """The loss of each step of a plain training loop in fp32."""
    training = config.training
    rates = [
        {"params": group["params"], "lr": group["peak_lr"]}
        for group in build_optimizer(model, training).param_groups
    ]
    optimizer = torch.optim.AdamW(rates, weight_decay=training.weight_decay)
    stream = training_groups(queries, 1, order_seed=STREAMS.order, negatives_seed=STREAMS.negatives)
    model.train()
    while True:
        total = 0.0
        for group in islice(stream, training.batch_size):
            loss = pairwise_margin(scores(group).view(1, -1), training)
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.gradient_clip)
        optimizer.step()
        optimizer.zero_grad()
        yield total / training.batch_size


def _curves(config: TrialConfig, work: Workload, num_steps: int) -> list[list[float]]:
    """Losses of ours and of the plain loop, in fp32 without dropout."""
    exact = copy.deepcopy(config).override({"model.dropout": 0.0, "training.batch_size": 1})
    return [
        list(islice(losses, num_steps))
        for losses in (_ours(exact, work, None, Work()), _plain(exact, work))
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
