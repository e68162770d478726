"""The training of sentence-transformers' CrossEncoderTrainer beside ours: the same pairs, weights,
loss, batch, dropout and clipping, AdamW in both.

Both train a FirstP by cross-entropy on the first windows of the same groups. The trainer draws them
in an order of its own, logs nothing and saves nothing. A repeat is a new training; what is timed is
its steps after a third of them, in which kernels are loaded and compiled.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from statistics import median
from typing import Any

import torch
from transformers import TrainerCallback

from rank_core.chunking.batches import PairEncoder
from rank_core.chunking.inputs import Inputs
from rank_core.encoders.backbones import load_tokenizer
from rank_core.machine import peak_memory, release_memory, reset_peak_memory, trial_device
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import training_groups, training_queries
from rank_core.training.train import Streams, train
from tests.benchmarks.scoring import CUT, compute_ours, write_cross_encoder
from tests.benchmarks.workload import Workload, wait_for_device

STREAMS = Streams(init=1, order=2, negatives=3, dropout=4)
NEEDED = ("sentence_transformers", "accelerate", "datasets")
PEER = "CrossEncoderTrainer"


def missing() -> list[str]:
    """The libraries of the peer that are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


@dataclass(frozen=True)
class Training:
    """What both train."""

    config: TrialConfig
    work: Workload
    steps: int

    @classmethod
    def of(cls, work: Workload, num_pairs: int, steps: int, dropout: float) -> "Training":
        """Steps of so many pairs: half of them relevant."""
        settings = CUT | {
            "model.name": "firstp",
            "model.backbone": str(work.backbone.folder),
            "model.dropout": dropout,
            "training.loss": "cross-entropy",
            "training.batch_size": max(1, num_pairs // 2),
            "training.num_epochs": 100_000,
            "training.max_steps": steps,
            "training.validate_every": steps,
        }
        return cls(TrialConfig().override(settings), work, steps)

    @property
    def first(self) -> int:
        """The steps before those that are timed."""
        return max(1, self.steps // 3)

    @property
    def queries(self) -> Any:
        """The training queries."""
        work = self.work
        return training_queries(Inputs(work.collection, work.backbone, work.tokens), self.config)

    @property
    def reader(self) -> PairEncoder:
        """Reads the first window of a document."""
        kind = model_class(self.config.model.name)
        return kind.reader(self.config, self.work.backbone, self.work.tokens)

    def model(self) -> Ranker:
        """The model before the first step."""
        return build_model(self.config, self.work.backbone, init_seed=0).to(trial_device())

    def pairs(self) -> list[dict[str, Any]]:
        """The texts and labels of all steps, a group's after each other."""
        tokenizer = load_tokenizer(self.work.backbone.folder)
        seeds = {"order_seed": STREAMS.order, "negatives_seed": STREAMS.negatives}
        reader = self.reader
        stream, rows = training_groups(self.queries, 1, **seeds), []
        for group in islice(stream, self.steps * self.config.training.batch_size):
            for doc_id in group.documents:
                [chunk] = reader.chunks(group.query, doc_id)
                query, text = (tokenizer.decode(part.tolist()) for part in chunk)
                label = float(doc_id == group.positive)
                rows.append({"query": query, "document": text, "label": label})
        return rows


class Clock(TrainerCallback):
    """The seconds of a training's steps after the first few, and the mean loss."""

    def __init__(self, first: int, last: int) -> None:
        self.at = {first: 0.0, last: 0.0}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Takes the time."""
        self.tick(state.global_step)

    def tick(self, step: int) -> None:
        """Takes the time after a step."""
        if step in self.at:
            wait_for_device()
            self.at[step] = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Of the steps in between."""
        first, last = self.at.values()
        return last - first


def ours(training: Training, autocast: torch.dtype | None, work: Work) -> tuple[Clock, list[float]]:
    """Our training; its losses, of pairs."""
    model, config = training.model(), training.config
    clock, losses = Clock(training.first, training.steps), []
    kinds: dict[str, Any] = {"streams": STREAMS, "autocast": autocast, "work": work}
    kinds |= {"pause": lambda step: step in clock.at}
    for record in train(model, training.reader, training.queries, config.training, **kinds):
        clock.tick(record.step)
        losses += [point.loss / 2 for point in record.curve]  # a group has two pairs
    return clock, losses


def theirs(training: Training, dataset: Any, bf16: bool) -> tuple[Clock, float]:
    """The peer's training; its mean loss."""
    from sentence_transformers.cross_encoder import (
        CrossEncoder,
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    folder = write_cross_encoder(training.model(), training.work.backbone)
    encoder = CrossEncoder(str(folder), device=str(trial_device()))
    compute_ours(encoder)
    clock = Clock(training.first, training.steps)
    with tempfile.TemporaryDirectory(prefix="ranksweep-trainer-") as output:
        trainer = CrossEncoderTrainer(
            model=encoder,
            args=CrossEncoderTrainingArguments(
                output_dir=output,
                num_train_epochs=1,
                per_device_train_batch_size=2 * training.config.training.batch_size,
                bf16=bf16,
                use_cpu=trial_device().type == "cpu",
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=dataset,
            loss=BinaryCrossEntropyLoss(encoder),
            callbacks=[clock],
        )
        return clock, trainer.train().training_loss


def table(training: Training, repeats: int) -> tuple[list[dict[str, str]], dict[str, list[float]]]:
    """The table, and the seconds of each repeat, turn by turn."""
    count = Work()
    systems: dict[str, Callable[[], float]] = {}
    if not missing():
        from datasets import Dataset

        dataset = Dataset.from_list(training.pairs())
        systems[PEER] = lambda: theirs(training, dataset, False)[0].seconds
        systems[f"{PEER} bf16"] = lambda: theirs(training, dataset, True)[0].seconds
    systems["ours fp32"] = lambda: ours(training, None, count)[0].seconds
    systems["ours bf16"] = lambda: ours(training, torch.bfloat16, Work())[0].seconds
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    memory = dict.fromkeys(systems, 0)
    for _ in range(repeats):
        for name, system in systems.items():
            reset_peak_memory()
            seconds[name].append(system())
            memory[name] = peak_memory(trial_device())
            release_memory()
            print(f"{name}: {seconds[name][-1]:.1f} s", file=sys.stderr, flush=True)
    tokens = count.tokens / repeats / training.steps
    return [_row(training, n, t, seconds, tokens, memory[n]) for n, t in seconds.items()], seconds


def _row(
    training: Training,
    name: str,
    times: list[float],
    seconds: dict[str, list[float]],
    tokens: float,
    memory: int,
) -> dict[str, str]:
    steps = training.steps - training.first
    fastest, slowest = (steps / of(times) for of in (min, max))
    base = next(iter(seconds.values()))
    return {
        "system": name,
        "steps/s": f"{steps / median(times):.2f}",
        "range": f"{slowest:.2f}-{fastest:.2f} in {len(times)}",
        "tokens/s": f"{tokens * steps / median(times):,.0f}",
        "ratio": f"{median(base) / median(times):.2f}",
        "peak memory": f"{memory / 2**30:.1f} GiB",
    }
