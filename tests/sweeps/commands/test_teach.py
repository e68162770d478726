"""`ranksweep teach`: a teacher's scores of training candidates, which training reads."""

import json
from itertools import islice

import pytest

from rank_core.data.load import load_collection
from rank_core.data.tables import check_run_name
from rank_core.data.trec import read_run
from rank_core.export.folder import published_model
from rank_core.export.reranker import Reranker
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.retrieval.cuts import cut_documents
from rank_core.settings.config import Chunking, TrialConfig
from sweeps.__main__ import main
from sweeps.commands.teach import candidates
from sweeps.plan.options import absolute
from tests.e2e.conftest import run_local
from tests.rank_core.llm.server import Fault, chat_server

__all__ = ["run_local"]

WORDS = (*("--smoke-test", "--tracking-uri", "none"), "chunking.window=48", "chunking.stride=32")


@pytest.fixture(scope="module")
def exported(run_local, tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    finished = run_local(folder / "results", *WORDS)
    assert main(["export", str(finished.folder), "--to", str(folder / "model")]) == 0
    return folder / "model"


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_cannot_teach_is_refused(exported, collection_folder, tmp_path, capsys):
    out = ["--out", str(tmp_path / "x.gz")]
    assert main(["teach", str(exported), "--collection", "nano-beir-none", *out]) == 2
    words = ["teach", str(exported), "--collection", str(collection_folder), *out]
    assert main([*words, "--depth", "0"]) == 2
    assert "--depth >= 1 must hold, got 0" in capsys.readouterr().err
    assert main(["teach", str(tmp_path), "--collection", str(collection_folder), *out]) == 2
    assert "an exported model is a folder with ranker.json" in capsys.readouterr().err


def relevant_of(collection, query_id):
    judged = collection.splits["train"].qrels[query_id].items()
    return {doc_id for doc_id, grade in judged if grade > 0 and doc_id in collection.documents}


def teach(teacher, collection, out, *words):
    return main(["teach", str(teacher), "--collection", str(collection), "--out", str(out), *words])


PROMPTS = {"model.query_prompt": "find: ", "model.document_prompt": "text: "}


@pytest.mark.parametrize("own", [{"model.name": "avgp"}, {"model.name": "bi-encoder", **PROMPTS}])
def test_a_published_model_teaches_as_it_is_read(own, reranker_folder, collection_folder, tmp_path):
    settings = {"chunking.window": 40, "chunking.stride": 20, **own}
    out, words = tmp_path / "t.run.gz", [f"{name}={value}" for name, value in settings.items()]
    assert teach(reranker_folder, collection_folder, out, "--depth", "3", *words) == 0
    taught, collection = read_run(out), load_collection(collection_folder)
    settings |= {"model.backbone": str(reranker_folder), "training.num_epochs": 0}
    config = TrialConfig(str(collection_folder)).override(settings)
    model = Reranker(published_model(config), "cpu", "")
    for query_id, scores in taught.items():
        texts = {doc_id: collection.documents[doc_id] for doc_id in scores}
        query = collection.splits["train"].queries[query_id]
        ranked = {one.doc_id: one.score for one in model.rank(query, texts)}
        assert scores == pytest.approx(ranked, abs=1e-5, rel=1e-6)
        assert relevant_of(collection, query_id) <= scores.keys()


def test_a_chat_model_teaches_with_a_ledger_and_asks_once(collection_folder, tmp_path, capsys):
    collection = load_collection(collection_folder)
    with chat_server() as server:
        server.rank = lambda _, passages: " > ".join(f"[{i}]" for i in range(len(passages), 0, -1))
        words = ["--depth", "3", f"chat.base_url={server.url}", "chat.key_variable="]
        words += ["chat.input_price=3", "chat.output_price=9"]
        outs = [tmp_path / name for name in ("t.run.gz", "again.run.gz")]
        for out in outs:
            assert teach("rankgpt", collection_folder, out, *words) == 0
        assert len(server.bodies) == 8
        asked = {json.dumps(body["messages"]) for body in server.bodies}
        first, again = map(read_run, outs)
        assert first == again
        for query_id, given in candidates(collection, 3).items():
            assert [*first[query_id]] == [*given][::-1]
            assert relevant_of(collection, query_id) <= first[query_id].keys()
            assert any(collection.splits["train"].queries[query_id] in text for text in asked)
    lines = [json.loads(line) for line in open(f"{outs[0]}.ledger.jsonl")]
    assert {line["query_id"] for line in lines} == first.keys()
    cost = sum(line["input_tokens"] * 3 + line["output_tokens"] * 9 for line in lines) / 1e6
    assert cost > 0 and sum(line["cost"] for line in lines) == pytest.approx(cost)
    said = capsys.readouterr().out
    assert "requests    8 at most" in said and "8 of 8 answers were requested" in said
    assert f"cost {cost:.4g}" in said and "0 of 8 answers were requested" in said
    assert not [*tmp_path.glob("*.parts")]


def test_a_chat_server_that_is_away_is_named(collection_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("rank_core.llm.chat.FIRST_WAIT", 0.0)
    with chat_server() as server:
        server.faults.extend([Fault(500)] * 99)
        words = [f"chat.base_url={server.url}", "chat.key_variable="]
        assert teach("rankgpt", collection_folder, tmp_path / "t.run.gz", *words) == 2
    assert "the same command resumes" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("prompts", [{}, {"query_prompt": "find: ", "document_prompt": "text: "}])
def test_an_embedding_model_teaches_over_the_whole_collection(
    prompts, collection_folder, tmp_path, run_local
):
    """Its best documents of all, and the relevant ones wherever they are, by its own scores."""
    out, words = tmp_path / "d.run.gz", ["model.backbone=tiny-docs", "chunking.window=48"]
    words += [f"model.{name}={prompt}" for name, prompt in prompts.items()]
    assert teach("dense", collection_folder, out, "--depth", "3", *words) == 0
    taught, collection = read_run(out), load_collection(collection_folder)
    model, window = EmbeddingModel.load("tiny-docs", **prompts), Chunking(window=48, stride=48)
    texts = {}
    for doc_id, text in collection.documents.items():
        cuts = cut_documents({doc_id: text}, {}, model.tokenizer, window, doc_id)
        texts[doc_id] = [cuts.text(i, text).text for i in range(len(cuts))]
    behind = 0
    for query_id, scores in taught.items():
        query = model.encode_queries([collection.splits["train"].queries[query_id]])
        expected = {
            doc_id: float(model.scores(query, model.encode_documents(chunks)).max())
            for doc_id, chunks in texts.items()
        }
        best = sorted(expected, key=expected.get, reverse=True)[:3]
        assert scores.keys() == {*best} | relevant_of(collection, query_id)
        assert scores == pytest.approx({doc_id: expected[doc_id] for doc_id in scores}, abs=1e-5)
        behind += len(scores) > 3
    assert behind

    settings = (f"training.negatives_from={out}", f"training.teacher={out}")
    run_local(tmp_path / "results", *WORDS, *settings, "training.loss=teacher-ranknet")


@pytest.mark.parametrize(
    "teacher, words, said",
    [
        ("maxp", [], "maxp is trained before it teaches"),
        ("rankgpt", ["chunking.window=40"], "chunking.window has no effect on the teacher rankgpt"),
        ("dense", ["chat.model=x"], "chat.model has no effect on the teacher dense"),
        ("dense", ["model.name=maxp"], "model.name is dense here"),
        ("dense", ["evaluation.depth=5"], "evaluation.depth is not a setting of a teacher"),
        ("dense", ["training.num_epochs=1"], "training.num_epochs is not a setting of a teacher"),
        ("dense", ["chunking.window"], "a setting is written section.setting=value"),
        ("dense", ["--trust-code"], "--trust-code has no effect on dense"),
        ("BACKBONE", [], "would rank at random"),
        ("BACKBONE", ["model.backbone=tiny-docs"], "model.backbone is "),
        ("EXPORTED", ["chunking.window=40"], "has its settings in ranker.json"),
        ("nowhere/at-all", [], "nowhere/at-all"),
    ],
)
def test_a_teacher_that_cannot_be_read_so_is_refused(
    teacher, words, said, exported, backbone_folder, collection_folder, tmp_path, capsys
):
    folder = {"BACKBONE": backbone_folder, "EXPORTED": exported}.get(teacher, teacher)
    assert teach(folder, collection_folder, tmp_path / "t.gz", *words) == 2
    assert said in capsys.readouterr().err


def test_a_file_of_settings_may_be_empty():
    """Not the working directory."""
    assert absolute("training.teacher", "", "/folder") == ""


@pytest.mark.parametrize("kind", [".run.zst", ".xz", ".CSV", ".jsonl.gz", ".parquet", ".run.GZ"])
def test_a_run_is_not_written_under_a_name_by_which_readers_expect_another_kind(
    exported, collection_folder, tmp_path, capsys, kind
):
    out = tmp_path / f"run{kind}"
    for words in (["teach"], ["rerank", "--run", str(tmp_path / "no.run")]):
        given = [*words, str(exported), "--collection", str(collection_folder), "--out", str(out)]
        assert main(given) == 2
        assert f"--out must be a text file, plain or gzipped (.run, .run.gz), got {out}" in (
            capsys.readouterr().err
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.run", "a.run.gz", "a.trec", "a", "a.v1.txt", "a.gz"])
def test_the_names_of_texts_are_names_of_runs(name, tmp_path):
    check_run_name("--out", tmp_path / name)
