"""all-MiniLM-L6-v2 as an embedding model: the vectors and scores of sentence-transformers."""

import numpy as np
import pytest

from rank_core.encoders.backbones import resolve_backbone
from rank_core.export.folder import ExportedModel
from rank_core.export.reranker import Reranker
from rank_core.models.bi_encoder import BiEncoder
from rank_core.models.build import build_model
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.settings.config import TrialConfig

pytestmark = [pytest.mark.long, pytest.mark.slow]
WORDS = "How do I open a file and read it line by line in Python? The with statement closes it. "
TEXTS = [WORDS, "", WORDS * 40, *(WORDS[i : i + 40] for i in range(50))]
QUERIES = ["how to read a file", "what closes a file?"]


@pytest.fixture(scope="module")
def theirs(minilm):
    reason = "needs sentence-transformers (extra st)"
    library = pytest.importorskip("sentence_transformers", minversion="6.2", reason=reason)
    return library.SentenceTransformer(str(minilm), device="cpu", local_files_only=True)


def test_vectors_and_scores_are_those_of_sentence_transformers(minilm, theirs):
    model = EmbeddingModel.load(str(minilm), device="cpu")
    assert (model.max_length, model.max_window, model.dimensions) == (256, 254, 384)
    assert model.length_of(WORDS * 40) > 256  # its tokenizer.json cuts at 128
    query_QD, document_ND = theirs.encode_query(QUERIES), theirs.encode_document(TEXTS)
    own = model.encode_queries(QUERIES), model.encode_documents(TEXTS)
    score_QN = theirs.similarity(query_QD, document_ND).numpy()
    pairs = zip((*own, model.scores(*own)), (query_QD, document_ND, score_QN), strict=True)
    difference = max(float(np.abs(mine - reference).max()) for mine, reference in pairs)
    print(f"all-MiniLM-L6-v2 {difference:.1e}")
    assert difference < 1e-5


def test_a_bi_encoder_ranks_by_its_cosines(minilm, theirs):
    texts = [text for text in TEXTS if text and len(text) < 200]
    settings = {"model.name": "bi-encoder", "model.backbone": str(minilm), "model.dropout": 0.0}
    config = TrialConfig().override(settings | {"training.num_epochs": 0})
    backbone = resolve_backbone(str(minilm))
    model = build_model(config, backbone, init_seed=1).eval()
    reranker = Reranker(ExportedModel(model, config, backbone), "cpu", "fp32")
    [query_D], text_ND = theirs.encode_query(QUERIES[:1]), theirs.encode_document(texts)
    found = dict(reranker.rank(QUERIES[0], texts))
    cosines = [found[place] * BiEncoder.TEMPERATURE for place in range(len(texts))]
    np.testing.assert_allclose(cosines, text_ND @ query_D, atol=1e-5, rtol=0)
