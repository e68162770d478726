"""`ranksweep teach`: an exported model's scores of training candidates, which training reads."""

import json
from itertools import islice

import pytest

from rank_core.data.load import load_collection
from rank_core.data.trec import read_run
from rank_core.export.reranker import Reranker
from sweeps.__main__ import main
from sweeps.commands.teach import candidates
from tests.e2e.conftest import run_local

__all__ = ["run_local"]

pytestmark = pytest.mark.slow
WORDS = (*("--smoke-test", "--tracking-uri", "none"), "chunking.window=48", "chunking.stride=32")


@pytest.fixture(scope="module")
def exported(run_local, tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    finished = run_local(folder / "results", *WORDS)
    assert main(["export", str(finished.folder), "--to", str(folder / "model")]) == 0
    return folder / "model"


def test_a_teacher_scores_every_candidate_and_every_relevant_document(
    exported, collection_folder, tmp_path, run_local
):
    out = tmp_path / "teacher.run.gz"
    words = ["teach", str(exported), "--collection", str(collection_folder), "--depth", "3"]
    assert main([*words, "--out", str(out)]) == 0
    taught, collection = read_run(out), load_collection(collection_folder)
    train = collection.splits["train"]
    assert taught.keys() == train.qrels.keys()
    relevant = {q: {d for d, grade in own.items() if grade > 0} for q, own in train.qrels.items()}
    for query_id, scores in taught.items():
        first = {*islice(train.candidates.get(query_id, {}), 3)}
        assert scores.keys() == first | (relevant[query_id] & collection.documents.keys())
    assert any(relevant[q] - {*islice(train.candidates[q], 3)} for q in taught)
    model, query_id = Reranker.load(exported), next(iter(taught))
    texts = {doc_id: collection.documents[doc_id] for doc_id in taught[query_id]}
    ranked = {one.doc_id: one.score for one in model.rank(train.queries[query_id], texts)}
    assert taught[query_id] == pytest.approx(ranked, abs=1e-5)

    pupil = run_local(
        tmp_path / "results", *WORDS, f"training.teacher={out}", "training.loss=margin-mse"
    )
    described = json.loads((pupil.folder / "sweep.json").read_text())
    assert described["fixed"]["training.loss"] == "margin-mse"


def test_relevant_documents_come_after_the_candidates(collection_folder):
    for scores in candidates(load_collection(collection_folder), 2).values():
        assert [*scores.values()] == sorted(scores.values(), reverse=True)
        assert len({*scores.values()}) == len(scores)


def test_what_cannot_teach_is_refused(exported, collection_folder, tmp_path, capsys):
    out = ["--out", str(tmp_path / "x.gz")]
    assert main(["teach", str(exported), "--collection", "nano-beir-none", *out]) == 2
    words = ["teach", str(exported), "--collection", str(collection_folder), *out]
    assert main([*words, "--depth", "0"]) == 2
    assert "--depth >= 1 must hold, got 0" in capsys.readouterr().err
    assert main(["teach", str(tmp_path), "--collection", str(collection_folder), *out]) == 2
    assert "an exported model is a folder with ranker.json" in capsys.readouterr().err
