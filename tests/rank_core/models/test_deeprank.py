"""DeepRank: contexts, their relevance, and the sum over query tokens."""

import pytest
import torch
from torch.testing import assert_close

from rank_core.models.word_vectors import first_matches
from rank_core.settings.config import Chunking

MODEL = "deeprank"
CHUNKING = Chunking(window=200, stride=200, max_document_tokens=200)


def test_the_relevance_of_a_context_is_the_best_of_each_map_and_its_place(model, score):
    # The first map passes on the cosine, the second one number of the text, the third one of the
    # query; the fourth is a constant.
    with torch.inference_mode():
        model.maps.weight.zero_()
        model.maps.bias.zero_()
        for i, channel in enumerate((2, 1, 0)):
            model.maps.weight[i, channel, 1, 1] = 1.0
        model.maps.bias[3] = 0.25
        model.encoder.weight[10:14] = 0.0
        model.encoder.weight[10, 0], model.encoder.weight[11, 1] = 1.0, 1.0
        model.encoder.weight[12, :2] = torch.tensor([0.6, 0.8])
        model.encoder.weight[13, 0] = 9.0
        for reduce in (model.reduce_query, model.reduce_text):
            reduce.weight.zero_()
        model.reduce_query.weight[0, 1] = 2.0
        model.reduce_text.weight[0, 0] = 3.0
    seen = []
    model.reader_of_matches.register_forward_hook(lambda module, inputs, _: seen.append(inputs[0]))
    # Token 11 stands at place 16; place 0 (the 13) and places 32 on are out of reach, so the 12s
    # are what is read beside it.
    text = [13] + [12] * 15 + [11] + [12] * 15 + [13]
    score([11], text, [13])
    # cos(11, 11) = 1; text number of 12: 3 * 0.6; query number of 11: 2; place 16.
    assert_close(seen[0][0, 0], torch.tensor([1.0, 1.8, 2.0, 0.25, 1 / 17]))
    assert seen[0][0, 1:].abs().sum() == 0.0
    assert seen[0][1].abs().sum() == 0.0


def test_a_tokens_state_is_that_after_its_last_match(model):
    generator = torch.Generator().manual_seed(4)
    steps = torch.randn(3, 5, generator=generator)
    same = torch.zeros(1, 2, 9, dtype=torch.bool)
    same[0, 1, [2, 4, 7]] = True
    places = first_matches(same)
    state_BQS = model.states(steps, places, same)
    after, _ = model.reader_of_matches(steps[None])
    assert_close(state_BQS[0, 1], after[0, 2])
    assert state_BQS[0, 0].tolist() == [0.0, 0.0, 0.0]


def test_a_document_without_any_match_scores_the_same_as_an_empty_one(model, score):
    # Gates sum to 1 and states are 0: the head's bias alone is left.
    bias = model.head.bias.item()
    assert score([10, 11], [], [20, 21], [30]).tolist() == pytest.approx([bias] * 3, rel=1e-6)
    assert score([], [20, 21]).tolist() == [0.0]


def test_only_what_is_at_most_15_tokens_from_a_match_is_read(model, score):
    with torch.inference_mode():
        model.encoder.weight[90] *= 100  # with an effect on any model that reads it
    text = [20] * 100
    text[50] = 10
    [before] = score([10, 11], text)
    for place, read in ((34, False), (35, True), (65, True), (66, False)):
        changed = list(text)
        changed[place] = 90
        assert (score([10, 11], changed)[0] != before).item() == read
