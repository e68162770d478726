"""KeyB: selected blocks, their order and truncation, and selection by current weights."""

import copy
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close
from transformers import AutoModel

from rank_core.chunking.batches import Chunk
from rank_core.encoders.backbones import load_tokenizer
from rank_core.encoders.shipped import RANKING_HEAD
from rank_core.errors import BadInput
from rank_core.models.checks import check_model
from rank_core.models.key_blocks import FROM_TEXT, LEARNED, fitting, within
from rank_core.settings.config import Chunking, Model, TrialConfig
from rank_core.testing.laws import QUERY, scores, tokens

SELECTORS = [*FROM_TEXT, *LEARNED]
SYSTEMS = ["keyb", "keyb-parade"]
every_system = pytest.mark.parametrize("name", SYSTEMS)
# KeyB reads 131 - 3 - 6 = 122 tokens beside a query of 6, KeyB-PARADE 40 + 2 * 30 = 100.
CHUNKING = Chunking(window=40, stride=30, max_document_tokens=400)


DOCUMENTS = {f"d{size}": tokens(size, size) for size in (0, 1, 64, 130, 255, 300)}


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
    _, pairs = system("keyb", keyed_documents(), selector=selector)
    # Without marks blocks are 63, 63, 63, 63 and 48 tokens: [0, 63), [63, 126), [126, 189), ..
    # The word is at 90, 180, 200 and 220: one in blocks 1 and 2 each, two in block 3. The last is
    # the best, then block 1 before 2: 63 + 63 = 126 of 131 - 3 - 1 = 127, so block 2 gives one.
    [chunk] = pairs.chunks(query, "long")
    text = keyed_documents()["long"]
    expected = np.concatenate([text[63:126], text[126:127], text[189:252]])
    assert chunk.text.tolist() == expected.tolist()
    assert len(chunk) == 131
    # The reference cuts the text that is latest in the document instead.
    _, pairs = system("keyb", keyed_documents(), selector=selector, quirks=("truncate-latest",))
    [chunk] = pairs.chunks(query, "long")
    expected = np.concatenate([text[63:126], text[126:189], text[189:190]])
    assert chunk.text.tolist() == expected.tolist()


def test_the_cascade_passes_twice_the_budget_to_the_learned_selection(system):
    documents = keyed_documents() | {"longer": np.tile(keyed_documents()["long"], 2)[:390]}
    _, pairs = system("keyb", documents, selector="bm25-then-learned")

    def kept(doc_id):
        return [chunk.text for chunk in pairs.chunks(np.array([WORD], dtype=np.int32), doc_id)]

    # Blocks 3, 1, 2 and 0 hold 252 tokens of 2 * 127, so the last one comes along.
    assert [len(text) for text in kept("long")] == [63, 63, 63, 63, 48]
    # 390 tokens are 6 blocks of 63 and one of 12: five of 63 exceed 254. Blocks 3, 1 and 2 hold
    # the word, then 0 and 4 are the first of those that do not.
    expected = [documents["longer"][start : start + 63].tolist() for start in range(0, 315, 63)]
    assert [text.tolist() for text in kept("longer")] == expected


@every_system
def test_a_document_that_fits_is_read_whole_by_every_selector(name, system):
    expected = scores(*system(name, selector="bm25", k=3), ["d0", "d1", "d64"])
    for selector in SELECTORS:
        got = scores(*system(name, selector=selector, k=3), ["d0", "d1", "d64"])
        assert_close(got, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("selector", ["learned-shared", "bm25-then-learned"])
def test_the_model_selects_blocks_by_its_own_scores(selector, system):
    model, pairs = system("keyb", selector=selector)
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


@pytest.mark.parametrize("selector", ["bm25", "tfidf", "learned-shared", "bm25-then-learned"])
def test_a_selector_without_preference_reads_the_first_blocks(selector, system):
    model, pairs = system("keyb", keyed_documents(), selector=selector)
    with torch.no_grad():
        model.head.weight.zero_()
    # No block holds the word: equal scores, in document order. 127 tokens are two blocks of 63 and
    # one token of the third; the other document fits.
    word = np.array([99], dtype=np.int32)
    read = model.blocks_read(pairs, word, ["long", "other"])
    assert read == [((0, 1, 2), 5), ((0,), 1)]


def test_the_positions_of_blocks_are_those_of_the_document(system):
    # Six blocks of 63 tokens and one of 12; all but the first two hold the word.
    text = np.full(390, 10, dtype=np.int32)
    text[[130, 200, 260, 320, 380]] = WORD
    query, documents = np.array([WORD], dtype=np.int32), {"late": text}
    model, pairs = system("keyb", documents, selector="bm25")
    # The short block is the best, then the earlier ones: 12 + 63 + 52 are 127 tokens.
    assert model.blocks_read(pairs, query, ["late"]) == [((2, 3, 6), 7)]
    model, pairs = system("keyb", documents, selector="bm25-then-learned")
    with torch.no_grad():
        model.head.weight.zero_()
    # The cascade passes on all that hold the word; without preference the first of these are read.
    assert model.blocks_read(pairs, query, ["late"]) == [((2, 3, 4), 7)]


@every_system
def test_a_separate_selector_stays_as_it_is(name, system):
    model, pairs = system(name, selector="learned-separate", k=3)
    batch = pairs.collate([pairs.chunks(QUERY, "d300")])
    before = model.choose(batch)
    # It starts as a copy of the ranker, so it chooses what the ranker would.
    assert before == system(name, selector="learned-shared", k=3)[0].choose(batch)
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
    model, pairs = system("keyb", selector="learned-separate", selector_backbone=str(folder))
    assert torch.equal(model.selector.head.weight, head.weight)
    blocks = pairs.chunks(QUERY, "d300")
    with torch.no_grad():
        score_K = head(model.encode(pairs.layout(blocks))).squeeze(1)
    batch = pairs.collate([blocks])
    got = model.score_blocks(batch, list(range(len(blocks))))
    assert_close(torch.tensor(got), score_K, atol=1e-5, rtol=0)


@every_system
@pytest.mark.parametrize("selector", ["learned-shared", "learned-separate"])
def test_scoring_blocks_uses_neither_dropout_nor_its_random_stream(name, selector, system):
    model, pairs = system(name, selector=selector, k=3, dropout=0.3)
    batch = pairs.collate([pairs.chunks(QUERY, "d300")])
    expected = model.choose(batch)
    model.train()
    state = torch.random.get_rng_state()
    assert model.choose(batch) == expected
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_selector_of_another_vocabulary_is_refused(backbone, tmp_path, trained_selector):
    folder, _ = trained_selector
    tokenizer = load_tokenizer(backbone.folder)
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["another"])
    other.save_pretrained(folder)
    encoder = AutoModel.from_pretrained(folder)
    encoder.resize_token_embeddings(len(other))
    encoder.save_pretrained(folder)
    settings = {"selector": "learned-separate", "selector_backbone": str(folder)}
    model = Model("keyb-parade", backbone=str(backbone.folder), **settings)
    config = TrialConfig(model=model, chunking=CHUNKING)
    with pytest.raises(BadInput, match="must have the vocabulary"):
        check_model(config, backbone)
