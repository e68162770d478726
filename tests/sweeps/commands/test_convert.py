"""Files of search engines and of tools for judgments: read as they are meant, or converted by the
command that a message prints."""

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rank_core.data.readers import documents, qrels_of
from rank_core.data.trec import read_qrels, read_run
from rank_core.errors import BadInput
from ranksweep import compare, measure
from sweeps.__main__ import main
from sweeps.systems.sources import ranking_of

DOCUMENTS = {"d1": {"title": "Wars", "text": "of stars"}, "d2": {"text": "a schema"}}
TEXTS = {"d1": "Wars\nof stars", "d2": "a schema"}
RUN = {"q1": {"d1": 2.5, "d2": 1.0}, "q2": {"d2": 3.0}}
QRELS = {"q1": {"d1": 3, "d2": 0}, "q2": {"d2": 1}}
QUERIES = {"q1": "Star  Wars", "q2": "schema"}


def hit(doc_id: str, score: float | None = None) -> dict[str, Any]:
    more = {} if score is None else {"_score": score}
    return {"_index": "i", "_id": doc_id, **more, "_source": DOCUMENTS[doc_id]}


def response(query_id: str) -> dict[str, Any]:
    hits = [hit(doc_id, score) for doc_id, score in RUN[query_id].items()]
    return {"took": 3, "timed_out": False, "hits": {"total": {"value": 2}, "hits": hits}}


def lines(*rows: Any) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


OF_DOCUMENTS = {
    "_source": ("x.jsonl", lines(hit("d1"), hit("d2"))),
    "bulk": (
        "x.ndjson",
        lines({"index": {"_index": "i", "_id": "d1"}}, DOCUMENTS["d1"])
        + lines({"create": {"_id": "d2"}}, DOCUMENTS["d2"]),
    ),
    "a response": ("x.json", json.dumps(response("q1"), indent=1)),
    "a list of hits": ("x.json", json.dumps([hit("d1", 2.0), hit("d2", 1.0)])),
}
OF_RUNS = {
    "with ids": [{"query_id": name, **response(name)} for name in RUN],
    "inside": [{"qid": name, "response": response(name)} for name in RUN],
    "with texts": [{"query": QUERIES[name].upper(), **response(name)} for name in RUN],
}


def queries(folder: Path) -> Path:
    path = folder / "queries.tsv"
    path.write_text("".join(f"{name}\t{text}\n" for name, text in QUERIES.items()))
    return path


@pytest.mark.parametrize("form", OF_DOCUMENTS)
def test_documents_of_a_search_engine_are_read_and_converted(form, tmp_path):
    name, content = OF_DOCUMENTS[form]
    (path := tmp_path / name).write_text(content)
    assert {own.doc_id: own.text for own in documents(path, {})} == TEXTS
    assert main(["convert", str(path), "--to", f"{tmp_path}/docs.jsonl"]) == 0
    again = documents(tmp_path / "docs.jsonl", {})
    assert {own.doc_id: own.text for own in again} == TEXTS


@pytest.mark.parametrize("kind", [".jsonl", ".json"])
@pytest.mark.parametrize("form", OF_RUNS)
def test_hits_are_a_run(form, kind, tmp_path, capsys):
    """As lines and as a list; of texts by the command that is printed, with its placeholders
    filled in."""
    rows = OF_RUNS[form]
    path = tmp_path / f"hits{kind}"
    path.write_text(lines(*rows) if kind == ".jsonl" else json.dumps(rows))
    if form != "with texts":
        assert ranking_of(path).run == RUN
        new = ["convert", str(path), "--to", f"{tmp_path}/new.run"]
    else:
        with pytest.raises(BadInput, match="one word without white space") as refused:
            ranking_of(path)
        new = printed(refused.value, queries(tmp_path), tmp_path / "new.run")
    assert main(new) == 0
    assert read_run(tmp_path / "new.run") == RUN


def test_predictions_of_mteb_are_a_run(tmp_path, capsys):
    """As `AbsTask._save_task_predictions` of mteb 2.26 writes them."""
    path = tmp_path / "NFCorpus_predictions.json"
    about = {"model_name": "a/b", "revision": "1"}
    path.write_text(json.dumps({"mteb_model_meta": about, "default": {"test": RUN}}))
    assert ranking_of(path).run == RUN
    assert main(["convert", str(path), "--to", f"{tmp_path}/new.run"]) == 0
    assert read_run(tmp_path / "new.run") == RUN
    path.write_text(
        json.dumps({"mteb_model_meta": about, "en": {"test": RUN}, "de": {"test": RUN}})
    )
    with pytest.raises(BadInput, match="one subset and one split, found 'en test', 'de test'"):
        ranking_of(path)
    for other in ({"test": [0, 1]}, [1], {"test": {"q1": 3}}):
        path.write_text(json.dumps({"mteb_model_meta": about, "default": other}))
        with pytest.raises(BadInput, match="tasks of retrieval"):
            ranking_of(path)


class Hashes:
    """A model of sentence-transformers that embeds a text by the lengths of its words."""

    similarity_fn_name = "cosine"
    model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *_: None)

    def encode_query(self, texts: list[str], **_: Any) -> torch.Tensor:
        return torch.tensor([[1.0, len(text), len(text.split())] for text in texts])

    encode_document = encode_query

    @staticmethod
    def similarity(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(one) @ torch.nn.functional.normalize(other).T


@pytest.mark.slow
def test_predictions_of_an_evaluator_of_sentence_transformers_have_its_measures(tmp_path):
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    corpus = {f"d{n}": "word " * n + "x" * (n % 7) for n in range(1, 40)}
    queries = {f"q{n}": "term " * n for n in range(1, 12)}
    relevant = {name: {f"d{3 * int(name[1:])}"} for name in queries}
    evaluator = evaluation.InformationRetrievalEvaluator(
        queries, corpus, relevant, ndcg_at_k=[10], mrr_at_k=[10], write_predictions=True
    )
    means = evaluator(Hashes(), output_path=str(tmp_path))
    [path] = tmp_path.glob("*_predictions_cosine.jsonl")
    qrels = {name: dict.fromkeys(own, 1) for name, own in relevant.items()}
    found = measure(path, qrels, ["nDCG@10", "RR@10"]).frame.set_index("measure")["mean"]
    assert found["nDCG@10"] == pytest.approx(means["cosine_ndcg@10"], abs=1e-6)
    assert found["RR@10"] == pytest.approx(means["cosine_mrr@10"], abs=1e-6)
    reverse = {q: {d: -s for d, s in own.items()} for q, own in ranking_of(path).run.items()}
    assert compare({"A": path, "B": reverse}, qrels, measures="RR").frame.shape[0] == 2


def printed(error: BadInput, of: Path, to: Path) -> list[str]:
    """The words of the command in a message."""
    [command] = re.findall(r"`ranksweep (convert [^`]*)`", str(error))
    command = re.sub(r"NEW\.\w+", str(to), command.replace("QUERIES", str(of)))
    return shlex.split(command)


def test_judgments_of_quepid_are_read_where_queries_are_known(tmp_path, capsys):
    path = tmp_path / "a case.csv"
    rows = [(QUERIES[q], d, grade) for q, own in QRELS.items() for d, grade in own.items()]
    path.write_text("query,docid,rating\n" + "".join(f"{q},{d},{g}\n" for q, d, g in rows))
    assert qrels_of(path, None, QUERIES) == QRELS
    with pytest.raises(BadInput) as refused:
        measure(RUN, path, ["RR"])
    assert main(printed(refused.value, queries(tmp_path), tmp_path / "new.trec")) == 0
    assert read_qrels(tmp_path / "new.trec") == QRELS
    both = {"q1": "star wars", "q9": "STAR wars"}
    with pytest.raises(BadInput, match="is the text of 2 queries, q1 and q9"):
        qrels_of(path, None, both)


def test_words_and_lists_are_grades_as_fields_says(tmp_path, capsys):
    (path := tmp_path / "esci.csv").write_text("query_id,doc_id,label\nq1,d1,Exact\nq2,d2,Part\n")
    with pytest.raises(BadInput, match="found 'Exact'; --fields label=relevance:Exact=1 gives"):
        qrels_of(path, {})
    words = {"label": "relevance:Exact=2,Part=1"}
    assert qrels_of(path, words) == {"q1": {"d1": 2}, "q2": {"d2": 1}}
    with pytest.raises(BadInput, match="must have a grade for each word, found 'Part'"):
        qrels_of(path, {"label": "relevance:Exact=2"})
    to = [
        "--to",
        f"{tmp_path}/new.trec",
        "--fields",
        "label=relevance:Exact=2,Part=1,doc_id=doc_id",
    ]
    assert main(["convert", str(path), *to]) == 0
    assert read_qrels(tmp_path / "new.trec") == {"q1": {"d1": 2}, "q2": {"d2": 1}}
    (path := tmp_path / "nano.csv").write_text("query-id,corpus-id\nq1,d1\nq2,d2\n")
    listed = {"corpus-id": "doc_id:relevant"}
    assert qrels_of(path, listed) == {"q1": {"d1": 1}, "q2": {"d2": 1}}
    (path := tmp_path / "excel.csv").write_text("sep=;\nquery_id;doc_id;relevance\nq1;d1;1\n")
    assert qrels_of(path, {}) == {"q1": {"d1": 1}}


@pytest.mark.parametrize("indent", [None, 1])
def test_the_one_file_of_a_test_set_has_its_parts(indent, tmp_path):
    whole = {
        "queries": QUERIES,
        "corpus": {**TEXTS, "d1": DOCUMENTS["d1"]},
        "relevant_docs": {"q1": ["d1"], "q2": {"d2": 2}},
    }
    (path := tmp_path / "set.json").write_text(json.dumps(whole, indent=indent))
    assert {own.doc_id: own.text for own in documents(path, {})} == TEXTS
    assert qrels_of(path, {}) == {"q1": {"d1": 1}, "q2": {"d2": 2}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.jsonl", "--to", "x.csv"], "--to must end in .jsonl, .trec or .run"),
        (["x.run", "--to", "y.run"], "x.run must be a file of records"),
        (["x.jsonl", "--to", "x.jsonl"], "--to must be a new file"),
        (["x.jsonl", "--to", "y.jsonl", "--queries", "q.tsv"], "no effect on documents"),
        (["x.jsonl", "--to", "y.jsonl"], "an action of a bulk request needs _id"),
        (["x.jsonl", "--to", "y.run"], "an action of a bulk request needs _id"),
        (["none.jsonl", "--to", "y.run"], "does not exist"),
    ],
)
def test_what_cannot_be_converted_is_refused_and_nothing_written(
    words, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("x.jsonl").write_text(lines({"index": {"_index": "i"}}, DOCUMENTS["d1"]))
    Path("q.tsv").write_text("q1\tstar wars\n")
    assert main(["convert", *words]) == 2
    assert message in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"x.jsonl", "q.tsv"}
