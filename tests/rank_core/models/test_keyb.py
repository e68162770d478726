"""KeyB: selected blocks, their order and truncation, and selection by current weights."""

import copy
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close

from rank_core.chunking.batches import Chunk
from rank_core.encoders.backbones import load_tokenizer
from rank_core.encoders.tiny import RANKING_HEAD
from rank_core.errors import BadInput
from rank_core.models import check_model, model_class
from rank_core.models.build import build_model
from rank_core.models.key_blocks.blocks import (
    FROM_TEXT,
    LEARNED,
    Passages,
    by_chance,
    by_score,
    fitting,
    within,
)
from rank_core.ranking.rerank import rerank
from rank_core.settings.config import Chunking, Model, TrialConfig
from rank_core.testing.laws import (
    QUERY,
    assert_each_document_is_scored_alone,
    assert_the_fast_path_is_the_definition,
    batch_of,
    scores,
    tokens,
    without_gradient,
)

SELECTORS = [*FROM_TEXT, *LEARNED]
SYSTEMS = ["keyb", "keyb-parade"]
every_selector = pytest.mark.parametrize("selector", SELECTORS)
# One that is done before the model sees the document, and the two that the model does.
every_way = pytest.mark.parametrize("selector", ["bm25", "learned-shared", "learned-separate"])
every_system = pytest.mark.parametrize("name", SYSTEMS)
# KeyB reads 131 - 3 - 6 = 122 tokens beside a query of 6, KeyB-PARADE 40 + 2 * 30 = 100.
CHUNKING = Chunking(window=40, stride=30, max_document_tokens=400)


DOCUMENTS = {f"d{size}": tokens(size, size) for size in (0, 1, 64, 130, 255, 300)}


def config_of(name, backbone, selector="", **settings):
    settings = {"k": 3} | settings if name == "keyb-parade" else settings
    model = Model(name, backbone=str(backbone.folder), selector=selector, **settings)
    return TrialConfig(model=model, chunking=CHUNKING)


@pytest.fixture
def system(backbone):
    """A model in evaluation mode, and its reader of DOCUMENTS."""

    def build(name, selector="", documents=DOCUMENTS, **settings):
        config = config_of(name, backbone, selector, **settings)
        model = build_model(config, backbone, init_seed=1).eval()
        return model, model_class(name).reader(config, backbone, documents)

    return build


def test_blocks_are_taken_from_the_best_on_until_the_budget_is_reached():
    lengths = [30, 40, 50, 60]
    # 60 + 40 = 100 reach a budget of 90: the one chosen last loses 10.
    assert within([3, 1, 0, 2], lengths, 90) == [3, 1]
    assert fitting([3, 1, 0, 2], lengths, 90, truncate_latest=False) == [(1, 30), (3, 60)]
    # The reference cuts the text's end: the best block loses them.
    assert fitting([3, 1, 0, 2], lengths, 90, truncate_latest=True) == [(1, 40), (3, 50)]
    # What just fits is not cut, and nothing is added to it.
    assert fitting([3, 1, 0, 2], lengths, 100, truncate_latest=False) == [(1, 40), (3, 60)]
    assert fitting([0], [0], 90, truncate_latest=False) == []


def test_equal_scores_stay_in_document_order():
    assert by_score(np.array([0.5, 2.0, 0.5, 2.0])) == [1, 3, 0, 2]


def test_passages_hold_what_windows_with_strides_cover():
    assert Passages(225, 200, 5).budget == 1025
    assert Passages(225, 200, 5).spans(1025)[-1] == (800, 1025)
    assert len(Passages(225, 200, 5).spans(1025)) == 5 and len(Passages(477, 477, 1).spans(9)) == 1


def test_a_random_order_depends_only_on_query_and_document():
    def draw(query=QUERY, doc_id="a", selector="random"):
        return by_chance(selector, 20, query, doc_id)

    assert draw() == draw() and sorted(draw()) == list(range(20))
    assert draw() != draw(doc_id="b") and draw() != draw(query=QUERY[:5])
    ends = draw(selector="first-last-sampled")
    assert ends[:2] == [0, 19] and sorted(ends) == list(range(20)) and ends != sorted(ends)
    assert by_chance("first-last-sampled", 1, QUERY, "a") == [0]


WORD = 5  # of the query


def keyed_documents():
    """'long' has 300 tokens, each of them a word, and the query's word at four places; another
    document makes that word neither unseen nor everywhere."""
    text = np.repeat(np.arange(6, 11, dtype=np.int32), 60)
    text[[90, 180, 200, 220]] = WORD
    return {"long": text, "other": np.full(50, 11, dtype=np.int32)}


@pytest.mark.parametrize("selector", ["bm25", "tfidf"])
def test_the_blocks_that_hold_the_query_are_read_in_document_order(selector, system):
    query = np.array([WORD], dtype=np.int32)
    _, pairs = system("keyb", selector, keyed_documents())
    # Without marks blocks are 63, 63, 63, 63 and 48 tokens: [0, 63), [63, 126), [126, 189), ..
    # The word is at 90, 180, 200 and 220: one in blocks 1 and 2 each, two in block 3. The last is
    # the best, then block 1 before 2: 63 + 63 = 126 of 131 - 3 - 1 = 127, so block 2 gives one.
    [chunk] = pairs.chunks(query, "long")
    text = keyed_documents()["long"]
    expected = np.concatenate([text[63:126], text[126:127], text[189:252]])
    assert chunk.text.tolist() == expected.tolist()
    assert len(chunk) == 131
    # The reference cuts the text that is latest in the document instead.
    _, pairs = system("keyb", selector, keyed_documents(), quirks=("truncate-latest",))
    [chunk] = pairs.chunks(query, "long")
    expected = np.concatenate([text[63:126], text[126:189], text[189:190]])
    assert chunk.text.tolist() == expected.tolist()


def test_the_cascade_passes_twice_the_budget_to_the_learned_selection(system):
    documents = keyed_documents() | {"longer": np.tile(keyed_documents()["long"], 2)[:390]}
    _, pairs = system("keyb", "bm25-then-learned", documents)

    def kept(doc_id, word):
        return [chunk.text for chunk in pairs.chunks(np.array([word], dtype=np.int32), doc_id)]

    # Blocks 3, 1, 2 and 0 hold 252 tokens of 2 * 127, so the last one comes along.
    assert [len(text) for text in kept("long", WORD)] == [63, 63, 63, 63, 48]
    # 390 tokens are 6 blocks of 63 and one of 12: five of 63 exceed 254. Blocks 3, 1 and 2 hold
    # the word, then 0 and 4 are the first of those that do not.
    expected = [documents["longer"][start : start + 63].tolist() for start in range(0, 315, 63)]
    assert [text.tolist() for text in kept("longer", WORD)] == expected
    # 10 is the token of places 240 to 299, in blocks 3 and 4; then 0, 1 and 2 are next.
    assert [text.tolist() for text in kept("longer", 10)] == expected
    # 6 is at 0 to 59 and 300 to 359, in blocks 0, 4 and 5; then 1 and 2 are next.
    assert [text[0] for text in kept("longer", 6)] == [
        documents["longer"][63 * i] for i in (0, 1, 2, 4, 5)
    ]


@every_system
@every_selector
def test_a_score_depends_on_its_own_document_alone(name, selector, system):
    model, pairs = system(name, selector)
    doc_ids = list(DOCUMENTS)
    together = assert_each_document_is_scored_alone(model, pairs, doc_ids, spread=1e-3)
    assert torch.equal(scores(*system(name, selector), doc_ids), together)


@every_system
def test_a_document_that_fits_is_read_whole_by_every_selector(name, system):
    expected = scores(*system(name, "bm25"), ["d0", "d1", "d64"])
    for selector in SELECTORS:
        got = scores(*system(name, selector), ["d0", "d1", "d64"])
        assert_close(got, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("selector", ["learned-shared", "bm25-then-learned"])
def test_the_model_selects_blocks_by_its_own_scores(selector, system):
    model, pairs = system("keyb", selector)
    blocks = pairs.chunks(QUERY, "d300")
    with torch.no_grad():
        score_K = model.head(model.encode(pairs.layout(blocks))).squeeze(1)
    # Blocks of 63, 63, 63, 63 and 48 tokens; 122 are read.
    order = score_K.argsort(descending=True).tolist()
    size = [len(chunk.text) for chunk in blocks]
    expected = fitting(order, size, 122, truncate_latest=False)
    [chosen] = model.choose(pairs.collate([blocks]))
    assert chosen == expected and sum(size for _, size in chosen) == 122
    text = np.concatenate([blocks[i].text[:size] for i, size in chosen])
    with torch.no_grad():
        x_1H = model.encode(pairs.layout([Chunk(QUERY, text)]))
        assert_close(scores(model, pairs, ["d300"]), model.score(x_1H), atol=1e-6, rtol=0)


@every_system
@pytest.mark.parametrize("selector", ["learned-shared", "bm25-then-learned"])
def test_blocks_are_selected_again_at_every_step(name, selector, system):
    model, pairs = system(name, selector)
    batch = pairs.collate([pairs.chunks(QUERY, "d300"), pairs.chunks(QUERY, "d1")])
    before = model.choose(batch)
    with torch.no_grad():
        model.head.weight.neg_()  # the best block becomes the worst
    after = model.choose(batch)
    assert before[0] != after[0] and before[1] == after[1] == [(0, 1)]
    # Training changes it as well.
    model, _ = system(name, selector)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    choices = set()
    for _ in range(4):
        choices.add(str(model.choose(batch)[0]))
        model.train()(batch)[0].backward()
        optimizer.step()
        optimizer.zero_grad()
    assert len(choices) > 1


@every_system
def test_a_separate_selector_stays_as_it_is(name, system):
    model, pairs = system(name, "learned-separate")
    batch = pairs.collate([pairs.chunks(QUERY, "d300")])
    before = model.choose(batch)
    # It starts as a copy of the ranker, so it chooses what the ranker would.
    assert before == system(name, "learned-shared")[0].choose(batch)
    with torch.no_grad():
        model.head.weight.neg_()
        model.encoder.embeddings.word_embeddings.weight.normal_()
    assert model.choose(batch) == before
    assert not any(part.startswith("selector.") for part, _ in model.trainable())
    assert any(part.startswith("selector.") for part in model.state_dict())


@pytest.fixture
def trained_selector(backbone, tmp_path):
    """A folder like the backbone's with a head that was trained with it."""
    folder = tmp_path / "selector"
    shutil.copytree(backbone.folder, folder)
    head = torch.nn.Linear(32, 1)
    torch.nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(8))
    save_file(head.state_dict(), folder / RANKING_HEAD)
    return folder, head


def test_a_selector_backbone_has_its_own_head(system, trained_selector):
    folder, head = trained_selector
    model, pairs = system("keyb", "learned-separate", selector_backbone=str(folder))
    assert torch.equal(model.selector.head.weight, head.weight)
    blocks = pairs.chunks(QUERY, "d300")
    with torch.no_grad():
        score_K = head(model.encode(pairs.layout(blocks))).squeeze(1)
    batch = pairs.collate([blocks])
    got = model.score_blocks(batch, list(range(len(blocks))))
    assert_close(torch.tensor(got), score_K, atol=1e-5, rtol=0)


@every_system
@every_way
def test_the_fast_path_gives_the_scores_and_gradients_of_the_definition(name, selector, system):
    (plain, pairs), (fast, _) = (system(name, selector, dropout=0.0) for _ in range(2))
    models = plain.train(), fast.train()
    assert_the_fast_path_is_the_definition(*models, pairs, DOCUMENTS, batch_tokens=300)


@every_system
@every_way
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_gradient_reaches_every_trainable_parameter(name, selector, autocast, system):
    model, pairs = system(name, selector)
    model.train()
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        score_B = model(batch_of(pairs, ("d130", "d300")))
    assert score_B.dtype == torch.float32 and model.training and model.encoder.training
    assert without_gradient(model, score_B) == set()


@every_system
@pytest.mark.parametrize("selector", ["learned-shared", "learned-separate"])
def test_scoring_blocks_uses_neither_dropout_nor_its_random_stream(name, selector, system):
    model, pairs = system(name, selector, dropout=0.3)
    batch = pairs.collate([pairs.chunks(QUERY, "d300")])
    expected = model.choose(batch)
    model.train()
    state = torch.random.get_rng_state()
    assert model.choose(batch) == expected
    assert torch.equal(torch.random.get_rng_state(), state)


@every_system
@pytest.mark.parametrize("selector", ["bm25", "learned-separate"])
def test_bf16_scores_stay_close_to_fp32(name, selector, system):
    model, pairs = system(name, selector)
    run = {"q": dict.fromkeys(DOCUMENTS, 0.0)}
    settings = {"queries": {"q": QUERY}, "candidates": run, "depth": 9, "batch_tokens": 500}
    exact, rounded = (
        rerank(model, pairs, autocast=autocast, **settings)["q"]
        for autocast in (None, torch.bfloat16)
    )
    assert rounded == pytest.approx(exact, abs=2e-2)


@every_system
@every_way
def test_saved_weights_give_the_same_scores(name, selector, system, backbone, tmp_path):
    model, pairs = system(name, selector)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    other = build_model(config_of(name, backbone, selector), backbone, init_seed=2).eval()
    other.load_state_dict(torch.load(tmp_path / "weights.pt"))
    doc_ids = list(DOCUMENTS)
    assert torch.equal(scores(other, pairs, doc_ids), scores(model, pairs, doc_ids))


def test_every_block_can_change_the_selection(system):
    # A new block that scores better than all others is read wherever it is.
    model, pairs = system("keyb", "learned-shared")
    texts = [tokens(200 + i, 63) for i in range(40)]
    with torch.no_grad():
        score_K = model.score(model.encode(pairs.layout([Chunk(QUERY, text) for text in texts])))
    *rest, best = (texts[i] for i in score_K.argsort()[[0, 1, 2, 3, 4, -1]].tolist())
    before = model(pairs.collate([[Chunk(QUERY, text) for text in rest]]))
    for j in range(5):
        changed = [*rest[:j], best, *rest[j + 1 :]]
        after = model(pairs.collate([[Chunk(QUERY, text) for text in changed]]))
        assert (after - before).abs() > 1e-3, f"block {j} is not read"


@pytest.mark.parametrize("num", [1, 2, 3])
def test_keyb_parade_reads_k_passages(num, system):
    _, pairs = system("keyb-parade", "bm25", k=num)
    # 40 tokens and 30 more with every further passage, of 300.
    assert [len(chunk.text) for chunk in pairs.chunks(QUERY, "d300")] == [40] * num


def test_settings_without_an_effect_are_refused(backbone):
    def refused(text, config):
        with pytest.raises(BadInput, match=text):
            check_model(config, backbone)

    good = config_of("keyb-parade", backbone, "bm25")
    check_model(good, backbone)
    refused("did you mean tfidf", config_of("keyb-parade", backbone, "tfidff"))
    idle = config_of("keyb-parade", backbone, "bm25", selector_backbone="tiny")
    refused("selector_backbone has no effect", idle)
    refused("1 to", config_of("keyb-parade", backbone, k=-1))
    refused("quirk", config_of("keyb-parade", backbone, quirks=("other",)))
    refused("max_chunks", replace(good, chunking=replace(CHUNKING, max_chunks=3)))
    refused("= 96", config_of("keyb", backbone))
    whole = replace(CHUNKING, window=96, stride=96)
    check_model(replace(config_of("keyb", backbone), chunking=whole), backbone)


def test_a_selector_of_another_vocabulary_is_refused(backbone, tmp_path, trained_selector):
    folder, _ = trained_selector
    tokenizer = load_tokenizer(backbone.folder)
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["another"])
    other.save_pretrained(folder)
    config = config_of("keyb-parade", backbone, "learned-separate", selector_backbone=str(folder))
    with pytest.raises(BadInput, match="must have the vocabulary"):
        check_model(config, backbone)
