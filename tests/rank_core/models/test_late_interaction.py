"""Late interaction: MaxSim by hand, and the scores of sentence-transformers for saved forms."""

import json
import string
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.chunking.token_store import tokenize
from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.encoders.embedder import read_embedder
from rank_core.encoders.multi_vector import read_multi_vector
from rank_core.errors import BadInput
from rank_core.models import late_interaction
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.models.late_interaction import ColBert
from rank_core.ranking.rerank import rerank
from rank_core.settings.config import Chunking, Model, TrialConfig
from tests.rank_core.models.embedding_folders import encoder

CHUNKING = Chunking(window=8, stride=8, max_query_tokens=4, max_document_tokens=60)
TEXTS = ["w1 w2 w3 w4", "w9", "w5 w5 w6 w7 w8 w11 w12", "w30 w1 w7 w45 w5"]
QUERIES = ["w3 w4", "w1 w1 w40 w2", ""]
FIXED = {"strategy": "fixed", "length": 12, "token": "w44"}
IDENTITY = "torch.nn.modules.linear.Identity"
FORMS = {
    "plain": {},
    "prompts": {"prompts": {"query": "w30 w31 ", "document": "w32 "}},
    "skiplist": {"mask": {"skiplist_words": ["w5", "w7", "none", "w9"]}},
    "skiplist of queries": {"mask": {"skiplist_words": ["w1"], "skiplist_tasks": ["query"]}},
    "kept ids": {"mask": {"keep_only_token_ids": [5, 9, 11]}},
    "no mask": {"mask": None},
    "expansion": {"query_expansion": FIXED},
    "expansion, no mask": {"query_expansion": FIXED, "mask": None},
    "expansion attended": {"query_expansion": FIXED | {"attend": True}},
    "expansion, least": {"query_expansion": FIXED | {"strategy": "min", "length": 5}},
    "expansion, least, attended": {
        "query_expansion": FIXED | {"strategy": "min", "length": 5, "attend": True},
        "prompts": {"query": "w30 "},
        "mask": {"skiplist_words": ["w44", "w40"], "skiplist_tasks": ["query", "document"]},
    },
    "lengths": {"query_length": 8, "document_length": 12},
    "not normalised": {"normalize": False},
    "dense with tanh, bias": {"dense": {"bias": True, "activation_function": torch.nn.Tanh()}},
    "dense with residual": {"dense": {"use_residual": True}},
    "no dense": {"dense": None},
    "mean": {"similarity_fn_name": "meanmaxsim", "query_expansion": FIXED},
}


@pytest.fixture(scope="module")
def library():
    reason = "needs sentence-transformers (extra st)"
    return pytest.importorskip("sentence_transformers", minversion="6.2", reason=reason)


def saved(library, folder, kind="bert", **form):
    """A folder that sentence-transformers saved."""
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    torch.manual_seed(4)
    names = ("query_length", "document_length", "query_expansion")
    first = Transformer(encoder(folder / "encoder", kind), **{n: form.get(n) for n in names})
    modules = [first]
    if (dense := form.get("dense", {})) is not None:
        own = {"bias": False, "activation_function": torch.nn.Identity()} | dense
        modules.append(Dense(16, 12, module_input_name="token_embeddings", **own))
    if (mask := form.get("mask", {})) is not None:
        modules.append(MultiVectorMask(**mask))
    if form.get("normalize", True):
        modules.append(Normalize("token_embeddings"))
    whole = {name: form[name] for name in ("prompts", "similarity_fn_name") if name in form}
    model = library.MultiVectorEncoder(modules=modules, device="cpu", **whole)
    model.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def pylate(folder, kind="bert", modules=(), **settings):
    """A folder with the files that PyLate saves, in whose vocabulary "[Q] " is one token."""
    path = Path(encoder(folder, kind))
    tokenizer = load_tokenizer(path)
    tokenizer = type(tokenizer).from_pretrained(path)
    tokenizer.add_tokens(["[Q] ", "[D] "])
    tokenizer.add_special_tokens({"mask_token": "w43"})
    tokenizer.save_pretrained(path)
    from transformers import AutoModel

    torch.manual_seed(5)
    model = AutoModel.from_pretrained(path)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(path)
    (path / "1_Dense").mkdir()
    dense = {"in_features": 16, "out_features": 12, "bias": False, "activation_function": IDENTITY}
    (path / "1_Dense" / "config.json").write_text(json.dumps(dense))
    save_file({"linear.weight": torch.randn(12, 16)}, path / "1_Dense" / "model.safetensors")
    kinds = ["sentence_transformers.models.Transformer", "pylate.models.Dense.Dense", *modules]
    stated = [
        {
            "idx": i,
            "name": str(i),
            "path": f"{i}_{own.rpartition('.')[2]}" if i else "",
            "type": own,
        }
        for i, own in enumerate(kinds)
    ]
    (path / "modules.json").write_text(json.dumps(stated))
    own = {
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 9,
        "document_length": 14,
        "attend_to_expansion_tokens": False,
        "skiplist_words": [*string.punctuation, "w5"],
        "do_query_expansion": True,
    }
    own = {name: value for name, value in (own | settings).items() if value != "left out"}
    (path / "config_sentence_transformers.json").write_text(json.dumps(own))
    (path / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 13, "do_lower_case": False})
    )
    return str(path)


PYLATE = {
    "as it is": {"model_type": "ColBERT"},
    "before it had a type": {},
    "attended": {"model_type": "ColBERT", "attend_to_expansion_tokens": True},
    "not expanded": {"model_type": "ColBERT", "do_query_expansion": False},
    "usual skiplist": {"model_type": "ColBERT", "skiplist_words": None},
    "a word as prefix": {"model_type": "ColBERT", "query_prefix": "w31 ", "document_prefix": "w2 "},
    "a prompt behind it": {"prompts": {"query": "w8 ", "document": "[D] w9 "}},
}


def scores(path, chunking=CHUNKING, **model):
    """s_QN of a late interaction that reads whole texts, each as one window."""
    settings = Model("late-interaction", backbone=path, dropout=0.0, **model)
    config = TrialConfig(model=settings, chunking=chunking)
    backbone = resolve_backbone(path)
    check_model(config.override({"training.num_epochs": 0}), backbone)
    own = build_model(config, backbone, init_seed=1).eval()
    layout = own.backbone_of(settings, backbone).layout
    tokenizer = load_tokenizer(backbone.folder)
    queries = tokenize(tokenizer, QUERIES, layout.before_query)
    texts = tokenize(tokenizer, TEXTS, layout.before_text)
    pairs = PairEncoder({}, chunking, False, backbone)
    documents = [
        [Chunk(np.array(query, np.int32), np.array(text, np.int32))]
        for query in queries
        for text in texts
    ]
    with torch.inference_mode():
        score_B = own(pairs.collate(documents))
    return score_B.reshape(len(queries), len(texts)).numpy()


def theirs(library, path):
    model = library.MultiVectorEncoder(path, device="cpu", local_files_only=True)
    vectors = model.encode_query(QUERIES), model.encode_document(TEXTS)
    return model.similarity(*vectors).numpy()


@pytest.mark.parametrize("name", FORMS)
def test_scores_are_those_of_sentence_transformers(name, library, tmp_path):
    path = saved(library, tmp_path, **FORMS[name])
    expected = theirs(library, path)
    np.testing.assert_allclose(scores(path), expected, atol=1e-5, rtol=1e-6)
    assert expected.std() > 1e-3


@pytest.mark.parametrize("name", PYLATE)
def test_folders_of_pylate_are_read_as_sentence_transformers_does(name, library, tmp_path):
    path = pylate(tmp_path / "m", **PYLATE[name])
    expected = theirs(library, path)
    np.testing.assert_allclose(scores(path), expected, atol=1e-5, rtol=1e-6)
    assert expected.std() > 1e-3


def test_a_prompt_by_its_name_has_the_prefix_that_the_library_gives_it(library, tmp_path):
    own = {"prompts": {"query": "w8 ", "fact": "w9 ", "none": None}}
    path = pylate(tmp_path / "m", **own)
    prompts = library.MultiVectorEncoder(path, device="cpu", local_files_only=True).prompts
    assert prompts["query"] == "[Q] w8 "
    names = ("query", "document", "fact")
    found = [read_multi_vector(path, query_prompt=f"@{name}") for name in names]
    assert [one.texts.query_prompt for one in found] == [prompts[name] for name in names]
    assert read_multi_vector(path, query_prompt="@none").texts.query_prompt == ""


def test_a_token_is_compared_with_its_most_similar_one_by_hand(library, tmp_path):
    """Of windows of 3 tokens of a document of 7, the vectors of each alone."""
    path = saved(library, tmp_path)
    text = "w5 w9 w11 w1 w7 w3 w4"
    windows = ["w5 w9 w11", "w1 w7 w3", "w4"]
    model = library.MultiVectorEncoder(path, device="cpu", local_files_only=True)
    query_WD, vectors = model.encode_query(QUERIES[1]), model.encode_document(windows)
    best_PW = torch.stack([(query_WD @ x_TD.T).amax(1) for x_TD in vectors])
    expected = {"": best_PW.amax(0).sum(), "window": best_PW.sum(1).amax()}
    assert expected[""] - expected["window"] > 1e-3
    chunking = Chunking(window=3, stride=3, max_query_tokens=4, max_document_tokens=60)
    for maxsim, score in expected.items():
        found, _ = ranked(path, {"d": text}, [QUERIES[1]], chunking, maxsim=maxsim)
        assert found["0"]["d"] == pytest.approx(score.item(), abs=1e-5)


def ranked(path, documents, queries, chunking=CHUNKING, **model):
    """({query: {doc_id: score}}, the tokens of each pass of the encoder) of one ranking."""
    settings = Model("late-interaction", backbone=path, dropout=0.0, **model)
    config = TrialConfig(model=settings, chunking=chunking)
    backbone = resolve_backbone(path)
    own = build_model(config, backbone, init_seed=1)
    tokenizer = load_tokenizer(backbone.folder)
    texts = zip(documents, tokenize(tokenizer, [*documents.values()], ""), strict=True)
    store = {doc_id: np.array(text, np.int32) for doc_id, text in texts}
    asked = enumerate(tokenize(tokenizer, queries, ""))
    pairs = PairEncoder(store, chunking, False, backbone)
    read = []
    own.encoder.register_forward_hook(
        lambda _, __, kwargs, ___: read.append(kwargs["input_ids"].tolist()), with_kwargs=True
    )
    found = rerank(
        own,
        pairs,
        queries={str(place): np.array(query, np.int32) for place, query in asked},
        candidates={str(n): dict.fromkeys(documents, 0.0) for n in range(len(queries))},
        depth=10,
        batch_tokens=40,
    )
    assert late_interaction._KEPT.get() is None
    return found, read


def test_the_vectors_of_a_text_are_computed_once_in_a_ranking(library, tmp_path):
    path, marked = saved(library, tmp_path), {"document_prompt": "w33 "}
    documents = {f"d{n}": text for n, text in enumerate(TEXTS)}
    found, read = ranked(path, documents, QUERIES, **marked)
    expected = scores(path, **marked)
    for q in range(len(QUERIES)):
        own = [found[str(q)][doc_id] for doc_id in documents]
        np.testing.assert_allclose(own, expected[q], atol=1e-5, rtol=1e-6)
    [mark] = load_tokenizer(Path(path))("w33", add_special_tokens=False)["input_ids"]
    texts = [tuple(row) for batch in read for row in batch if row[1] == mark]
    assert len(texts) == len(TEXTS)


@pytest.mark.parametrize("name", ["skiplist", "expansion, least, attended"])
def test_both_aggregations_agree_on_documents_of_one_window(name, library, tmp_path):
    path = saved(library, tmp_path, **FORMS[name])
    assert np.array_equal(scores(path), scores(path, maxsim="window"))


REFUSED = {
    "a module": (
        "modules.json",
        lambda stated: stated[3].update(type="a.WordWeights", path="3_Normalize"),
        r"late-interaction model that is not read: its module WordWeights \(3_Normalize\) is not "
        r"read; known: Transformer, Dense, Normalize, MultiVectorMask",
    ),
    "a setting of the mask": (
        "2_MultiVectorMask/config.json",
        lambda stated: stated.update(weight=2),
        "its MultiVectorMask has the settings weight",
    ),
    "a setting of the Transformer": (
        "sentence_bert_config.json",
        lambda stated: stated.update(query_boost=2),
        "its Transformer has the settings query_boost",
    ),
    "an expansion": (
        "sentence_bert_config.json",
        lambda stated: stated.update(query_expansion={"strategy": "best", "length": 3}),
        "its query_expansion is .*best",
    ),
    "a projection of whole texts": (
        "1_Dense/config.json",
        lambda stated: stated.update(module_input_name="sentence_embedding"),
        r"its module Dense \(1_Dense\) makes sentence_embedding to token_embeddings, not",
    ),
    "a similarity": (
        "config_sentence_transformers.json",
        lambda stated: stated.update(similarity_fn_name="xtr"),
        "unknown similarity_fn_name.*'?xtr",
    ),
    "words that are no list": (
        "2_MultiVectorMask/config.json",
        lambda stated: stated.update(skiplist_words="."),
        "skiplist_words='.', which is no list of str",
    ),
    "a window that would be cut": (
        "sentence_bert_config.json",
        lambda stated: stated.update(document_length=9),
        "chunking.window <= 7 must hold for .* reads 9 tokens, 2 of them",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_read_wrongly_is_refused(name, library, tmp_path):
    path = saved(library, tmp_path)
    scores(path)
    file, change, message = REFUSED[name]
    stated = json.loads(Path(path, file).read_text())
    change(stated)
    Path(path, file).write_text(json.dumps(stated))
    with pytest.raises(BadInput, match=message):
        scores(path)


def test_an_encoder_of_another_task_is_refused_by_its_kind(library, tmp_path):
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    modules = [MLMTransformer(encoder(tmp_path / "e")), SpladePooling()]
    splade = library.SparseEncoder(modules=modules, device="cpu")
    splade.save(str(tmp_path / "splade"), create_model_card=False)
    late = saved(library, tmp_path / "late")
    refused = {
        str(tmp_path / "splade"): r"is a SparseEncoder .*, whose weights of words \(SPLADE\)",
        late: r"is a 'MultiVectorEncoder' .*: the vectors of its .* model.name=late-interaction",
    }
    for path, message in refused.items():
        config = TrialConfig(model=Model("bi-encoder", backbone=path), chunking=CHUNKING)
        check_model(config, resolve_backbone(path))
        with pytest.raises(BadInput, match=message):
            check_model(config.override({"training.num_epochs": 0}), resolve_backbone(path))
    with pytest.raises(BadInput, match=r"SparseEncoder .* are not computed here; an embedding"):
        read_embedder(str(tmp_path / "splade"))


def test_what_sentence_transformers_does_not_read_is_in_the_plan(library, tmp_path):
    path = saved(library, tmp_path, **FORMS["expansion"])
    file = Path(path, "config_sentence_transformers.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"truncate_dim": 5}))
    settings = Model("late-interaction", backbone=path)
    assert ColBert.notes(settings, resolve_backbone(path)) == (
        "a projection to 12 dimensions, maxsim, queries filled to 12 tokens, no prompts",
        "Not read, as in sentence-transformers: truncate_dim in config_sentence_transformers.json.",
    )
