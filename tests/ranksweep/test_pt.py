"""An exported model in a pipeline of PyTerrier."""

import pandas as pd
import pytest

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.errors import BadInput
from rank_core.export.folder import write_model
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model

pt = pytest.importorskip("pyterrier", reason="pip install '.[pyterrier]' brings it")

TEXTS = {"d1": "amber birch", "d2": "cedar heron meadow", "d3": "slate thorn", "d4": "amber"}


@pytest.fixture
def folder(small_trial, backbone, tmp_path):
    save_weights(tmp_path, build_model(small_trial, backbone, init_seed=1).state_dict())
    write_model(tmp_path / "m", small_trial, tmp_path / WEIGHTS)
    return tmp_path / "m"


def frame():
    rows = [
        (qid, query, docno, TEXTS[docno], 10 - rank, rank)
        for qid, query, docs in (("1", "amber", "d1 d2 d3"), ("2", "heron", "d4 d3 d2 d1"))
        for rank, docno in enumerate(docs.split())
    ]
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score", "rank"])


@pytest.fixture
def transformer(folder):
    from ranksweep.pt import Reranker as Transformer

    return Transformer(folder)


def test_a_pipeline_reranks_with_an_exported_model(folder, transformer):
    assert isinstance(transformer, pt.Transformer)
    topics = frame()[["qid", "query"]].drop_duplicates()
    found = (pt.Transformer.from_df(frame()) >> transformer % 3)(topics)
    for qid, rows in found.groupby("qid"):
        given = frame()[frame()["qid"] == qid]
        texts = dict(zip(given["docno"], given["text"], strict=True))
        ranked = dict(Reranker.load(folder).rank(given["query"].iloc[0], texts)[:3])
        scores = dict(zip(rows["docno"], rows["score"], strict=True))
        assert scores == pytest.approx(ranked, abs=1e-6)
        assert rows.sort_values("rank")["docno"].tolist() == list(ranked)


def test_arguments_of_another_type_are_refused_by_name(folder, transformer):
    from ranksweep.pt import Reranker as Transformer

    for name, value in (("text_field", 3), ("text_field", None), ("device", 0.5), ("device", [])):
        with pytest.raises(BadInput, match=name):
            Transformer(folder, **{name: value})
    with pytest.raises(BadInput, match="inp must be a data frame, got"):
        transformer.transform("amber")


def test_columns_that_are_missing_are_named_and_no_row_is_no_error(transformer):
    with pytest.raises(KeyError, match="text"):
        transformer(frame().drop(columns="text"))
    assert len(transformer(frame().iloc[:0])) == 0
