"""Every model gives the same scores and gradients whether its encoder reads padded rows or one flat
row of tokens; on a CPU, where attention computes the rows of a flat row one by one."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch.testing import assert_close

from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.packed import OWN_ATTENTION
from rank_core.models import MODELS as SYSTEMS
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work, score_documents
from rank_core.settings.config import Chunking, TrialConfig
from rank_core.testing.laws import batch_of, tokens
from tests.contracts.small_backbones import make_backbone
from tests.contracts.test_every_backbone import backbones  # noqa: F401

MODELS = {name: kind for name in SYSTEMS if issubclass(kind := model_class(name), Ranker)}
CHUNKING = Chunking(window=20, stride=10, max_document_tokens=60)
QUERY = tokens(0, 6, largest=50)
DOCUMENTS = {f"d{size}": tokens(size, size, largest=50) for size in (0, 1, 2, 13, 20, 34, 55, 90)}
PADDED = {"co-pacrr", "deeprank", "tk", "tkl"} | {"qds"}
"""Word vectors alone, and an attention with a pattern: a mask of its own."""


def built(name, backbone, **settings):
    own = {"model.name": name, "model.backbone": str(backbone.folder), "model.dropout": 0.0}
    config = TrialConfig(chunking=CHUNKING).override(own | settings)
    model = build_model(config, backbone, init_seed=1).train()
    return model, MODELS[name].reader(config, backbone, DOCUMENTS)


def gradients_of(model, score_B):
    """The gradient of every parameter, of a weighted mean of the scores."""
    model.zero_grad(set_to_none=True)
    loss = (score_B * torch.linspace(-1, 1, len(score_B))).mean()
    (loss + (model.extra_loss or 0)).backward()
    model.extra_loss = None
    return {name: p.grad for name, p in model.trainable() if p.grad is not None}


def both_ways(name, backbone, **settings):
    """(scores, gradients) by `Ranker.forward` over padded rows, and over flat rows in batches."""
    model, pairs = built(name, backbone, **settings)
    documents = [pairs.chunks(QUERY, doc_id) for doc_id in DOCUMENTS]
    torch.manual_seed(1)
    padded_B = model(batch_of(pairs, list(DOCUMENTS), QUERY))
    padded = padded_B.detach(), gradients_of(model, padded_B)
    for part in model.children():
        part.reads_flat_rows = True
    assert model.packs(None) == (name not in PADDED)
    work = Work()
    torch.manual_seed(1)
    flat_B = score_documents(model, pairs, documents, batch_tokens=300, autocast=None, work=work)
    assert (work.padding_share == 0) == (name not in PADDED)
    return padded, (flat_B.detach(), gradients_of(model, flat_B))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_scores_and_gradients_are_those_of_padded_rows(name, backbone):
    (padded_B, expected), (flat_B, gradients) = both_ways(name, backbone)
    # A bi-encoder scales its cosines, and with them their rounding, by 100.
    assert_close(flat_B, padded_B, atol=1e-5, rtol=1e-6)
    assert set(gradients) == set(expected)
    for parameter, gradient in gradients.items():
        assert_close(gradient, expected[parameter], atol=1e-4, rtol=0, msg=parameter)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("maxp", {"model.pool": "mean"}),
        ("maxp", {"model.pool": "last"}),
        ("parade-avg", {"model.quirks": ("unmasked-chunks",)}),  # padding within rows
        ("parade-late-interaction", {"model.quirks": ("unmasked-chunks",)}),
    ],
)
def test_so_are_other_poolings_and_rows_padded_in_place(name, settings, backbone):
    (padded_B, expected), (flat_B, gradients) = both_ways(name, backbone, **settings)
    assert_close(flat_B, padded_B, atol=1e-5, rtol=0)
    for parameter, gradient in gradients.items():
        assert_close(gradient, expected[parameter], atol=1e-4, rtol=0, msg=parameter)


def test_padding_within_a_row_has_no_position_in_a_roberta(backbones):  # noqa: F811
    backbone = backbones("roberta")
    both = both_ways("parade-avg", backbone, **{"model.quirks": ("unmasked-chunks",)})
    assert_close(both[1][0], both[0][0], atol=1e-5, rtol=0)


def test_16_bits_stay_close_to_padded_rows(backbone):
    model, pairs = built("maxp", backbone)
    documents = [pairs.chunks(QUERY, doc_id) for doc_id in DOCUMENTS]
    scores = []
    for flat in (None, True):
        model.encoder.reads_flat_rows = flat
        for autocast in (None, torch.bfloat16):
            with torch.no_grad():
                score_B = score_documents(
                    model, pairs, documents, batch_tokens=300, autocast=autocast, work=Work()
                )
            assert score_B.dtype == torch.float32
            scores.append(score_B)
    padded, _, flat, rounded = scores
    assert_close(flat, padded, atol=1e-5, rtol=0)
    assert_close(rounded, padded, atol=6e-2, rtol=2e-2)
    assert len(set(rounded.tolist())) == len(rounded), "its head must not round scores to ties"


def main() -> None:
    """Prints the largest differences over all models, then over all kinds of encoders."""
    tiny = resolve_backbone("tiny-docs")
    for name in sorted(MODELS):
        print_differences(name, *both_ways(name, tiny))
    for kind in sorted(set(TYPES) - set(OWN_ATTENTION)):
        with TemporaryDirectory() as folder:
            print_differences(kind, *both_ways("longp", make_backbone(kind, Path(folder))))


def print_differences(name, padded, flat):
    (padded_B, expected), (flat_B, gradients) = padded, flat
    score = (flat_B - padded_B).abs().max()
    gradient = max((g - expected[n]).abs().max() for n, g in gradients.items())
    largest = max(g.abs().max() for g in expected.values())
    print(f"{name:32} score {score:.1e}  gradient {gradient:.1e} (largest {largest:.1e})")


if __name__ == "__main__":
    main()
