"""Every model gives the same scores and gradients whether its encoder reads padded rows or one flat
row of tokens; on a CPU, where attention computes the rows of a flat row one by one."""

import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from rank_core.encoders.backbones import resolve_backbone
from rank_core.models import model_class
from rank_core.testing.laws import tokens
from tests.contracts.test_every_backbone import backbones  # noqa: F401
from tests.gpu.work import MODELS, parts

QUERY = tokens(0, 6, largest=50)
DOCUMENTS = {f"d{size}": tokens(size, size, largest=50) for size in (0, 1, 2, 13, 20, 34, 55, 90)}


def built(name, backbone, **settings):
    some = parts(name, backbone, torch.device("cpu"), settings, DOCUMENTS)
    some.model.train()
    return replace(some, documents=[some.pairs.chunks(QUERY, doc_id) for doc_id in DOCUMENTS])


def gradients_of(model, score_B):
    """The gradient of every parameter, of a weighted mean of the scores."""
    model.zero_grad(set_to_none=True)
    loss = (score_B * torch.linspace(-1, 1, len(score_B))).mean()
    (loss + (model.extra_loss or 0)).backward()
    model.extra_loss = None
    return {name: p.grad for name, p in model.trainable() if p.grad is not None}


def both_ways(name, backbone, **settings):
    """(scores, gradients) by `Ranker.forward` over padded rows, and over flat rows in batches."""
    some = built(name, backbone, **settings)
    ways = []
    for flat in (False, True):
        some.read(flat=flat)
        assert some.model.packs(None) == (flat and model_class(name).takes_flat_rows)
        torch.manual_seed(1)
        score_B = some.scores(batch_tokens=300) if flat else some.scores_of_definition()
        ways.append((score_B.detach(), gradients_of(some.model, score_B)))
    return ways


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in sorted(MODELS)),
        ("maxp", {"model.pool": "mean"}),
        ("maxp", {"model.pool": "last"}),
        ("parade-avg", {"model.quirks": ("unmasked-chunks",)}),  # padding within rows
        ("parade-late-interaction", {"model.quirks": ("unmasked-chunks",)}),
    ],
)
def test_scores_and_gradients_are_those_of_padded_rows(name, settings, backbone):
    (padded_B, expected), (flat_B, gradients) = both_ways(name, backbone, **settings)
    # A bi-encoder scales its cosines, and with them their rounding, by 100.
    assert_close(flat_B, padded_B, atol=1e-5, rtol=1e-6)
    assert set(gradients) == set(expected)
    for parameter, gradient in gradients.items():
        assert_close(gradient, expected[parameter], atol=1e-4, rtol=0, msg=parameter)


def test_padding_within_a_row_has_no_position_in_a_roberta(backbones):  # noqa: F811
    backbone = backbones("roberta")
    both = both_ways("parade-avg", backbone, **{"model.quirks": ("unmasked-chunks",)})
    assert_close(both[1][0], both[0][0], atol=1e-5, rtol=0)


def test_16_bits_stay_close_to_padded_rows(backbone):
    some, scores = built("maxp", backbone), []
    for flat in (None, True):
        some.read(flat)
        for autocast in (None, torch.bfloat16):
            with torch.no_grad():
                score_B = some.scores(autocast, batch_tokens=300)
            assert score_B.dtype == torch.float32
            scores.append(score_B)
    padded, _, flat, rounded = scores
    assert_close(flat, padded, atol=1e-5, rtol=0)
    assert_close(rounded, padded, atol=6e-2, rtol=2e-2)
    assert len(set(rounded.tolist())) == len(rounded), "its head must not round scores to ties"


@pytest.mark.parametrize("kind", ["bert", "modernbert", "qwen3"])
@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_weights_stored_in_16_bits_are_those_numbers_in_32(kind, stored, backbones, tmp_path):  # noqa: F811
    """Over flat rows and padded ones, in fp32 and under products of 16 bits."""
    found = {}
    for name, dtype in (("as stored", stored), ("widened", torch.float32)):
        folder = shutil.copytree(backbones(kind).folder, tmp_path / name)
        weights = load_file(folder / "model.safetensors")
        rounded = {key: weight.to(stored).to(dtype) for key, weight in weights.items()}
        save_file(rounded, folder / "model.safetensors", {"format": "pt"})
        some = built("maxp", resolve_backbone(str(folder)), **{"model.dropout": 0.0})
        assert {p.dtype for p in some.model.parameters()} == {torch.float32}
        for flat in (None, True):
            some.read(flat)
            for autocast in (None, torch.bfloat16):
                with torch.no_grad():
                    found[name, flat, autocast] = some.scores(autocast, batch_tokens=300)
    for way in {(flat, autocast) for _, flat, autocast in found}:
        assert torch.equal(found["as stored", *way], found["widened", *way]), way


def main() -> None:
    """Prints the largest differences of all models."""
    tiny = resolve_backbone("tiny-docs")
    for name in sorted(MODELS):
        (padded_B, expected), (flat_B, gradients) = both_ways(name, tiny)
        score = (flat_B - padded_B).abs().max()
        gradient = max((g - expected[n]).abs().max() for n, g in gradients.items())
        largest = max(g.abs().max() for g in expected.values())
        print(f"{name:32} score {score:.1e}  gradient {gradient:.1e} (largest {largest:.1e})")


if __name__ == "__main__":
    main()
