"""Co-PACRR: surroundings, cascade and gate against values worked out by hand."""

import pytest
import torch
from torch.testing import assert_close

from rank_core.models.cedr import Terms
from rank_core.models.word_vectors import surroundings
from rank_core.settings.config import Chunking

MODEL = "co-pacrr"
CHUNKING = Chunking(window=200, stride=200, max_document_tokens=200)


def masks(query, text):
    query_mask, text_mask = torch.tensor(query), torch.tensor(text)
    return Terms(query_mask.long(), query_mask, text_mask.long(), text_mask)


def test_surroundings_are_the_tokens_up_to_4_places_away():
    # The query's mean is the first axis. Of 8 real tokens the first alone lies on it, the others
    # on the second axis; the ninth is padding.
    text = torch.zeros(1, 9, 2)
    text[0, 0, 0] = text[0, 8, 0] = 1.0
    text[0, 1:8, 1] = 1.0
    query = torch.tensor([[[2.0, 0.0], [0.0, 9.0]]])
    terms = masks([[True, False]], [[True] * 8 + [False]])
    # Place 0 sees places 0..4: (1, 4) / 5, cosine 1 / sqrt(17); place 4 sees 0..8, of which 8 are
    # real: (1, 7), cosine 1 / sqrt(50); place 5 sees 1..8 and nothing of the first axis.
    found = surroundings(query, text, terms)[0]
    assert found[0].item() == pytest.approx(17**-0.5, rel=1e-6)
    assert found[4].item() == pytest.approx(50**-0.5, rel=1e-6)
    assert_close(found[5:8], torch.zeros(3))


def test_matches_cascade_through_quarters_of_the_documents_own_length(model):
    # One query token on the first axis, 8 tokens of a text with given cosines; two places of
    # padding, which would be the best matches.
    cos = torch.tensor([0.1, 0.3, 0.2, 0.0, -0.5, 0.6, 0.9, 0.4, 1.0, 1.0])
    text = torch.stack([cos, (1 - cos.square()).sqrt()], dim=1)[None]
    query = torch.tensor([[[5.0, 0.0]]])
    model.token_weight = torch.nn.Linear(2, 1, bias=False)
    terms = masks([[True]], [[True] * 8 + [False] * 2])
    with torch.inference_mode():
        features = model.features(query, text, terms)[0, 0]
    # Shares end after 2, 4, 6 and 8 tokens; two matches of each, then two surroundings of each.
    matches = features[:16].view(4, 2, 2)[:, 0]
    assert_close(matches, torch.tensor([[0.3, 0.1], [0.3, 0.2], [0.6, 0.3], [0.9, 0.6]]))
    around = surroundings(query, text, terms)[0]
    places = torch.tensor([[1, 0], [1, 2], [5, 1], [6, 5]])
    assert_close(features[:16].view(4, 2, 2)[:, 1], around[places])
    # A single query token has all the weight.
    assert features[-1] == 1.0
    assert features.shape == (3 * 4 * 2 * 2 + 1,)
