"""The device computes what a CPU computes."""

import pytest
import torch

from rank_core.encoders import packed
from rank_core.machine import make_deterministic
from tests.gpu import sixteen_bits
from tests.gpu.sixteen_bits import CURVES, NUM_STEPS, RATE, SMOOTH
from tests.gpu.work import MODELS, difference, parts

pytestmark = pytest.mark.gpu

CPU = torch.device("cpu")
FP32 = 1e-4  # of the largest score, or of 1
SIXTEEN_BITS = {number: 5 * torch.finfo(number).eps for number in (torch.float16, torch.bfloat16)}
"""What rounding leaves of the same; on a CPU, over five heads of each model, bf16 left .038."""
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


def ways(device):
    """The layers of flat rows as the product has them, and without a compiler."""
    return ["default", "force_eager"] if device.type == "cuda" else ["default"]


@pytest.fixture
def sums_of_a_gpu(with_values):
    with sixteen_bits.sums_of_a_gpu(with_values):
        yield


def test_gradients_in_16_bits(with_values, standard, figures, sums_of_a_gpu):
    """gradients of flat rows in 16 bits are those of padded rows, and of fp32 on a CPU

    Set RANKSWEEP_FAST_PATHS=off for sweeps here, and report it. Per parameter the cosine is above
    .999 and the norm within 1%, compiled and not.
    """
    [number, *_] = number_types(with_values)
    wrong, flat = {}, 0
    for name in SMOOTH:
        exact = sixteen_bits.gradients(parts(name, standard, CPU), None)
        some = parts(name, standard, with_values)
        sixteen_bits.reads(some, flat=False)
        padded = sixteen_bits.gradients(some, number)
        for way in ways(with_values):
            some.model.zero_grad(set_to_none=True)
            flat += sixteen_bits.reads(some, flat=True)
            with torch.compiler.set_stance(way):
                found = sixteen_bits.gradients(some, number)
            for other, expected in (("fp32", exact), ("padded rows", padded)):
                if differs := sixteen_bits.wrong_gradients(found, expected):
                    wrong[f"{name} {way} against {other}"] = differs
    figures |= {"models": len(SMOOTH), "passes over flat rows": flat}
    figures["compiled layers"] = len({*packed._compiled.values()} - {packed._finish})
    assert not wrong, wrong


def test_dropout(with_values, figures):
    """dropout of flat rows drops a tenth, scales the rest, and passes gradients to the rest alone

    Set RANKSWEEP_FAST_PATHS=off for sweeps here, and report it.
    """
    [number, *_] = number_types(with_values)
    wrong = sixteen_bits.wrong_dropout(sixteen_bits.attention(with_values, number))
    for way in ways(with_values):
        with torch.compiler.set_stance(way):
            found = sixteen_bits.wrong_hidden_dropout(with_values, number)
        wrong |= {f"{part}, {way}": text for part, text in found.items()}
    figures["rate"] = RATE
    assert not wrong, wrong


def test_loss_curve_in_16_bits(with_values, standard, figures, sums_of_a_gpu):
    """20 steps of training over flat rows in 16 bits have the losses of padded rows

    Look at the 16-bit gradients above first. Set RANKSWEEP_FAST_PATHS=off for sweeps here, and
    report it.
    """
    [number, *_] = number_types(with_values)
    differences = {}
    for name in CURVES:
        curves = [
            sixteen_bits.losses(name, standard, with_values, flat=flat, autocast=number)
            for flat in (False, True)
        ]
        differences[name] = difference(*map(torch.tensor, curves[::-1])) / CURVES[name]
        assert len(set(curves[0])) > NUM_STEPS / 2, "a loss that stands still shows nothing"
    figures["limits"] = CURVES
    assert_within(1.0, differences, figures)


@pytest.fixture
def smooth():
    with sixteen_bits.without_steps():
        yield


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
def test_scores_in_16_bits(with_values, standard, figures, smooth):
    """every model's scores in fp16 (bf16) are those of fp32 and of padded rows, within .005 (.04)

    Run again with RANKSWEEP_FAST_PATHS=off: if that passes, keep it off and report it; otherwise
    set training.precision=fp32.
    """
    differences = {}
    for name in MODELS:
        there = parts(name, standard, with_values)
        exact = parts(name, standard, CPU).scores_of_definition()
        for number in number_types(with_values):
            found, padded = there.scores(number), there.scores_of_definition(number)
            both = difference(found, exact), difference(found, padded) / 2  # both are rounded
            differences[f"{name} {str(number)[6:]}"] = max(both) / SIXTEEN_BITS[number]
    figures["limits"] = {str(number)[6:]: f"{x:.1e}" for number, x in SIXTEEN_BITS.items()}
    assert_within(1.0, differences, figures)


def test_gradients(with_values, standard, figures):
    """gradients of batches of similar length are those of one batch, within 1e-4 in fp32

    Set RANKSWEEP_FAST_PATHS=off for sweeps here, and report it.
    """
    differences = {}
    for name in MODELS:
        there = parts(name, standard, with_values)
        there.model.train()  # without dropout; cuDNN differentiates no GRU in evaluation
        norms = []
        for score_B in (there.scores_of_definition(), there.scores()):
            weights = torch.linspace(-1, 1, len(score_B), device=score_B.device)
            (score_B * weights).sum().backward()
            grads = [p.grad.flatten() for _, p in there.model.trainable() if p.grad is not None]
            norms.append(torch.cat(grads))
            there.model.zero_grad(set_to_none=True)
        differences[name] = difference(norms[1], norms[0])
    assert_within(FP32, differences, figures)


def test_loss_curve(with_values, standard, figures):
    """20 steps of training in fp32 have a CPU's losses, within 1e-3

    Look at the gradients above first; if they are right, the optimizer's step is not.
    """
    differences = {}
    for name in ("maxp", "parade-transformer"):
        curves = [sixteen_bits.losses(name, standard, place) for place in (CPU, with_values)]
        differences[name] = difference(*map(torch.tensor, curves[::-1]))
        assert len(set(curves[0])) > NUM_STEPS / 2, "a loss that stands still shows nothing"
    assert_within(CURVE, differences, figures)
