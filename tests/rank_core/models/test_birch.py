"""Birch: how documents become sentences, and the weights of the best."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rank_core.models.passage_scores import Birch, Sentences
from rank_core.settings.config import Chunking, Model, TrialConfig
from rank_core.testing.tokenizer import train_tokenizer

QUERY = np.arange(20, 23, dtype=np.int32)
STOP, ASK = 98, 99
MODEL = "birch"
CHUNKING = Chunking(window=4, stride=4, max_document_tokens=30)


def sentences(backbone, tokens, chunking=CHUNKING):
    documents = {"d": np.array(tokens, dtype=np.int32)}
    reader = Sentences(documents, chunking, False, backbone, end_ids=frozenset({STOP, ASK}))
    return [chunk.text.tolist() for chunk in reader.chunks(QUERY, "d")]


def test_a_sentence_ends_with_a_run_of_end_marks(backbone):
    assert sentences(backbone, [5, 6, STOP, 7, ASK, STOP, 8]) == [[5, 6, STOP], [7, ASK, STOP], [8]]
    assert sentences(backbone, [STOP, 5, STOP]) == [[STOP], [5, STOP]]
    assert sentences(backbone, [5, STOP]) == [[5, STOP]]
    assert sentences(backbone, []) == [[]]
    long = [*range(10, 19), STOP, 5]  # is cut at the window
    assert sentences(backbone, long) == [long[:4], long[4:8], long[8:10], [5]]


def test_end_marks_are_found_in_the_vocabulary(backbone, tmp_path):
    tokenizer = train_tokenizer(["amber. birch? cedar! delta, ember"], 80)
    tokenizer.save_pretrained(tmp_path)
    other = replace(backbone, folder=tmp_path)
    text = tokenizer("amber birch. cedar, delta?! ember", add_special_tokens=False)["input_ids"]
    documents = {"d": np.array(text, dtype=np.int32)}
    config = TrialConfig(model=Model("birch"), chunking=Chunking(window=50, stride=50))
    chunks = Birch.reader(config, other, documents).chunks(QUERY, "d")
    read = [tokenizer.decode(chunk.text).replace(" ", "") for chunk in chunks]
    assert read == ["amberbirch.", "cedar,delta?!", "ember"]


@pytest.fixture
def ranker(model):
    """Birch with a head that reads the first dimension."""
    with torch.no_grad():
        model.head.weight.zero_()[0, 0] = 1.0
        model.head.bias.zero_()
    return model


def vectors(*scores):
    """(x_BPH, mask_BP) of chunks with given scores; None is no chunk."""
    x_BP = torch.tensor([[0.0 if s is None else s for s in row] for row in scores])
    mask_BP = torch.tensor([[s is not None for s in row] for row in scores])
    return torch.nn.functional.pad(x_BP[:, :, None], (0, 31)), mask_BP


def test_the_three_best_sentences_count_one_a_half_and_a_quarter(ranker):
    batch = vectors([1.0, 8.0, 2.0, 4.0], [3.0, -1.0, None, None], [-2.0, None, None, None])
    # (8 + 4 / 2 + 2 / 4) / 1.75; (3 - 1 / 2) / 1.5; -2
    expected = [10.5 / 1.75, 2.5 / 1.5, -2.0]
    assert ranker.aggregate(*batch).tolist() == pytest.approx(expected)


def test_the_relevance_of_a_missing_sentence_is_zero(ranker):
    best_BK = ranker.best(*vectors([0.0, 100.0, -100.0, 1.0], [0.0, None, None, None]))
    e = 1 / (1 + np.exp(-1.0))
    assert best_BK.flatten().tolist() == pytest.approx([1.0, e, 0.5, 0.5, 0.0, 0.0])
