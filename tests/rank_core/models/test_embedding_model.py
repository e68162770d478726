"""Embedding models as their folders say: equal to sentence-transformers, or refused by a reason."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from rank_core.encoders import embedder
from rank_core.encoders.backbone_types import TYPES
from rank_core.files import file_sha256
from rank_core.models.embedding_model import EmbeddingModel
from tests.rank_core.encoders.test_published_heads import forget
from tests.rank_core.models.embedding_folders import CHAINS, PROMPTS, encoder, saved

BAR = 1e-5
MINILM = "RANKSWEEP_TEST_MINILM"
"""The folder of sentence-transformers/all-MiniLM-L6-v2."""
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
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


def test_a_title_stands_between_prompt_and_text(library, tmp_path):
    model = EmbeddingModel.load(saved(library, tmp_path, prompts=PROMPTS), device="cpu")
    titled = model.encode_documents(["w2 w3", "w4"], titles=["w1", ""])
    np.testing.assert_array_equal(titled, model.encode_documents(["w1 w2 w3", "w4"]))


def minilm():
    """The folder of the real MiniLM."""
    if not (folder := os.environ.get(MINILM)):
        pytest.skip(f"needs the folder of all-MiniLM-L6-v2 ({MINILM})")
    assert file_sha256(Path(folder, "model.safetensors")) == MINILM_SHA256
    return folder


def test_the_real_minilm(library):
    words = "How do I open a file and read it line by line in Python? The with statement closes it."
    texts = [words, "", words * 40, *(words[i : i + 40] for i in range(50))]
    folder = minilm()
    model = EmbeddingModel.load(folder, device="cpu")
    theirs = library.SentenceTransformer(folder, device="cpu")
    assert (model.max_length, model.max_window, model.dimensions) == (256, 254, 384)
    found = model.encode_documents(texts)
    DIFFERENCES["all-MiniLM-L6-v2"] = float(np.abs(found - theirs.encode_document(texts)).max())
    assert DIFFERENCES["all-MiniLM-L6-v2"] < BAR
    assert model.length_of(words * 40) > 256  # more than the 128 of its tokenizer.json
