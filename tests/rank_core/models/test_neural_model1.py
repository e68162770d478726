"""Neural Model 1: the closed form for translation probabilities set by hand, and its masks."""

from math import log

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from rank_core.models.cedr import EPSILON, Terms, log_likelihood, terms_of
from rank_core.settings.config import Chunking

QUERY = np.asarray([11, 12, 13], dtype=np.int32)
TEXT = np.random.default_rng(4).integers(5, 100, 50).astype(np.int32)
MODEL = "neural-model1"
CHUNKING = Chunking(window=20, stride=20, max_document_tokens=60)


def masks(query, text):
    query_mask, text_mask = torch.tensor(query), torch.tensor(text)
    return Terms(query_mask.long(), query_mask, text_mask.long(), text_mask)


def test_the_score_is_the_sum_of_logarithms_of_mean_translations():
    translation = torch.tensor([[[0.2, 0.4, 0.9], [0.1, 0.1, 0.9], [0.9, 0.9, 0.9]]])
    terms = masks([[True, True, False]], [[True, True, False]])
    # Means over the two real tokens: 0.3 and 0.1; the third query token is padding.
    expected = log(EPSILON + 0.3) + log(EPSILON + 0.1)
    assert log_likelihood(translation, terms).item() == pytest.approx(expected, rel=1e-6)


def test_its_parts_are_one_layer_over_both_vectors_and_their_product(model):
    generator = torch.Generator().manual_seed(3)
    query, text = (torch.randn(1, n, 32, generator=generator) for n in (2, 5))
    weight = torch.cat([model.of_query.weight, model.of_text.weight, model.of_both.weight], dim=1)
    for q in range(2):
        for d in range(5):
            pair = torch.cat([query[0, q], text[0, d], query[0, q] * text[0, d]])
            hidden = torch.relu(weight @ pair + model.of_query.bias)
            expected = torch.sigmoid(model.head(hidden))[0]
            assert_close(model.translation(query, text)[0, q, d], expected)


def test_query_vectors_are_those_of_the_first_chunk_and_cls_takes_no_part(model, chunked):
    batch = chunked([TEXT[:9], TEXT[9:15]])
    with torch.inference_mode():
        hidden = model.hidden(batch.inputs)
        text = torch.cat([hidden[0, 5:14], hidden[1, 5:11]])
        translation = model.translation(hidden[:1, 1:4], text[None])
        assert_close(model(batch), log_likelihood(translation, terms_of(batch)))
