"""One saved form of an embedding model has one reading: dense retrieval, the bi-encoder before its
scale, and the graph of OpenVINO."""

from importlib.util import find_spec

import numpy as np
import pytest

from rank_core.models.embedding_model import EmbeddingModel
from tests.rank_core.encoders.test_published_heads import forget
from tests.rank_core.models.embedding_folders import CHAINS, encoder, saved
from tests.rank_core.models.test_bi_encoder import (
    CARD,
    QUERIES,
    TEXTS,
    byte_level,
    chunk_scores,
    long_bert,
)

RUNTIMES = ["torch", *["openvino"] * bool(find_spec("openvino"))]


def e5_4k(library, folder, backbone):
    path = long_bert(folder / "m", backbone)
    (folder / "m" / "README.md").write_text(CARD)
    forget()
    return path


FORMS = {
    "E5-Base-4k": e5_4k,
    "a long BERT": lambda library, folder, backbone: long_bert(folder / "m", backbone),
    "an encoder alone": lambda library, folder, backbone: encoder(folder / "m"),
    "bytes": lambda library, folder, backbone: byte_level(library, folder),
}
NOT_TRAINED = ("prompts left out", "max_seq_length")
FORMS |= {
    name: lambda library, folder, backbone, chain=chain: saved(library, folder, **chain)
    for name, chain in CHAINS.items()
    if name not in NOT_TRAINED
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("form", FORMS)
def test_dense_scores_are_those_of_the_bi_encoder(form, runtime, backbone, tmp_path):
    library = pytest.importorskip("sentence_transformers", minversion="6.2")
    path = FORMS[form](library, tmp_path, backbone)
    model = EmbeddingModel.load(path, device="cpu", runtime=runtime)
    vectors = model.encode_queries(QUERIES), model.encode_documents(TEXTS)
    expected = chunk_scores(path)
    np.testing.assert_allclose(model.scores(*vectors), expected, atol=2e-5, rtol=0)
    assert expected.std() > 1e-3
