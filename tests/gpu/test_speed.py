"""How fast it scores and trains: figures, with bars far below what is expected."""

import time

import pytest
import torch

from rank_core.ranking.encode import Work, score_documents
from rank_core.training.optimizer import autocast_type, build_optimizer
from tests.benchmarks.workload import Workload, encoder_flops, matrix_rate, peak_rate
from tests.gpu.work import parts, tokens

pytestmark = pytest.mark.gpu

BERT_BASE, TINY = (12, 768, 12, 3072), (2, 64, 4, 256)
LONG = {"chunking.window": 150, "chunking.stride": 75, "chunking.max_document_tokens": 1500}
BUDGETS = (4096, 16_384, 65_536)
LEAST = 0.05
"""Of the data sheet's rate, at the largest budget: below it something else than the GPU is slow."""


@pytest.fixture(scope="module")
def load(build_standard, device, fake):
    """Whole documents of 1,500 tokens in MaxP over a BERT of base size; on no GPU a tiny one."""
    small = fake or device.type == "cpu"
    backbone = build_standard(*(TINY if small else BERT_BASE))
    texts = {f"d{i}": tokens(i, 1500) for i in range(2 if small else 64)}
    return backbone, texts


@pytest.mark.parametrize("training", [False, True], ids=["scoring", "training"])
@pytest.mark.parametrize("budget", BUDGETS)
def test_speed(budget, training, with_values, load, figures):
    """BERT-base, 150/75, computes at over 5% of the data sheet's rate

    Look at products and bandwidth above, then at launches and idle share: a busy host shows there.
    """
    backbone, texts = load
    some = parts("parade-attn" if training else "maxp", backbone, with_values, LONG, texts)
    autocast = autocast_type("auto", with_values) or torch.bfloat16
    repeats, work = (3 if with_values.type == "cuda" else 1), Work()
    compute = a_step(some, budget, autocast, work, training)
    compute()  # kernels are loaded and compiled
    vars(work).update(vars(Work()))
    seconds = seconds_of(compute, repeats, with_values)
    factor = 3 if training else 1
    flops = factor * encoder_flops(Workload(None, backbone, None), work.tokens, work.inputs)
    share = flops / seconds / (peak_rate(autocast) or matrix_rate(autocast, 1))
    figures |= {"tokens/s": round(work.tokens / seconds), "MFU": f"{share:.1%}"}
    if with_values.type == "cuda":
        figures |= profiled(compute)
        assert share > LEAST or budget < max(BUDGETS)


def a_step(some, budget, autocast, work, training):
    """A function that scores all documents or trains on as many as the budget holds."""
    kinds = {"batch_tokens": budget, "autocast": autocast, "work": work}
    if not training:
        some.model.eval()

        @torch.inference_mode()
        def score():
            score_documents(some.model, some.pairs, some.documents, **kinds).sum()

        return score
    some.model.train()
    optimizer = build_optimizer(some.model, some.config.training)
    size = sum(len(chunk) for chunk in some.documents[0])
    documents = some.documents[: max(1, budget // size)]

    def train():
        score_documents(some.model, some.pairs, documents, **kinds).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return train


def seconds_of(compute, repeats, device):
    """Seconds of so many repeats, the device's work included."""
    start = time.perf_counter()
    for _ in range(repeats):
        compute()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def profiled(compute):
    """Kernels of one repeat, and the share of its time in which none ran."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        compute()
        torch.cuda.synchronize()
    events = trace.events() or []
    kernels = [event.time_range for event in events if event.device_type == DeviceType.CUDA]
    if not kernels:
        return {"launches": "not traced"}
    wall = max(kernel.end for kernel in kernels) - min(kernel.start for kernel in kernels)
    idle = 1 - sum(kernel.elapsed_us() for kernel in kernels) / wall
    return {"launches": len(kernels), "idle": f"{max(0.0, idle):.0%}"}
