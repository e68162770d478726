"""Times of what the product computes, for the check of speed and for the ladder."""

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import torch

from rank_core.distributed import GradientSums
from rank_core.ranking.encode import Work, score_documents
from rank_core.training.examples import TrainingReader, training_groups
from rank_core.training.micro_batch import TrainingStep
from rank_core.training.step_times import StepTimes
from rank_core.training.train import _update, initial_state
from tests.benchmarks.workload import Workload, encoder_flops, matrix_rate, peak_rate
from tests.gpu.work import STREAMS, Parts, queries

SECONDS, REPEATS = 2.0, 10  # of a measurement on a GPU: either is enough
Compute = Callable[[], Any]


def scoring(some: Parts, budget: int, autocast: torch.dtype | None, work: Work) -> Compute:
    """Scores all documents."""
    some.model.eval()
    kinds: dict[str, Any] = {"batch_tokens": budget, "autocast": autocast, "work": work}

    @torch.inference_mode()
    def score() -> None:
        score_documents(some.model, some.pairs, some.documents, **kinds)

    return score


def training(some: Parts, budget: int, autocast: torch.dtype | None, work: Work) -> Compute:
    """Takes an optimizer step on as many groups as the budget holds, one at least: the product's
    own, with the dropout and clipping of `some`."""
    model, settings = some.model.train(), some.config.training
    state = initial_state(model, settings, autocast)
    parameters = [parameter for _, parameter in model.trainable()]
    sums, times = GradientSums(parameters), StepTimes(some.model.device)
    reader = TrainingReader.of(some.pairs, settings, STREAMS.dropout)
    step = TrainingStep(model, reader, state.scaler, autocast, work, sums, tokens=budget)
    seeds = {"order_seed": STREAMS.order, "negatives_seed": STREAMS.negatives}
    drawn = training_groups(queries(texts=tuple(some.pairs.tokens)), settings.negatives, **seeds)
    groups = list(islice(drawn, 64))
    size = max(map(reader.num_tokens, groups))
    batch = groups[: max(1, budget // size)]

    def train() -> None:
        step.backward(batch, seed=1)
        _update(state, parameters, sums, settings, times)

    return train


def measured(
    kind: Callable[..., Compute], some: Parts, budget: int, autocast: torch.dtype
) -> tuple[dict[str, Any], Compute]:
    """Tokens/s and MFU of `scoring` or `training`, medians, with the range; and the computation.
    The first call, in which kernels are loaded and compiled, is told apart."""
    work = Work()
    compute = kind(some, budget, autocast, work)
    first, seconds = times_of(compute, some.model.device)
    calls = len(seconds) + 2
    tokens, backbone = work.tokens / calls, Workload(None, some.pairs.backbone, None)  # type: ignore[arg-type]
    flops = encoder_flops(backbone, work.tokens, work.inputs) / calls
    rate = peak_rate(autocast) or matrix_rate(autocast, 1)
    share = (3 if kind is training else 1) * flops / np.median(seconds) / rate
    each = np.array(
        [tokens / float(np.median(seconds)), tokens / max(seconds), tokens / min(seconds)]
    )
    middle, slowest, fastest = each.round().astype(int).tolist()
    figures = {"tokens/s": middle, "range": f"{slowest}-{fastest} in {len(seconds)}"}
    return figures | {"MFU": f"{share:.1%}", "first call s": round(first, 1)}, compute


def times_of(compute: Compute, device: torch.device) -> tuple[float, list[float]]:
    """(seconds of the first call; of each one after the second). On a CPU of one."""
    first, _ = _seconds(compute, device), _seconds(compute, device)
    later = [_seconds(compute, device)]
    while device.type == "cuda" and sum(later) < SECONDS and len(later) < REPEATS:
        later.append(_seconds(compute, device))
    return first, later


def _seconds(compute: Compute, device: torch.device) -> float:
    start = time.perf_counter()
    compute()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
