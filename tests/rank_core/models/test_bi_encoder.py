"""The bi-encoder: cosines by hand, prefixes, extended positions, training."""

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
)

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.chunking.inputs import content_hashes
from rank_core.chunking.token_store import tokenize
from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.encoders.embedder import position_steps
from rank_core.errors import BadInput
from rank_core.export.folder import write_model
from rank_core.models.bi_encoder import BiEncoder, facts_of
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.settings.config import Chunking, Model, TrialConfig
from tests.benchmarks.kinds import write_classifier, write_encoder
from tests.rank_core.encoders.test_published_heads import publish
from tests.rank_core.models.embedding_folders import CHAINS, saved

CHUNKING = Chunking(window=40, stride=40, max_document_tokens=80, max_query_tokens=32)
QUERY = np.arange(10, 16, dtype=np.int32)
TEXT = np.arange(30, 50, dtype=np.int32)


def built(backbone, **model):
    config = TrialConfig(
        model=Model("bi-encoder", backbone=str(backbone.folder), **model), chunking=CHUNKING
    )
    return build_model(config, backbone, init_seed=1).eval()


def scores(model, backbone, documents, query=QUERY):
    """The cosines of the best chunks: scores without the temperature."""
    pairs = PairEncoder({}, CHUNKING, False, backbone)
    chunks = [[Chunk(query, text) for text in texts] for texts in documents]
    with torch.inference_mode():
        return model(pairs.collate(chunks)) * BiEncoder.TEMPERATURE


def alone(model, backbone, prefix, text, step=1):
    """The mean vector of [CLS] prefix text [SEP], read by itself."""
    marks = load_tokenizer(backbone.folder)(prefix, add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[backbone.cls_id, *marks, *text.tolist(), backbone.sep_id]])
    with torch.inference_mode():
        output = model.encoder(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            position_ids=torch.arange(ids.shape[1])[None] * step,
        )
    return output.last_hidden_state[0].mean(0)


def test_a_pair_whose_cosines_differ_by_the_temperature_differs_by_a_margin_of_one(backbone):
    # Pairwise margins are 1: hardly possible for cosines, but a hundredth of it is.
    with torch.inference_mode():
        high, low = built(backbone).score(torch.tensor([[0.93], [0.92]]))
    assert (high - low).item() == pytest.approx(1.0, rel=1e-4)


CARD = "---\nmodel-index:\n- name: e5-base-4k\n  results: []\n---\n"


def long_bert(folder, backbone):
    """A BERT of 1024 positions, twice those that its kind began with."""
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=150,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=1024,
        initializer_range=0.3,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    load_tokenizer(backbone.folder).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def stretched(backbone, tmp_path_factory):
    """One that says that it is E5-Base-4k."""
    folder = tmp_path_factory.mktemp("stretched")
    (folder / "README.md").write_text(CARD)
    return resolve_backbone(long_bert(folder, backbone))


def test_positions_are_spread_by_the_name_of_a_model_and_not_by_their_number(
    stretched, backbone, tmp_path
):
    plain = resolve_backbone(long_bert(tmp_path / "plain", backbone))
    assert facts_of(Model("bi-encoder"), plain).position_step == 1
    assert facts_of(Model("bi-encoder"), stretched).position_step == 2
    long = {"max_position_embeddings": 4096}
    config = tmp_path / "plain" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | long))
    assert position_steps(str(tmp_path / "plain")) == (1, 8)
    (tmp_path / "plain" / "README.md").write_text(CARD)
    assert position_steps(str(tmp_path / "plain")) == (8, 8)


@pytest.mark.parametrize("name", ["bi-encoder", "late-interaction"])
def test_an_export_spreads_the_positions_of_its_encoder(name, stretched, tmp_path):
    config = TrialConfig(model=Model(name, backbone=str(stretched.folder)), chunking=CHUNKING)
    model = build_model(config, stretched, init_seed=1)
    save_weights(tmp_path, {name: w.clone() for name, w in model.state_dict().items()})
    write_model(tmp_path / "m", config, tmp_path / WEIGHTS)
    assert position_steps(str(tmp_path / "m"))[0] == 2


PAIRS = {"roberta": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"), "gpt2": ("$A", "$A $B")}


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("name", ["bi-encoder", "late-interaction"])
def test_a_reranker_s_encoder_reads_texts_without_the_tokens_of_its_pairs(name, kind, tmp_path):
    write_classifier(kind, tmp_path / "classifier")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "classifier")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=PAIRS[kind][0], pair=PAIRS[kind][1], special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.save_pretrained(tmp_path / "classifier")
    whole = AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier")
    whole.base_model.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    found = []
    for part in ("classifier", "encoder"):
        config = TrialConfig(model=Model(name, backbone=str(tmp_path / part)), chunking=CHUNKING)
        backbone = resolve_backbone(config.model.backbone)
        assert (backbone.own_layout is not None) is (part == "classifier")
        check_model(config, backbone)
        model = build_model(config, backbone, init_seed=1).eval()
        if found:
            model.head.load_state_dict(found[0][1].state_dict())
        reader = type(model).reader(config, backbone, {"a": TEXT})
        rows = reader.collate([reader.chunks(QUERY, "a")])
        with torch.inference_mode():
            found.append((model(rows), model.head))
        named = "model.rows" in content_hashes(config)
        assert named is (part == "classifier" and name == "bi-encoder")
    assert_close(found[0][0], found[1][0])


def test_trials_whose_positions_are_read_otherwise_have_other_names(stretched, backbone, tmp_path):
    plain = long_bert(tmp_path / "plain", backbone)
    for path, named in ((str(stretched.folder), ["dense", "dense-cut"]), (plain, ["bi-encoder"])):
        for name in ("bi-encoder", "dense", "dense-cut", "maxp"):
            config = TrialConfig(model=Model(name, backbone=path))
            assert ("model.positions" in content_hashes(config)) is (name in named)


def test_rows_of_at_most_512_tokens_are_spread_over_a_stretched_table(stretched):
    model = built(stretched, query_prompt="query: ", document_prompt="passage: ")
    assert model.facts.position_step == 2  # 1024 / 512; 8 for the 4096 of E5-Base-4k
    query = alone(model, stretched, "query: ", QUERY, step=2)
    long = np.random.default_rng(0).integers(5, 150, 600).astype(np.int32)
    expected = [
        cosine_similarity(query, alone(model, stretched, "passage: ", text, step), dim=0)
        for text, step in ((TEXT, 2), (long, 1))
    ]
    # Together in one batch: a row's own length decides, not its neighbours'.
    assert_close(
        scores(model, stretched, [[TEXT], [long]]), torch.stack(expected), atol=1e-5, rtol=0
    )


@pytest.fixture(scope="module")
def library():
    reason = "needs sentence-transformers (extra st)"
    return pytest.importorskip("sentence_transformers", minversion="6.2", reason=reason)


TEXTS = ["w1 w2 w3 w4", "w9", "w5 w5 w6 w7 w8 w11 w12", "w30 w1 w7 w45"]
QUERIES = ["w3 w4", "w1 w1 w40"]


def chunk_scores(path, **model):
    """s_QN of a bi-encoder that reads whole texts, without its scale."""
    settings = Model("bi-encoder", backbone=path, dropout=0.0, **model)
    config = TrialConfig(model=settings, chunking=CHUNKING)
    backbone = resolve_backbone(path)
    check_model(config.override({"training.num_epochs": 0}), backbone)
    own = build_model(config, backbone, init_seed=1).eval()
    layout = own.backbone_of(settings, backbone).layout
    tokenizer = load_tokenizer(backbone.folder)
    queries = tokenize(tokenizer, QUERIES, layout.before_query)
    texts = tokenize(tokenizer, TEXTS, layout.before_text)
    pairs = PairEncoder({}, CHUNKING, False, backbone)
    rows = [
        [Chunk(np.array(query, np.int32), np.array(text, np.int32)) for text in texts]
        for query in queries
    ]
    with torch.inference_mode():
        s_C1 = own.encode(pairs.layout([chunk for row in rows for chunk in row]))
    return s_C1.reshape(len(QUERIES), len(TEXTS)).numpy()


@pytest.mark.parametrize("name", [n for n in CHAINS if n != "prompts left out"])
def test_scores_are_those_of_the_embedding_model(name, library, tmp_path):
    path = saved(library, tmp_path, **CHAINS[name])
    theirs = library.SentenceTransformer(path, device="cpu", local_files_only=True)
    vectors = theirs.encode_query(QUERIES), theirs.encode_document(TEXTS)
    expected = theirs.similarity(*vectors).numpy()
    if name == "max_seq_length":
        with pytest.raises(BadInput, match=r"chunking.max_query_tokens <= 9 must hold.* reads 11"):
            chunk_scores(path)
        return
    np.testing.assert_allclose(chunk_scores(path), expected, atol=1e-5, rtol=0)
    assert expected.std() > 1e-3
    dense = EmbeddingModel.load(path, device="cpu")  # as it is read in retrieval
    found = dense.scores(dense.encode_queries(QUERIES), dense.encode_documents(TEXTS))
    np.testing.assert_allclose(chunk_scores(path), found, atol=1e-5, rtol=0)


OTHER_KINDS = ["gte", pytest.param("gemma3_text", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_an_encoder_of_any_kind_alone_is_read_as_its_tokenizer_writes_texts(
    kind, library, tmp_path
):
    write_encoder(kind, tmp_path)
    theirs = library.SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    expected = theirs.similarity(theirs.encode(QUERIES), theirs.encode(TEXTS)).numpy()
    found = chunk_scores(str(tmp_path))
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    dense = EmbeddingModel.load(str(tmp_path), device="cpu")
    vectors = dense.encode_queries(QUERIES), dense.encode_documents(TEXTS)
    np.testing.assert_allclose(found, theirs.similarity(*vectors).numpy(), atol=1e-5, rtol=0)


def byte_level(library, folder):
    """An embedding model whose tokenizer writes a word and the space before it as one token."""
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    texts = [*TEXTS, *QUERIES, "find: w1 w2 w3 find: "] * 9
    words = Tokenizer(models.BPE(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words.train_from_iterator(
        texts, trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet)
    )
    words.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    marks = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    place = folder / "encoder"
    PreTrainedTokenizerFast(tokenizer_object=words, **marks).save_pretrained(place)
    torch.manual_seed(2)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=320, intermediate_size=24, initializer_range=0.4, **sizes)
    BertModel(config).save_pretrained(place)
    prompts = {"query": "find: ", "document": "text:"}
    chain = [Transformer(str(place)), Pooling(16)]
    whole = library.SentenceTransformer(modules=chain, device="cpu", prompts=prompts)
    whole.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def test_the_space_that_ends_a_prompt_is_of_the_first_word(library, tmp_path):
    path = byte_level(library, tmp_path)
    settings, backbone = Model("bi-encoder", backbone=path), resolve_backbone(path)
    layout = BiEncoder.backbone_of(settings, backbone).layout
    assert (layout.before_query, layout.before_text) == (" ", "")
    theirs = library.SentenceTransformer(path, device="cpu", local_files_only=True)
    vectors = theirs.encode_query(QUERIES), theirs.encode_document(TEXTS)
    expected = theirs.similarity(*vectors).numpy()
    np.testing.assert_allclose(chunk_scores(path), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("chain", "scale"),
    [
        ({}, 100),
        ({"similarity_fn_name": "dot", "normalize": True}, 100),
        ({"similarity_fn_name": "dot", "normalize": True, "truncate_dim": 5}, 1),
        ({"similarity_fn_name": "dot"}, 1),
        ({"similarity_fn_name": "euclidean"}, 1),
    ],
)
def test_the_scale_is_the_temperature_s_where_vectors_have_length_1(
    chain, scale, library, tmp_path
):
    path = saved(library, tmp_path, **chain)
    assert built(resolve_backbone(path)).head.weight.item() == pytest.approx(scale)


REFUSED = {
    "more dimensions than there are": (
        {},
        {"truncate_dim": 17},
        "truncate_dim must be from 1 to 16",
    ),
    "a chain that is not computed here": (
        CHAINS["prompts left out"],
        {},
        r"not trained here: its module Pooling \(1_Pooling\) leaves out the prompt",
    ),
    "a window that would be cut": (
        {"max_seq_length": 40},
        {"document_prompt": "w1 w2 "},
        r"chunking.window <= 36 must hold for .* reads 40 tokens, 4 of them .*window=40",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_read_wrongly_is_refused(name, library, tmp_path):
    chain, model, message = REFUSED[name]
    path = saved(library, tmp_path, **chain)
    config = TrialConfig(model=Model("bi-encoder", backbone=path, **model), chunking=CHUNKING)
    with pytest.raises(BadInput, match=message):
        check_model(config, resolve_backbone(path))


def test_of_a_reranker_it_takes_the_encoder_alone(tmp_path):
    path = publish("bert", tmp_path / "published")
    model = built(resolve_backbone(path), query_prompt="w1 ")
    assert (model.pooling, model.facts.query_prompt, model.facts.document_prompt) == (
        "mean",
        "w1 ",
        "",
    )
