"""The device computes what a CPU computes."""

import pytest
import torch

from rank_core.machine import make_deterministic
from rank_core.ranking.encode import Work
from rank_core.training.train import train
from tests.gpu.work import MODELS, STREAMS, difference, parts, queries, tokens

pytestmark = pytest.mark.gpu

CPU = torch.device("cpu")
FP32, FP16_OR_BF16 = 1e-4, 5e-3  # of the largest score, or of 1
NUM_STEPS = 20
CURVE = 1e-3  # an optimizer step amplifies what rounding leaves


@pytest.fixture(scope="module", autouse=True)
def exact():
    make_deterministic(False)


def number_types(device):
    if device.type == "cpu":
        return [torch.bfloat16]
    real = torch.cuda.is_bf16_supported(including_emulation=False)
    return [torch.bfloat16, torch.float16] if real else [torch.float16]


def assert_within(limit, differences, figures):
    """Reports the largest difference; fails for those above the limit, and for none at all."""
    name = max(differences, key=differences.get)
    figures |= {"models": len(differences), "largest difference": f"{differences[name]:.1e}"}
    figures["in"] = name
    wrong = {name: f"{x:.1e}" for name, x in differences.items() if not x <= limit}
    assert not wrong, f"above {limit}: {wrong}"


@torch.inference_mode()
def test_scores_in_fp32(with_values, standard, figures):
    """every model's fp32 scores are those of a CPU, within 1e-4

    Run again with RANKSWEEP_FAST_PATHS=off: if that passes, keep it off and report it.
    """
    differences = {}
    for name in MODELS:
        on_cpu, there = (parts(name, standard, place) for place in (CPU, with_values))
        differences[name] = difference(there.scores(), on_cpu.scores_of_definition())
    assert_within(FP32, differences, figures)


@torch.inference_mode()
def test_scores_in_16_bits(with_values, standard, figures):
    """every model's scores in bf16 and fp16 are those of fp32, within 5e-3

    Run again with RANKSWEEP_FAST_PATHS=off: if that passes, keep it off and report it; otherwise
    set training.precision=fp32.
    """
    differences = {}
    for name in MODELS:
        there = parts(name, standard, with_values)
        exact = parts(name, standard, CPU).scores_of_definition()
        for number in number_types(with_values):
            differences[f"{name} {str(number)[6:]}"] = difference(there.scores(number), exact)
    assert_within(FP16_OR_BF16, differences, figures)


@torch.inference_mode()
def test_fast_path(with_values, standard, figures):
    """the fast path scores in 16 bits as the padded batch does, within 1e-2

    Set RANKSWEEP_FAST_PATHS=off for sweeps here, and report it.
    """
    differences = {}
    for name in MODELS:
        there = parts(name, standard, with_values)
        for number in number_types(with_values):
            expected = there.scores_of_definition(number)
            differences[f"{name} {str(number)[6:]}"] = difference(there.scores(number), expected)
    assert_within(2 * FP16_OR_BF16, differences, figures)  # both are rounded


def test_gradients(with_values, standard, figures):
    """the fast path's gradients in training are those of the padded batch, within 1e-4 in fp32

    Set RANKSWEEP_FAST_PATHS=off for sweeps here, and report it.
    """
    differences = {}
    for name in MODELS:
        there = parts(name, standard, with_values)
        norms = []
        for score_B in (there.scores_of_definition(), there.scores()):
            weights = torch.linspace(-1, 1, len(score_B), device=score_B.device)
            (score_B * weights).sum().backward()
            grads = [p.grad.flatten() for _, p in there.model.trainable() if p.grad is not None]
            norms.append(torch.cat(grads))
            there.model.zero_grad(set_to_none=True)
        differences[name] = difference(norms[1], norms[0])
    assert_within(FP32, differences, figures)


@torch.inference_mode()
def test_ties(with_values, standard, figures):
    """16-bit scores of different documents do not tie

    Evaluate with training.precision=fp32: equal scores are ordered by document id.
    """
    texts = {f"d{i}": tokens(i, 60) for i in range(300)}
    ties = 0
    for number in number_types(with_values):
        score_B = parts("maxp", standard, with_values, texts=texts).scores(number, 8192)
        ties = max(ties, len(texts) - len(score_B.unique()))
    figures |= {"documents": len(texts), "ties": ties}
    assert ties <= 0.01 * len(texts)


def test_loss_curve(with_values, standard, figures):
    """20 steps of training in fp32 have a CPU's losses, within 1e-3

    Look at the gradients above first; if they are right, the optimizer's step is not.
    """
    differences = {}
    for name in ("maxp", "parade-transformer"):
        curves = [curve(name, standard, device) for device in (CPU, with_values)]
        differences[name] = difference(*map(torch.tensor, curves[::-1]))
        assert len(set(curves[0])) > NUM_STEPS / 2, "a loss that stands still shows nothing"
    assert_within(CURVE, differences, figures)


def curve(name, backbone, device):
    settings = {"training.max_steps": NUM_STEPS, "training.num_epochs": 40}
    settings |= {"training.batch_size": 4, "training.micro_batch_tokens": 500}
    some = parts(name, backbone, device, settings)
    training = some.config.training
    records = train(
        some.model, some.pairs, queries(), training, streams=STREAMS, autocast=None, work=Work()
    )
    return [point.loss for record in records for point in record.curve]
