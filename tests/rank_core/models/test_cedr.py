"""CEDR: kernels, histograms and n-gram matches against values worked out by hand."""

from math import exp, log

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from rank_core.models.cedr import NgramFilters, histogram, strongest, terms_of
from rank_core.models.ranker import layer_states
from rank_core.settings.config import Chunking

QUERY = np.asarray([11, 12, 13, 12], dtype=np.int32)
TEXT = np.random.default_rng(4).integers(5, 100, 50).astype(np.int32)
CHUNKING = Chunking(window=20, stride=20, max_document_tokens=60)
DOCUMENTS = {}


def test_knrm_is_what_its_chunks_give_when_each_is_read_alone(system, chunked):
    model, _ = system("cedr-knrm")
    chunks = [TEXT[:20], TEXT[20:35]]
    with torch.inference_mode():
        states = [layer_states(model.encoder, chunked([chunk]).inputs) for chunk in chunks]
    feature = []
    for s in range(3):  # the embeddings and two layers
        query = states[0][s][0, 1:5]
        text = torch.cat([state[s][0, 6:-1] for state in states])
        assert text.shape == (35, 32)
        for mu, sigma in zip(model.MU, model.SIGMA, strict=True):
            near = [
                sum(
                    exp(-((cosine_similarity(q, t, dim=0).item() - mu) ** 2) / (2 * sigma**2))
                    for t in text
                )
                for q in query
            ]
            feature.append(sum(log(count + 1e-6) for count in near))
    cls = torch.stack([state[-1][0, 0] for state in states]).mean(0)
    expected = model.head(cls) + torch.tensor(feature) @ model.kernel_head.weight[0]
    with torch.inference_mode():
        assert_close(model(chunked(chunks)), expected, atol=1e-3, rtol=0)


def test_the_last_bin_is_for_a_similarity_of_one():
    # int((x + 1.000001) / 2 * 10): -1 -> 0, -0.81 -> 0, -0.79 -> 1, 0 -> 5, 0.99 -> 9, 1 -> 10.
    similarity = torch.tensor([[[-1.0, -0.81, -0.79, 0.0, 0.99, 1.0, 1.0]]])
    mask = torch.tensor([[True] * 6 + [False]])
    assert histogram(similarity, mask, 11).tolist() == [[[2, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1]]]


def test_drmm_sums_over_real_query_tokens_only(system, chunked):
    model, _ = system("cedr-drmm")
    with torch.no_grad():
        for parameter in (*model.hidden_layer.parameters(), *model.head.parameters()):
            parameter.zero_()
        # One hidden unit reads log(count of similarity 0) of the first state and adds 20.
        model.hidden_layer.weight[0, 5] = 1.0
        model.hidden_layer.bias[0] = 20.0
        model.head.weight[0, 0] = 0.5
        model.head.bias[0] = 3.0
    terms = terms_of(chunked([TEXT[:2]], [TEXT[:3]], query=QUERY[:2]))
    similarity = (torch.zeros(2, 2, 3) for _ in range(3))
    score_B = model.combine(torch.zeros(2, 32), similarity, terms)
    # Two query tokens, each with 2 (or 3) similarities of 0: 0.5 (log(n + 1e-5) + 20) + 3.
    expected = [2 * (0.5 * (log(n + 1e-5) + 20) + 3) for n in (2, 3)]
    assert score_B.tolist() == pytest.approx(expected, rel=1e-6)


def test_an_ngram_starts_at_its_match_and_ends_in_zeros():
    filters = NgramFilters(channels=1, filters=2, n=2)
    with torch.no_grad():
        filters.filters.weight[0] = 1.0  # the sum of a 2 x 2 square
        filters.filters.weight[1] = -1.0
        filters.filters.bias[:] = torch.tensor([0.5, 0.0])
        similarity = torch.tensor([[[[1.0, -2.0, 0.5], [-3.0, 0.0, 1.0]]]])
        # Squares from (0,0): 1 - 2 - 3 + 0 = -4; (0,1): -2 + 0.5 + 0 + 1 = -0.5; (0,2): 0.5 + 1;
        # (1,0): -3 + 0; (1,1): 0 + 1; (1,2): 1. The better of sum + 0.5 and -sum, at least 0.
        expected = torch.tensor([[[4.0, 0.5, 2.0], [3.0, 1.5, 1.5]]])
        assert_close(filters(similarity), expected)


def test_the_strongest_matches_are_real_and_the_earlier_of_equal_ones():
    strength = torch.tensor([[[0.3, 0.9, 0.9, 1.0], [-0.5, -0.2, 2.0, 0.0]]])
    mask = torch.tensor([[[True, True, True, False], [True, False, False, False]]])
    found = strongest(strength, mask, 2)
    assert_close(found.strength_BQk, torch.tensor([[[0.9, 0.9], [-0.5, 0.0]]]))
    assert found.real_BQk.tolist() == [[[True, True], [True, False]]]
    assert found.place_BQk[0, 0].tolist() == [1, 2]
    assert found.place_BQk[0, 1, 0] == 0


def test_values_that_differ_by_rounding_are_equal():
    strength = torch.tensor([[[0.2, 0.9, 0.5, 0.9 + 2e-7], [0.2, 0.9, 0.5, 0.9 + 5e-6]]])
    found = strongest(strength, torch.ones_like(strength, dtype=torch.bool), 2)
    assert found.place_BQk.tolist() == [[[1, 3], [3, 1]]]


def test_pacrrs_network_reads_matches_per_query_token_and_cls(system, chunked):
    model, _ = system("cedr-pacrr")
    seen = []
    model.hidden_layers.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    with torch.no_grad():
        for filters in model.filters:
            filters.filters.weight.zero_()
            filters.filters.bias.zero_()
        # One filter reads the second state's similarity as it is.
        model.filters[0].filters.weight[7, 1] = 1.0
        cos = torch.zeros(3, 1, 2, 3)
        cos[1, 0] = torch.tensor([[0.2, 0.9, -0.4], [-0.3, -0.1, -0.2]])
        terms = terms_of(chunked([TEXT[:3]], query=QUERY[:2]))
        model.combine(torch.full((1, 32), 7.0), iter(cos), terms)
    # 32 query tokens x (2 matches of 3 n-grams), of which two tokens exist; after ReLU the second
    # token's matches are 0.
    expected = torch.zeros(32, 6)
    expected[0, :2] = torch.tensor([0.9, 0.2])
    assert_close(seen[0], torch.cat([expected.flatten(), torch.full((32,), 7.0)])[None])
