"""IDCM: overlapping chunks, the weighted best three, and the student that chooses them."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from rank_core.chunking.batches import Chunk
from rank_core.models.idcm import CENTRES, ConvolutionalKernels, overlapping_spans, selection_loss
from rank_core.settings.config import Chunking
from rank_core.testing.laws import QUERY, batch_of, scores, tokens

CHUNKING = Chunking(window=24, stride=20, max_document_tokens=200)


DOCUMENTS = {f"d{size}": tokens(size, size) for size in (0, 1, 20, 21, 45, 100, 200, 250)}


def test_chunks_are_cores_with_half_the_overlap_on_each_side():
    # The paper's 50 tokens with 7 on each side.
    assert overlapping_spans(120, 64, 50) == [(0, 57), (43, 107), (93, 120)]
    # A chunk is kept while its core has a token.
    assert overlapping_spans(100, 64, 50) == [(0, 57), (43, 100)]
    assert overlapping_spans(101, 64, 50)[2] == (93, 101)
    assert overlapping_spans(0, 64, 50) == [(0, 0)]
    assert overlapping_spans(45, 20, 20) == [(0, 20), (20, 40), (40, 45)]


def test_the_best_three_scores_are_weighted_from_the_best_on(system):
    model, _ = system("idcm")
    with torch.no_grad():
        model.weight_K.copy_(torch.tensor([1.0, 0.5, 0.25]))
    score_BP = torch.tensor([[1.0, 4.0, 2.0, 3.0], [-2.0, -1.0, 9.0, 9.0], [5.0, 9.0, 9.0, 9.0]])
    mask_BP = torch.arange(4) < torch.tensor([4, 2, 1])[:, None]
    # 4 + 3 / 2 + 2 / 4; -1 - 2 / 2; 5
    assert model.of_chunks(score_BP, mask_BP).tolist() == [6.0, -2.0, 5.0]
    assert model.of_chunks(score_BP[2:, :1], mask_BP[2:, :1]).tolist() == [5.0]


@pytest.fixture
def one_hot():
    """A student whose trigrams are the tokens' own one-hot vectors, and those vectors."""
    student, words = ConvolutionalKernels(8), torch.nn.Embedding(8, 8)
    with torch.no_grad():
        words.weight.copy_(torch.eye(8))
        student.convolution.weight.zero_()
        student.convolution.weight[:, :, 0] = torch.eye(8)
        student.convolution.bias.zero_()
        student.bins.weight.zero_()
        student.bins.weight[0, 0] = 1.0
    return student, words


def row(pairs, query, text):
    return Chunk(np.array(query, dtype=np.int32), np.array(text, dtype=np.int32))


def test_the_students_kernels_count_soft_matches_of_the_query(one_hot, system):
    student, words = one_hot
    _, pairs = system("idcm")
    inputs = pairs.layout([row(pairs, [5, 6], [5, 5, 7]), row(pairs, [7], [7])])
    # Bin 1.0: token 5 matches twice, 6 never: ln 2 + ln 1e-4. The second row: ln 1.
    with torch.no_grad():
        expected = torch.tensor([math.log(2) + math.log(1e-4), 0.0])
        assert_close(student(words, inputs), expected, atol=1e-5, rtol=0)
        student.scale_K[0] = 3.0
        expected = torch.tensor([math.log(6) + math.log(1e-4), math.log(3)])
        assert_close(student(words, inputs), expected, atol=1e-5, rtol=0)
        # Bin -0.1: cosines of 0 give exp(-.01 / .02) each, of 1 nothing.
        student.bins.weight.zero_()
        student.bins.weight[0, CENTRES.index(-0.1)] = 1.0
        away = math.exp(-0.5)
        expected = torch.tensor([math.log(away) + math.log(3 * away), math.log(1e-4)])
        assert_close(student(words, inputs), expected, atol=1e-4, rtol=0)


def by_loops(student, teacher, num):
    """The selection loss of one document, term by term."""
    order = sorted(range(len(teacher)), key=lambda i: -teacher[i])
    relevance = [max(0, num - order.index(i)) for i in range(len(teacher))]
    gains = [2**y - 1 for y in relevance]
    ideal = sum(g / math.log2(2 + r) for r, g in enumerate(sorted(gains, reverse=True)))
    place = sorted(range(len(student)), key=lambda i: -student[i])
    total = 0.0
    for i in range(len(student)):
        for j in range(len(student)):
            if relevance[i] > relevance[j]:
                d = abs(place.index(i) - place.index(j))
                delta = 1 / math.log2(1 + d) - 1 / math.log2(2 + d)
                cost = math.log2(1 + math.exp(student[j] - student[i]))
                total += delta * abs(gains[i] - gains[j]) / ideal * cost
    return total


def test_the_selection_loss_sums_over_documents_without_padding():
    rng = np.random.default_rng(4)
    student, teacher = (torch.tensor(rng.normal(size=(3, 6))) for _ in range(2))
    counts = [6, 4, 1]
    mask = torch.arange(6) < torch.tensor(counts)[:, None]
    expected = sum(
        by_loops(s[:n].tolist(), t[:n].tolist(), 3)
        for s, t, n in zip(student, teacher, counts, strict=True)
    )
    assert selection_loss(student, teacher, mask, 3).item() == pytest.approx(expected, rel=1e-9)
    assert by_loops([1.0], [2.0], 3) == 0


def test_the_encoder_reads_the_students_choice(system):
    model, pairs = system("idcm", stage="student", k=2)
    batch = batch_of(pairs, ["d100", "d1", "d45"])
    chosen = model.chosen(batch)
    assert chosen.counts == (2, 1, 2)
    read = model.blocks_read(pairs, QUERY, ["d100", "d1", "d45"])
    assert [one.number for one in read] == [*batch.counts]
    assert [one.blocks for one in read] == [tuple(own.tolist()) for own in model.choose(batch)]
    with torch.no_grad():
        student_BP, _ = model.student_scores(batch)
        bert = model.chunk_scores(batch.inputs)
    best = [student_BP[0].topk(2).indices, student_BP[2, :3].topk(2).indices + 6]
    expected = torch.stack([bert[best[0]].sum(), bert[5], bert[best[1]].sum()])
    assert_close(scores(model, pairs, ["d100", "d1", "d45"]), expected, atol=1e-5, rtol=0)
    before = chosen.inputs.input_ids_CL
    with torch.no_grad():
        model.student.bins.weight.neg_()
    assert not torch.equal(model.chosen(batch).inputs.input_ids_CL, before)


def test_the_students_loss_accumulates_and_trains_only_the_student(system):
    model, pairs = system("idcm", stage="student", dropout=0.5)
    some, others = batch_of(pairs, ["d100", "d45"]), batch_of(pairs, ["d200"])
    scores(model, pairs, ["d100"])
    assert model.extra_loss is None, "evaluation has no loss"
    expected = model._student_loss(some)[0] + model._student_loss(others)[0]
    model.train()
    score_B = torch.cat([model(some), model(others)])
    assert not score_B.requires_grad and not model.encoder.training
    assert expected > 0
    assert_close(model.extra_loss, expected)
    model.extra_loss.backward()
    trainable = dict(model.trainable())
    assert set(trainable) == {name for name, _ in model.named_parameters() if "student" in name}
    assert all(parameter.grad.abs().sum() > 0 for parameter in trainable.values())
    assert {k: len(v) for k, v in model.learning_rate_groups().items()}["aggregator"] == 4
