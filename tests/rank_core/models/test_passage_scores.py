"""Pooled chunk scores: closed forms, special readers, and unmasked padding."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from rank_core.models import poolings
from rank_core.models.readers import EqualChunks
from rank_core.settings.config import Chunking

QUERY = np.arange(20, 26, dtype=np.int32)
DOCUMENTS = {f"d{n}": np.arange(5, 5 + n, dtype=np.int32) % 95 + 5 for n in (0, 1, 13, 34, 55)}
CHUNKING = Chunking(window=20, stride=10, max_document_tokens=60)


def texts(reader, doc_id):
    return [chunk.text.tolist() for chunk in reader.chunks(QUERY, doc_id)]


def score(model, reader, *doc_ids):
    with torch.inference_mode():
        return model(reader.collate([reader.chunks(QUERY, doc_id) for doc_id in doc_ids]))


def test_the_largest_values_come_first_and_missing_ones_are_zero():
    x_BP = torch.tensor([[1.0, -3.0, 4.0, 2.0], [-5.0, -1.0, 9.0, 9.0], [-2.0, 7.0, 7.0, 7.0]])
    mask_BP = torch.tensor([[True] * 4, [True, True, False, False], [True, False, False, False]])
    top_BK, real_BK = poolings.masked_top(x_BP, mask_BP, 3)
    assert top_BK.tolist() == [[4.0, 2.0, 1.0], [-1.0, -5.0, 0.0], [-2.0, 0.0, 0.0]]
    assert real_BK.tolist() == [[True] * 3, [True, True, False], [True, False, False]]
    # (4 + 2 + 1) / 3, (-1 - 5) / 2, -2 / 1
    assert poolings.masked_top_mean(x_BP, mask_BP, 3).tolist() == pytest.approx([7 / 3, -3, -2])
    assert poolings.masked_top_mean(x_BP, mask_BP, 99).tolist() == pytest.approx([1, -3, -2])


def test_kmax_is_maxp_at_one_and_avgp_where_k_is_large(system):
    doc_ids = ["d0", "d13", "d34", "d55"]
    for k, same in ((1, "maxp"), (50, "avgp")):
        assert_close(score(*system("kmax-avgp", k=k), *doc_ids), score(*system(same), *doc_ids))
    plain = score(*system("kmax-avgp"), "d55")
    assert_close(plain, score(*system("kmax-avgp", k=3), "d55"))
    assert (plain - score(*system("kmax-avgp", k=2), "d55")).abs() > 1e-3


@pytest.mark.parametrize(
    ("num_tokens", "sizes"),
    # m = ceil(n / 477) chunks of ceil(n / m) tokens
    [
        (1000, [334, 334, 332]),
        (478, [239, 239]),
        (477, [477]),
        (1431, [477] * 3),
        (1, [1]),
        (0, [0]),
    ],
)
def test_equal_chunks_are_as_few_as_windows_and_as_even_as_can_be(backbone, num_tokens, sizes):
    chunking = Chunking(window=477, stride=477)
    document = {"d": np.arange(num_tokens, dtype=np.int32)}
    chunks = EqualChunks(document, chunking, False, backbone).chunks(QUERY, "d")
    assert [len(chunk.text) for chunk in chunks] == sizes
    assert np.concatenate([chunk.text for chunk in chunks]).tolist() == list(range(num_tokens))


def test_randp_reads_one_chunk_that_the_document_and_the_seed_choose(system):
    def drawn(seed):
        return texts(system("randp", seed=seed)[1], "d55")

    chosen = [drawn(seed) for seed in range(1, 25)]
    assert all(len(chunks) == 1 for chunks in chosen) and drawn(7) == drawn(7)
    windows = texts(system("maxp")[1], "d55")
    assert {tuple(chunks[0]) for chunks in chosen} == {tuple(window) for window in windows}


@pytest.mark.parametrize("name", ["sump", "avgp"])
def test_probabilities_are_pooled_in_evaluation_and_logits_in_training(name, system):
    # Logits 0, ln 3 and -ln 3 are probabilities 1/2, 3/4 and 1/4; the fourth chunk is padding.
    own, _ = system(name, chunk_scores="probability")
    with torch.inference_mode():
        own.head.weight.zero_()
        own.head.weight[0, 0], own.head.bias[0] = 1.0, 0.0
        cls_BPH = torch.zeros(1, 4, 32)
        cls_BPH[0, 1:, 0] = torch.tensor([np.log(3), -np.log(3), 9.0])
        mask_BP = torch.tensor([[True, True, True, False]])
        evaluated = own.aggregate(cls_BPH, mask_BP)
        own.train()
        own.dropout.p = 0.0
        trained = own.aggregate(cls_BPH, mask_BP)
    parts = 1 if name == "sump" else 3
    assert evaluated.item() == pytest.approx(1.5 / parts, rel=1e-6)
    assert trained.item() == pytest.approx(0.0, abs=1e-6)
