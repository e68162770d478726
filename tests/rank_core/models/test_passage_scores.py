"""Pooled chunk scores: closed forms, special readers, and unmasked padding."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from rank_core.errors import BadInput
from rank_core.models import check_model, model_class, poolings
from rank_core.models.build import build_model
from rank_core.models.readers import EqualChunks
from rank_core.settings.config import Chunking, Model, TrialConfig

QUERY = np.arange(20, 26, dtype=np.int32)
DOCUMENTS = {f"d{n}": np.arange(5, 5 + n, dtype=np.int32) % 95 + 5 for n in (0, 1, 13, 34, 55)}
CHUNKING = Chunking(window=20, stride=10, max_document_tokens=60)
DISJOINT = Chunking(window=20, stride=20, max_document_tokens=60)
INF = float("inf")


@pytest.fixture
def config(backbone):
    """A trial of a model with some settings changed."""

    def build(name, chunking=CHUNKING, seed=1, **model):
        return TrialConfig(
            model=Model(name, backbone=str(backbone.folder), **model), chunking=chunking, seed=seed
        )

    return build


@pytest.fixture
def reader(config, backbone):
    """The reader of such a trial over DOCUMENTS."""

    def build(name, *args, **settings):
        return model_class(name).reader(config(name, *args, **settings), backbone, DOCUMENTS)

    return build


@pytest.fixture
def model(config, backbone):
    """The model of such a trial, in evaluation mode."""

    def build(name, *args, **settings):
        return build_model(config(name, *args, **settings), backbone, init_seed=1).eval()

    return build


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


def test_the_gradient_of_a_mean_of_the_best_is_one_kth_each():
    x_BP = torch.tensor([[1.0, -3.0, 4.0, 2.0], [5.0, 0.0, 0.0, 0.0]], requires_grad=True)
    mask_BP = torch.tensor([[True] * 4, [True, False, False, False]])
    poolings.masked_top_mean(x_BP, mask_BP, 2).sum().backward()
    assert x_BP.grad.tolist() == [[0, 0, 0.5, 0.5], [1, 0, 0, 0]]


def test_kmax_is_maxp_at_one_and_avgp_where_k_is_large(model, reader):
    pairs, doc_ids = reader("maxp"), ["d0", "d13", "d34", "d55"]
    for k, same in ((1, "maxp"), (50, "avgp")):
        assert_close(
            score(model("kmax-avgp", k=k), pairs, *doc_ids), score(model(same), pairs, *doc_ids)
        )
    plain = score(model("kmax-avgp"), pairs, "d55")
    assert_close(plain, score(model("kmax-avgp", k=3), pairs, "d55"))
    assert (plain - score(model("kmax-avgp", k=2), pairs, "d55")).abs() > 1e-3


def test_only_the_k_best_chunks_learn(model):
    assert model("kmax-avgp").chunks_that_learn == 3
    assert model("kmax-avgp", k=5).chunks_that_learn == 5
    assert model_class("kmax-avgp").chunks_that_learn == 0, "an instance's number is its own"


def test_a_negative_k_is_refused(config, backbone):
    with pytest.raises(BadInput, match=r"model\.k >= 0 must hold, got model\.k=-1"):
        check_model(config("kmax-avgp", k=-1), backbone)


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


def test_equal_chunks_never_exceed_the_window(backbone):
    for window in (1, 2, 3, 7):
        chunking = Chunking(window=window, stride=window)
        for num_tokens in range(1, 40):
            spans = EqualChunks({}, chunking, False, backbone).spans(np.zeros(num_tokens))
            assert len(spans) == -(-num_tokens // window)
            assert max(end - start for start, end in spans) <= window


def test_equal_chunks_respect_the_limits_of_chunking(reader):
    limited = Chunking(window=20, stride=20, max_document_tokens=50, max_chunks=2)
    # 50 of 55 tokens are three chunks of 17, 17 and 16, of which the first two stay.
    document = DOCUMENTS["d55"].tolist()
    assert texts(reader("avg-cls", limited), "d55") == [document[:17], document[17:34]]


def test_avg_cls_scores_the_mean_vector_of_its_own_chunks(model, reader):
    own, pairs = model("avg-cls", DISJOINT), reader("avg-cls", DISJOINT)
    with torch.inference_mode():
        # 34 tokens are two chunks of 17; by hand, one after the other.
        first, second = (
            own.encode(pairs.layout([chunk]))[0] for chunk in pairs.chunks(QUERY, "d34")
        )
        expected = own.head.weight[0] @ ((first + second) / 2) + own.head.bias
    assert_close(score(own, pairs, "d34"), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["avg-cls", "birch"])
def test_a_stride_is_refused_where_chunks_do_not_overlap(config, backbone, name):
    check_model(config(name, DISJOINT), backbone)
    with pytest.raises(BadInput, match=r"chunking\.stride has no effect.*window=20, got 10"):
        check_model(config(name), backbone)


def test_randp_reads_one_chunk_that_the_document_and_the_seed_choose(reader):
    windows = texts(reader("maxp"), "d55")
    chosen = [texts(reader("randp", seed=seed), "d55") for seed in range(1, 60)]
    assert all(len(chunks) == 1 for chunks in chosen)
    drawn = {tuple(chunks[0]) for chunks in chosen}
    # That none of 5 chunks is missed by 59 draws has probability 1 - 5 * 0.8^59 > 0.99999.
    assert drawn == {tuple(window) for window in windows}
    assert texts(reader("randp", seed=7), "d55") == texts(reader("randp", seed=7), "d55")


def test_rows_with_padding_in_place_are_those_of_the_reference(reader, backbone):
    small = Chunking(window=4, stride=2, max_document_tokens=8, max_query_tokens=3)
    pairs = reader("maxp", small, quirks=("unmasked-chunks",))
    # Windows of 8 places begin at 0, 2 and 4 = ceil((8 - 4) / 2) + 1 of them; d1 has one token.
    [batch] = [pairs.collate([pairs.chunks(QUERY[:2], "d1")])]
    cls, sep, pad = backbone.cls_id, backbone.sep_id, backbone.pad_id
    q1, q2, word = *QUERY[:2].tolist(), DOCUMENTS["d1"][0]
    assert batch.counts == (3,)
    empty = [cls, q1, q2, pad, sep, pad, pad, pad, pad, sep]
    assert batch.inputs.input_ids_CL.tolist() == [
        [cls, q1, q2, pad, sep, word, pad, pad, pad, sep],
        empty,
        empty,
    ]
    seen = [1, 1, 1, 0, 1, 0, 0, 0, 0, 1]
    assert batch.inputs.attention_mask_CL.tolist() == [[*seen[:5], 1, *seen[6:]], seen, seen]
    assert batch.inputs.token_type_ids_CL.tolist() == [[0] * 5 + [1] * 5] * 3
    assert batch.inputs.query_length_C.tolist() == [3, 3, 3], "places, padded ones too"


def test_padded_documents_are_cut_wherever_text_is_left(reader):
    pairs = reader("maxp", quirks=("unmasked-chunks",))
    kept = [[t for t in chunk if t >= 0] for chunk in texts(pairs, "d34")]
    document = DOCUMENTS["d34"].tolist()
    # Alone, 34 tokens are windows at 0, 10 and 20; padded to 60, windows start at 30 and 40 too.
    assert kept == [document[i : i + 20] for i in (0, 10, 20, 30)] + [[]]
    assert len({len(chunk) for chunk in pairs.chunks(QUERY, "d34")}) == 1


def test_padding_adds_to_a_sum_only_where_the_quirk_asks_for_it(model, reader):
    long = Chunking(window=20, stride=20, max_document_tokens=120)
    short = Chunking(window=20, stride=20, max_document_tokens=60)
    own = model("sump", short, quirks=("unmasked-chunks",))
    readers = [reader("sump", chunking, quirks=("unmasked-chunks",)) for chunking in (short, long)]
    (three, six), empty = (score(own, pairs, "d34") for pairs in readers), readers[0]
    nothing = score(own, empty, "d0") / 3  # an empty document is three padding-only chunks
    assert nothing.abs() > 0.05
    assert_close(six, three + 3 * nothing, atol=1e-5, rtol=0)
    plain = [score(own, reader("sump", chunking), "d34") for chunking in (short, long)]
    assert torch.equal(*plain)


@pytest.mark.parametrize("name", ["maxp", "sump", "parade-max", "parade-transformer"])
def test_unmasked_padding_changes_only_its_own_documents_score(model, reader, name):
    own = model(name, quirks=("unmasked-chunks",))
    pairs = reader(name, quirks=("unmasked-chunks",))
    together, alone = score(own, pairs, "d13", "d55"), score(own, pairs, "d13")
    assert (alone - score(own, reader(name), "d13")).abs() > 1e-4
    assert_close(together[:1], alone, atol=1e-5, rtol=0)
    assert torch.isfinite(score(own, pairs, "d0", "d1")).all()


def test_quirks_without_effect_are_refused(config, backbone):
    with pytest.raises(BadInput, match="unknown quirk of model maxp 'unmasked-chunk'; did you"):
        check_model(config("maxp", quirks=("unmasked-chunk",)), backbone)
    with pytest.raises(BadInput, match="unknown quirk of model firstp 'unmasked-chunks'"):
        check_model(config("firstp", DISJOINT, quirks=("unmasked-chunks",)), backbone)
    with pytest.raises(BadInput, match=r"model\.quirks has no effect with model avgp"):
        check_model(config("avgp", quirks=("unmasked-chunks",)), backbone)


def test_the_last_token_of_a_padded_row_is_its_last_sep(model, reader):
    own = model("firstp", DISJOINT, quirks=("padded-rows",), pool="last")
    pairs = reader("firstp", DISJOINT, quirks=("padded-rows",))
    batch = pairs.collate([pairs.chunks(QUERY, doc_id) for doc_id in ("d13", "d34")])
    assert batch.inputs.attention_mask_CL.sum(1).tolist() == [6 + 13 + 3, 6 + 20 + 3]
    with torch.inference_mode():
        assert torch.equal(own.encode(batch.inputs), own.hidden(batch.inputs)[:, -1])


@pytest.mark.parametrize("name", ["sump", "avgp"])
def test_probabilities_are_pooled_in_evaluation_and_logits_in_training(name, model):
    # Logits 0, ln 3 and -ln 3 are probabilities 1/2, 3/4 and 1/4; the fourth chunk is padding.
    own = model(name, chunk_scores="probability")
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


def test_probabilities_need_passages_that_were_trained_alone(config, backbone):
    trial = config("avgp", chunk_scores="probability")
    check_model(trial.override({"training.unit": "passage"}), backbone)
    with pytest.raises(BadInput, match=r"training\.unit=passage, got document"):
        check_model(trial, backbone)
    with pytest.raises(BadInput, match=r"model\.chunk_scores"):
        check_model(config("avgp", chunk_scores="logits"), backbone)
    with pytest.raises(BadInput, match=r"model\.chunk_scores has no effect with model maxp"):
        check_model(config("maxp", chunk_scores="probability"), backbone)
