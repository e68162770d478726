"""Embedding models as their folders say: equal to sentence-transformers, or refused by a reason."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rank_core.encoders import embedder, st_folder
from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.embedder import read_embedder
from rank_core.errors import BadInput, OutOfMemory
from rank_core.models.checks import check_model
from rank_core.models.dense import embedding_model
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.models.text_vectors import text_reader
from rank_core.settings.config import TrialConfig
from tests.rank_core.encoders.test_published_heads import config_of, forget, publish
from tests.rank_core.models.embedding_folders import CHAINS, PROMPTS, encoder, saved

BAR = 1e-5
TEXTS = ["w1 w2 w3", "w9", "", "w5 w5 w6 w7 w8 " * 30, *(f"w{i} w{i + 2} w7" for i in range(30))]
QUERIES = ["w3 w4", "w1 w1 w1 w2 w40", "w20"]
DIFFERENCES: dict[str, float] = {}


@pytest.fixture(scope="module", autouse=True)
def library():
    reason = "needs sentence-transformers (extra st)"
    yield pytest.importorskip("sentence_transformers", minversion="6.2", reason=reason)
    for name, difference in DIFFERENCES.items():
        print(f"{name:<28} {difference:.1e}")


def differences(library, path, **loading):
    """The largest differences of vectors and scores to sentence-transformers."""
    model = EmbeddingModel.load(path, device="cpu", **loading)
    theirs = library.SentenceTransformer(path, device="cpu", local_files_only=True, **loading)
    query_QD, document_ND = theirs.encode_query(QUERIES), theirs.encode_document(TEXTS)
    own = model.encode_queries(QUERIES), model.encode_documents(TEXTS)
    assert own[0].dtype == own[1].dtype == np.float32
    assert own[1].shape == (len(TEXTS), model.dimensions) == document_ND.shape
    assert own[0].std(axis=0).max() > 1e-3  # texts differ
    score_QN = theirs.similarity(query_QD, document_ND).numpy()
    pairs = zip((*own, model.scores(*own)), (query_QD, document_ND, score_QN), strict=True)
    return max(float(np.abs(mine - reference).max()) for mine, reference in pairs)


@pytest.mark.parametrize("name", CHAINS)
def test_vectors_and_scores_are_those_of_sentence_transformers(name, library, tmp_path):
    path = saved(library, tmp_path, **CHAINS[name])
    DIFFERENCES[name] = differences(library, path)
    assert DIFFERENCES[name] < BAR


KINDS = (*embedder.KINDS, "longformer", "big_bird")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("jina-bert", "mosaic-bert")])
def test_vectors_of_every_kind_of_encoder(kind, library, tmp_path):
    pooling = "lasttoken" if TYPES[kind].causal else "mean"
    path = saved(library, tmp_path, kind, pooling=pooling, max_seq_length=90)
    DIFFERENCES[kind] = differences(library, path)
    assert DIFFERENCES[kind] < BAR


@pytest.mark.parametrize("kind", ["bert", "qwen3"])
def test_an_encoder_alone_gives_the_mean_of_its_token_vectors(kind, library, tmp_path):
    path = encoder(tmp_path / "alone", kind)
    assert differences(library, path) < BAR
    assert EmbeddingModel.load(path, device="cpu").notes == (
        "It has no modules.json: a text's vector is the mean of the token vectors.",
    )


def test_an_old_folder_that_lowers_texts_and_has_a_limit_of_its_own(library, tmp_path):
    path = saved(library, tmp_path, max_seq_length=20)
    stated = {"max_seq_length": 9, "do_lower_case": True}
    Path(path, "sentence_bert_config.json").write_text(json.dumps(stated))
    forget()
    model = EmbeddingModel.load(path, device="cpu")
    assert model.max_length == 9
    lower, upper = model.encode_documents(["w1 w2", "W1 W2"])
    np.testing.assert_array_equal(lower, upper)
    assert differences(library, path) < BAR


def test_the_length_at_which_a_tokenizer_cuts_by_itself_is_not_read(library, tmp_path):
    path = saved(library, tmp_path)
    file = Path(path, "tokenizer.json")
    content = json.loads(file.read_text())
    cut = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    file.write_text(json.dumps(content | {"truncation": cut}))
    forget()
    model = EmbeddingModel.load(path, device="cpu")
    text = "w1 w2 w3 w4 w5 w6 w7"
    assert len(model.tokenizer.backend_tokenizer.encode(text).ids) == 9
    assert model.length_of(text) == 9
    assert differences(library, path) < BAR


def test_the_lists_of_keys_have_those_that_sentence_transformers_writes(library, tmp_path):
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore
    from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm, Pooling

    for module in (Dense, Normalize, LogitScore, Dropout, LayerNorm, Pooling):
        known = {**st_folder.SETTINGS, **st_folder.KEYS}[module.__name__]
        assert {*module.config_keys} <= {*known}
    found = {*Transformer.config_keys} - st_folder.TRANSFORMER_KEYS - {*st_folder.OF_TOKENS}
    assert found == {st_folder.CALLED}
    path = saved(library, tmp_path, **CHAINS["prompts"], truncate_dim=5)
    model = library.SentenceTransformer(path, device="cpu")
    assert {*model._get_model_config()} <= st_folder.MODEL_KEYS[model.model_type]
    source = publish("bert", tmp_path / "published")
    reranker = library.CrossEncoder(source, device="cpu")
    assert {*reranker._get_model_config()} <= st_folder.MODEL_KEYS[reranker.model_type]


def test_a_title_stands_between_prompt_and_text(library, tmp_path):
    model = EmbeddingModel.load(saved(library, tmp_path, prompts=PROMPTS), device="cpu")
    titled = model.encode_documents(["w2 w3", "w4"], titles=["w1", ""])
    np.testing.assert_array_equal(titled, model.encode_documents(["w1 w2 w3", "w4"]))


def write(path, name, content):
    Path(path, name).write_text(json.dumps(content))
    forget()


def stated(path, **more):
    """Changes config_sentence_transformers.json."""
    name = "config_sentence_transformers.json"
    write(path, name, json.loads(Path(path, name).read_text()) | more)


def modules(path, change):
    found = json.loads(Path(path, "modules.json").read_text())
    change(found)
    write(path, "modules.json", found)


@pytest.mark.parametrize("places", [(".", "1_Pooling/"), ("./", "./1_Pooling")])
def test_a_module_s_folder_may_be_written_in_several_ways(places, library, tmp_path):
    path = saved(library, tmp_path)
    usual = read_embedder(path).modules
    modules(path, lambda m: [m[i].update(path=place) for i, place in enumerate(places)])
    assert read_embedder(path).modules == usual
    assert differences(library, path) < BAR


MEAN = {"embedding_dimension": 16, "pooling_mode": "mean"}


def test_a_transformer_alone_has_no_vectors_of_texts(library, tmp_path):
    path = saved(library, tmp_path)
    modules(path, list.pop)
    assert read_embedder(path).library == "its Transformer has no Pooling behind it"


SILENT = {
    "null": lambda path: write(f"{path}/1_Pooling", "config.json", MEAN | {"include_prompt": None}),
    "null of PyLate": lambda path: stated(path, query_prefix=None, query_length=None),
    "code": lambda path: write(
        path,
        "sentence_bert_config.json",
        {"max_seq_length": 20, "model_args": {"trust_remote_code": True}},
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_states_nothing_is_read_as_sentence_transformers_does(name, library, tmp_path):
    path = saved(library, tmp_path, prompts=PROMPTS)
    SILENT[name](path)
    assert ("include_prompt" in read_embedder(path).library) == (name == "null")
    assert read_embedder(path).library == "" or name == "null"
    assert differences(library, path) < BAR


BROKEN = {
    "prompts that are not texts": (
        lambda path: stated(path, prompts={"query": 5}),
        r"json has the prompt query=5, which is not a text",
    ),
    "prompts without names": (
        lambda path: stated(path, prompts=["query: "]),
        r"has prompts=\['query: '\], which is not a table",
    ),
    "a default prompt that is not there": (
        lambda path: stated(path, default_prompt_name="all"),
        r"default_prompt_name='all', which is not one of its prompts",
    ),
    "an unknown similarity": (
        lambda path: stated(path, similarity_fn_name="cosin"),
        r"unknown similarity_fn_name in .*'cosin'; did you mean cosine\?",
    ),
    "more dimensions than there are": (
        lambda path: stated(path, truncate_dim=17),
        r"truncate_dim must be from 1 to 16, the dimensions of .*, got 17",
    ),
    "a size of zero": (
        lambda path: write(path, "sentence_bert_config.json", {"max_seq_length": 0}),
        r"has max_seq_length=0, which is not a size",
    ),
    "an unknown module": (
        lambda path: modules(path, lambda m: m[1].update(type="sentence_transformers.models.Foo")),
        r"its module Foo \(1_Pooling\) .* is not read; known: Transformer, Pooling, Dense",
    ),
    "a key of a newer version": (
        lambda path: write(f"{path}/1_Pooling", "config.json", MEAN | {"k": 2}),
        r"unknown key 'k' of a Pooling; is it of a newer sentence-transformers\? Remove the key",
    ),
    "a Pooling that is not copied": (
        lambda path: shutil.rmtree(f"{path}/1_Pooling"),
        r"1_Pooling/config.json is missing, which states embedding_dimension of a Pooling",
    ),
    "a Pooling without a size": (
        lambda path: write(f"{path}/1_Pooling", "config.json", {"pooling_mode": "cls"}),
        r"1_Pooling/config.json states no embedding_dimension of a Pooling",
    ),
    "a mode that is no name": (
        lambda path: write(f"{path}/1_Pooling", "config.json", MEAN | {"pooling_mode": 3}),
        r"has pooling_mode=3, which is no name",
    ),
    "a module with code of its own": (
        lambda path: modules(path, lambda m: m[1].update(type="custom_st.Pooling")),
        r"brings along the code of Pooling \(1_Pooling\), which is never run unless .*trust_code",
    ),
    "a reranker": (
        lambda path: stated(path, model_type="CrossEncoder"),
        r"is a 'CrossEncoder' .*; an embedding model gives one vector for a text",
    ),
    "modules that do not fit": (
        lambda path: write(
            f"{path}/2_Dense", "config.json", {"in_features": 15, "out_features": 12}
        ),
        r"does not hold the weights of a Dense",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_refused_by_its_name(name, library, tmp_path):
    path = saved(library, tmp_path, dense=name == "modules that do not fit")
    breaks, message = BROKEN[name]
    breaks(path)
    with pytest.raises(BadInput, match=message):
        EmbeddingModel.load(path, device="cpu")


UNUSED = {
    "a key of a Normalize": (
        lambda path: write(f"{path}/2_Normalize", "config.json", {"p": 1}),
        "the unknown key 'p' of a Normalize",
    ),
    "dimensions": (lambda path: stated(path, truncate_dim=0), "truncate_dim=0, which is not a"),
    "a prompt": (lambda path: stated(path, default_prompt_name="all"), "default_prompt_name='all'"),
    "a length": (
        lambda path: write(path, "sentence_bert_config.json", {"max_seq_length": 0}),
        "max_seq_length=0, which is not a size",
    ),
}


@pytest.mark.parametrize("name", UNUSED)
def test_a_backbone_alone_is_not_refused_for_modules_that_it_does_not_use(name, library, tmp_path):
    path = saved(library, tmp_path, normalize=True)
    breaks, message = UNUSED[name]
    breaks(path)
    for model in ("firstp", "parade-max"):
        check_model(config_of(path, model, **{"training.num_epochs": 1}), resolve_backbone(path))
    for model in ("bi-encoder", "late-interaction", "dense"):
        with pytest.raises(BadInput, match=message):
            check_model(config_of(path, model), resolve_backbone(path))


@pytest.mark.parametrize("dimensions", [0, 17, True, 2.5])
def test_more_dimensions_than_there_are_are_refused(dimensions, library, tmp_path):
    path = saved(library, tmp_path)
    with pytest.raises(BadInput, match="truncate_dim must be from 1 to 16"):
        EmbeddingModel.load(path, truncate_dim=dimensions, device="cpu")


def test_a_window_that_would_be_cut_is_refused_with_the_largest(library, tmp_path):
    path = saved(library, tmp_path, prompts=PROMPTS, max_seq_length=20)
    model = EmbeddingModel.load(path, device="cpu")
    assert model.max_window == 20 - 2 - 1
    model.check_window(17)
    with pytest.raises(
        BadInput, match=r"chunking.window <= 17 must hold for .* reads 20 tokens, 3"
    ):
        model.check_window(18)
    with pytest.raises(BadInput, match=r"reads 20 tokens, which the prompt 'w1 .* fills"):
        EmbeddingModel.load(path, document_prompt="w1 " * 18, device="cpu")


def test_a_classifier_without_modules_is_no_embedding_model(tmp_path):
    path = publish("bert", tmp_path / "published")
    with pytest.raises(BadInput, match=r"is a BertForSequenceClassification .*scores or"):
        EmbeddingModel.load(path, device="cpu")


def card(path, name):
    """Writes a model card as the publishers of measured models do."""
    Path(path, "README.md").write_text(
        f"---\nmodel-index:\n- name: {name}\n  results: []\n---\n# A"
    )
    forget()


def test_a_model_is_e5_where_its_card_says_so_and_no_prompt_is_stated(library, tmp_path):
    path = saved(library, tmp_path / "e5-base-v2")  # which says nothing
    plain = EmbeddingModel.load(path, device="cpu")
    assert (plain.query_prompt, plain.document_prompt) == ("", "")
    card(path, "e5-base-v2")
    model = EmbeddingModel.load(path, device="cpu")
    assert (model.query_prompt, model.document_prompt) == ("query: ", "passage: ")
    assert "It is e5-base-v2, whose prompts are in its model card alone." in model.notes
    assert model.content_hash != plain.content_hash
    own = EmbeddingModel.load(path, query_prompt="", document_prompt="text: ", device="cpu")
    assert (own.query_prompt, own.document_prompt) == ("", "text: ")
    stated(path, prompts={"query": "w1 "})
    model = EmbeddingModel.load(path, device="cpu")
    assert (model.query_prompt, model.document_prompt) == ("w1 ", "")
    card(path, "e5-mistral-7b-instruct")
    stated(path, prompts={})
    assert EmbeddingModel.load(path, device="cpu").query_prompt == ""


def test_prompts_that_encode_document_leaves_out_are_named(library, tmp_path):
    path = saved(library, tmp_path, **CHAINS["passage prompt"])
    [note] = EmbeddingModel.load(path, device="cpu").notes
    assert note.startswith("Its prompts passage are not used, as in encode_query and")


def test_a_prompt_may_be_given_by_its_name(library, tmp_path):
    path = saved(library, tmp_path, prompts={"query": "w1 ", "fact": "w2 ", "none": ""})
    facts = read_embedder(path, query_prompt="@fact", document_prompt="@none")
    assert (facts.query_prompt, facts.document_prompt) == ("w2 ", "")
    assert read_embedder(path, query_prompt="fact").query_prompt == "fact"
    unknown = r"has no prompt of the name 'ask' \(@ask\); known: document, fact, none, query"
    with pytest.raises(BadInput, match=unknown):
        read_embedder(path, document_prompt="@ask")
    plain = saved(library, tmp_path / "plain")
    with pytest.raises(BadInput, match=r"has no prompt of the name 'ask'"):
        read_embedder(plain, query_prompt="@ask")


def test_one_embedding_serves_all_dimensions_and_query_prompts(library, tmp_path):
    """Whatever changes no vector of a document in all its dimensions."""
    path, load = saved(library, tmp_path, prompts=PROMPTS, normalize=True), EmbeddingModel.load
    first = load(path, device="cpu")
    for loading in ({"truncate_dim": 5}, {"query_prompt": "w1 "}):
        model = load(path, device="cpu", **loading)
        assert model.vectors_hash == first.vectors_hash and model.content_hash != first.content_hash
        np.testing.assert_array_equal(model.encode_whole(TEXTS), first.encode_whole(TEXTS))
        assert model.encode_documents(TEXTS).shape[1] == model.dimensions
    for loading in ({"document_prompt": "w1 "}, {"precision": "bf16"}):
        assert load(path, device="cpu", **loading).vectors_hash != first.vectors_hash
    plain = load(saved(library, tmp_path / "plain"), device="cpu")
    assert plain.vectors_hash == plain.content_hash, "vectors stored before keep their names"


def test_the_library_leaves_the_dimensions_to_whoever_reads_the_vectors(library, tmp_path):
    path = saved(library, tmp_path, **CHAINS["prompts left out"], truncate_dim=5)
    model = EmbeddingModel.load(path, device="cpu")
    assert read_embedder(path).library and (model.dimensions, model.all_dimensions) == (5, 16)
    assert model.encode_whole(TEXTS).shape[1] == 16
    assert differences(library, path) < BAR
    assert differences(library, path, truncate_dim=9) < BAR


def test_the_hash_is_of_all_that_changes_a_vector(library, tmp_path):
    path = saved(library, tmp_path, dense=True)
    load = EmbeddingModel.load
    first = load(path, device="cpu").content_hash
    moved = shutil.copytree(path, tmp_path / "elsewhere")
    forget()
    assert load(str(moved), device="cpu").content_hash == first
    hashes = {first, load(path, truncate_dim=3, device="cpu").content_hash}
    hashes |= {load(path, document_prompt="w1 ", device="cpu").content_hash}
    hashes |= {load(path, precision="bf16", device="cpu").content_hash}
    pooling = Path(path, "1_Pooling", "config.json")
    write(path, "1_Pooling/config.json", json.loads(pooling.read_text()) | {"pooling_mode": "cls"})
    hashes |= {load(path, device="cpu").content_hash}
    weights = Path(path, "2_Dense", "model.safetensors")
    save_file({n: w + 1 for n, w in load_file(weights).items()}, weights)
    hashes |= {load(path, device="cpu").content_hash}
    stated(path, similarity_fn_name="dot")
    hashes |= {load(path, device="cpu").content_hash}
    assert len(hashes) == 7


def test_other_chains_are_left_to_sentence_transformers(library, tmp_path):
    from sentence_transformers.base.modules import Router, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding

    torch.manual_seed(5)
    first = Transformer(encoder(tmp_path / "encoder"))
    static = StaticEmbedding(first.tokenizer, embedding_dim=16)
    for name, chain in {
        "StaticEmbedding": [static],
        "Router": [Router.for_query_document([static], [first, Pooling(16)])],
    }.items():
        path = str(tmp_path / name)
        whole = library.SentenceTransformer(modules=chain, device="cpu", prompts=PROMPTS)
        whole.save(path, create_model_card=False)
        forget()
        DIFFERENCES[name] = differences(library, path)
        assert DIFFERENCES[name] < BAR
        model = EmbeddingModel.load(path, device="cpu")
        assert model.notes[-1].startswith("sentence-transformers computes its vectors: its first m")
        assert model.length_of("w1 w2") >= 2


def test_without_sentence_transformers_what_it_has_to_read_is_refused(
    library, tmp_path, monkeypatch
):
    path = saved(library, tmp_path, **CHAINS["prompts left out"])
    monkeypatch.setattr("rank_core.models.text_vectors.find_spec", lambda name: None)
    message = r"sentence-transformers, which has to read .*include_prompt.*, is not installed; .*st"
    with pytest.raises(BadInput, match=message):
        EmbeddingModel.load(path, device="cpu")


def reader(library, folder, **chain):
    facts = read_embedder(saved(library, folder, **chain))
    return text_reader(facts, torch.device("cpu"), None, trust_code=False)


def test_flat_rows_give_the_same_vectors(library, tmp_path):
    own = reader(library, tmp_path, dense=True, normalize=True)
    padded = own.encode(TEXTS, queries=False)
    own.encoder.reads_flat_rows = True  # as on a GPU with 16-bit products
    np.testing.assert_allclose(own.encode(TEXTS, queries=False), padded, atol=BAR, rtol=0)


def test_a_batch_that_does_not_fit_is_read_in_halves(library, tmp_path, monkeypatch):
    own = reader(library, tmp_path)
    whole = own.encode(TEXTS, queries=False)
    read, sizes = own._vectors_together, []

    def little_memory(rows):
        if len(rows) > 2:
            raise RuntimeError("CUDA out of memory")
        sizes.append(len(rows))
        return read(rows)

    monkeypatch.setattr(own, "_vectors_together", little_memory)
    np.testing.assert_allclose(own.encode(TEXTS, queries=False), whole, atol=BAR, rtol=0)
    assert max(sizes) == 2
    monkeypatch.setattr(own, "_vectors_together", lambda rows: little_memory([*rows] * 3))
    with pytest.raises(OutOfMemory, match=r"cannot hold a row of \d+ tokens"):
        own.encode(TEXTS, queries=False)


def test_in_16_bits_vectors_differ_by_rounding(library, tmp_path):
    path = saved(library, tmp_path, normalize=True)
    own = [EmbeddingModel.load(path, device="cpu", precision=p) for p in ("fp32", "bf16")]
    wide, narrow = (model.encode_documents(TEXTS) for model in own)
    assert 0 < np.abs(wide - narrow).max() < 0.05


def test_settings_replace_what_the_folder_of_a_dense_cell_says():
    config = TrialConfig().override({"model.name": "dense", "model.backbone": "tiny-docs"})
    own = {"model.query_prompt": "ask: ", "model.document_prompt": "", "model.truncate_dim": 24}
    found = embedding_model(config.override(own), "cpu")
    assert (found.query_prompt, found.document_prompt, found.dimensions) == ("ask: ", "", 24)
    plain = embedding_model(config, "cpu")
    assert plain.dimensions == 96 and plain.content_hash != found.content_hash
    one, whole = (model.encode_documents(["a tuple of names"]) for model in (found, plain))
    np.testing.assert_allclose(one, whole[:, :24], atol=1e-6)
