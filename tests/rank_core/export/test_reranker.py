"""An exported model that ranks: what it takes, what it gives, what it refuses."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rank_core
from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.data.load import load_collection
from rank_core.data.trec import read_run
from rank_core.errors import BadInput
from rank_core.export import reranker as module
from rank_core.export.folder import FILE, REST, read_model, write_model
from rank_core.export.reranker import Ranked, Reranker
from rank_core.models.build import build_model
from rank_core.trial.trial import run_trial

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture(scope="module")
def trial(small_trial, tmp_path_factory):
    """(configuration, folder) of a finished MaxP trial."""
    folder = tmp_path_factory.mktemp("trial")
    config = small_trial.override({"evaluation.max_test_queries": 5})
    list(run_trial(config, folder))
    return config, folder


@pytest.fixture(scope="module")
def folder(trial, tmp_path_factory):
    config, of_trial = trial
    folder = tmp_path_factory.mktemp("export") / "model"
    write_model(folder, config, of_trial / WEIGHTS, about={"seed": 1}, card="# A card\n")
    return folder


@pytest.fixture(scope="module")
def reranker(folder):
    return Reranker.load(folder)


@pytest.fixture(scope="module")
def texts(trial):
    """(queries, documents, candidates) of test."""
    collection = load_collection(trial[0].collection)
    split = collection.splits["test"]
    return split.queries, collection.documents, split.candidates


def test_a_folder_reproduces_the_run_of_its_trial(trial, reranker, texts):
    expected = read_run(trial[1] / "test.run.gz")
    queries, documents, candidates = texts
    found = reranker.rerank({q: candidates[q] for q in expected}, queries, documents)
    for query_id, scores in expected.items():
        assert list(found[query_id]) == list(scores)
        assert found[query_id] == pytest.approx(scores, abs=1e-5)


def test_other_users_may_read_each_file(folder):
    assert len({path.stat().st_mode for path in folder.rglob("*") if path.is_file()}) == 1


def test_a_query_ranks_texts_by_their_places_or_their_ids(reranker, texts):
    queries, documents, _ = texts
    query_id, query = next(iter(queries.items()))
    some = dict(list(documents.items())[:7])
    by_id = reranker.rank(query, some)
    assert all(isinstance(one, Ranked) for one in by_id)
    assert [one.score for one in by_id] == sorted((one.score for one in by_id), reverse=True)
    places = reranker.rank(query, list(some.values()))
    assert [list(some)[place] for place, _ in places] == [doc_id for doc_id, _ in by_id]
    assert reranker.rank(query, some, top=2) == by_id[:2]
    assert reranker.rank(query, []) == reranker.rank(query, {}) == []
    run = reranker.rerank({query_id: dict.fromkeys(some, 0.0)}, queries, documents, depth=99)
    assert run[query_id] == pytest.approx(dict(by_id), abs=1e-6)


def test_several_threads_rank_at_once(reranker, texts):
    queries, documents, _ = texts
    some = dict(list(documents.items())[:7])

    def rank(query):
        return dict(reranker.rank(query, some))

    alone = [rank(query) for query in queries.values()] * 5
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(rank, [*queries.values()] * 5))
    assert [pytest.approx(scores, abs=1e-5) for scores in alone] == together


def test_documents_are_read_in_blocks_and_the_depth_is_the_trial_s(
    trial, reranker, texts, monkeypatch
):
    queries, documents, candidates = texts
    whole = reranker.rerank(candidates, queries, documents)
    monkeypatch.setattr(module, "DOCUMENTS_AT_ONCE", 3)
    in_blocks = reranker.rerank(candidates, queries, documents)
    depth = trial[0].evaluation.depth
    for query_id, scores in whole.items():
        assert in_blocks[query_id] == pytest.approx(scores, abs=1e-6)
        assert set(scores) == set(list(candidates[query_id])[:depth])
    assert all(
        len(docs) == 2 for docs in reranker.rerank(candidates, queries, documents, depth=2).values()
    )


def test_what_has_no_text_is_named(reranker, texts):
    queries, documents, candidates = texts
    query_id = next(iter(queries))
    for run, law in (
        ({"q?": {}}, r"every query of the run must have a text; 'q\?' has none"),
        ({query_id: {"d?": 1.0}}, rf"'d\?' of query '{query_id}' has none"),
    ):
        with pytest.raises(BadInput, match=law):
            reranker.rerank(run, queries, documents)
    with pytest.raises(BadInput, match="one query and several documents"):
        reranker.rank("query", "one text")
    with pytest.raises(BadInput, match="depth >= 1"):
        reranker.rerank(candidates, queries, documents, depth=0)


def test_a_folder_is_written_whole_into_a_new_or_empty_place(trial, folder, tmp_path):
    config, of_trial = trial
    assert (folder / "README.md").read_text() == "# A card\n"
    assert read_model(folder).about == {"seed": 1}
    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", config, of_trial / WEIGHTS)
    with pytest.raises(BadInput, match="--to must be a new or an empty folder"):
        write_model(tmp_path / "m", config, of_trial / WEIGHTS)
    other = config.override({"model.name": "parade-attn"})
    with pytest.raises(BadInput, match=r"must hold the weights of this model; .* such as att"):
        write_model(tmp_path / "other", other, of_trial / WEIGHTS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


@pytest.mark.parametrize(
    ("damage", "law"),
    [
        (lambda m: (m / FILE).unlink(), "an exported model is a folder with ranker.json"),
        (lambda m: (m / FILE).write_text("{"), r"ranker.json must be unchanged"),
        (lambda m: (m / FILE).write_text(json.dumps({"format": 99, "settings": {}})), "later vers"),
        (lambda m: shutil.copy(m / "model.safetensors", m / REST), "must hold the weights of this"),
    ],
)
def test_what_is_no_exported_model_is_refused(folder, tmp_path, damage, law):
    shutil.copytree(folder, tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(BadInput, match=law):
        Reranker.load(tmp_path / "m")


def test_a_model_of_somebody_s_own_needs_its_module(trial, backbone, tmp_path, monkeypatch):
    config = trial[0].override({"model.name": "own_model:SmoothMaxP"})
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    save_weights(tmp_path, build_model(config, backbone, init_seed=1).state_dict())
    write_model(tmp_path / "m", config, tmp_path / WEIGHTS)
    assert len(Reranker.load(tmp_path / "m").rank("amber", ["birch", "amber"])) == 2
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "own_model")
    with pytest.raises(BadInput, match="no module own_model; install it"):
        Reranker.load(tmp_path / "m")


def test_the_reranker_is_a_public_name():
    assert rank_core.Reranker is Reranker
