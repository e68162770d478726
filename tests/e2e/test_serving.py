"""`ranksweep run serving`: one scoring, every aggregation, an answer that others can follow."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from rank_core.data.trec import read_qrels, read_run
from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.evaluate import per_query
from rank_core.export.reranker import Reranker
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import run_trial
from sweeps.__main__ import main
from sweeps.serving import EXPERIMENT, FIXED, grid
from sweeps.systems.aggregations import AGGREGATIONS
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep

WORDS = ["--tracking-uri", "none", "chunking.window=24,48", "chunking.stride=24"]
WORDS += ["chunking.max_document_tokens=120", "evaluation.measures=nDCG@10,RR@10"]


@pytest.fixture(scope="module")
def served(run_local, reranker_folder, tmp_path_factory):
    storage = tmp_path_factory.mktemp("serving") / "results"
    return run_local(storage, "--backbone", str(reranker_folder), *WORDS, experiment=EXPERIMENT)


@pytest.mark.slow
def test_every_aggregation_is_what_its_own_trial_gives(served, tmp_path):
    sweep = with_interpolated(load_sweep(served.folder))
    assert len(sweep.cells) == 3 * len(AGGREGATIONS)
    for number, (cell, (_, settings)) in enumerate(sweep.serving.of.items()):
        own = TrialConfig().override(settings).override({"evaluation.keep_chunk_scores": False})
        list(run_trial(own, tmp_path / str(number)))
        run = read_run(tmp_path / str(number) / "test.run.gz")
        qrels = read_qrels(served.folder / "qrels" / "test.qrels")
        expected = per_query(qrels, run, sweep.measures).set_index(["query_id", "measure"])
        found = sweep.scores[sweep.scores["cell"] == cell].set_index(["query_id", "measure"])
        both = expected["value"].to_frame("theirs").join(found["value"])
        assert len(both) == len(expected) and (both["theirs"] - both["value"]).abs().max() < 1e-9


@pytest.mark.slow
def test_the_choice_is_one_file_and_the_first_sentence(served):
    report = served.folder / "report"
    setting = json.loads((report / "serving.json").read_text())
    results = json.loads((report / "results.json").read_text())
    assert results["headline"]["mean"] == pytest.approx(setting["measured"]["mean"])
    rows = results["serving"]["systems"]
    assert len(rows) == 3 * len(AGGREGATIONS)
    interpolated = setting["interpolation"] is not None
    best = max(row["dev_interpolated" if interpolated else "dev"] for row in rows)
    chosen = next(
        row
        for row in rows
        if (row["window"], row["stride"]) == (setting["window"], setting["stride"])
        and best in (row["dev"], row.get("dev_interpolated"))
    )
    value = chosen["test_interpolated" if interpolated else "test"]
    assert setting["measured"]["mean"] == pytest.approx(value)
    assert {"first", "cut"} <= setting["measured"]["over"].keys() | {chosen["aggregation"]}
    assert results["serving"]["read_tokens"] < results["serving"]["separate_tokens"]
    assert setting["model"]["tokenizer_hash"] and "encoder tokens" in served.text


@pytest.mark.slow
def test_the_answer_is_exported_and_ranks_as_measured(served, reranker_folder, tmp_path):
    assert main(["export", str(served.folder), "--to", str(tmp_path / "m")]) == 0
    setting = json.loads((tmp_path / "m" / "serving.json").read_text())
    stated = json.loads((served.folder / "report" / "serving.json").read_text())
    assert setting == stated
    texts = {"a": "oak river", "b": "river stone and bank", "c": "stone"}
    scores = {"first_stage": {"a": 3.0, "b": 2.0, "c": 1.0}} if setting["interpolation"] else {}
    exported = Reranker.load(tmp_path / "m").rank("river", texts, **scores)
    other = Reranker.serve(str(reranker_folder), tmp_path / "m" / "serving.json")
    assert dict(other.rank("river", texts, **scores)) == pytest.approx(dict(exported), abs=1e-6)
    card = (tmp_path / "m" / "README.md").read_text()
    assert "model-index:" in card and "pipeline_tag: text-rank" in card
    assert re.search(r"over a bert encoder of [\d.]+ million parameters \(folder r\)", card)
    assert "base_model:" not in card, "a hub would take the folder for a model of its own"


def test_an_embedding_model_is_sent_to_the_sweep_of_chunk_sizes(tmp_path):
    base, ours = TrialConfig(), resolve_backbone("tiny-docs")
    shutil.copy(ours.folder / "config.json", tmp_path)
    backbone = replace(ours, trained_head=None, folder=tmp_path)
    with pytest.raises(BadInput, match="`ranksweep run chunk_size` is for an embedding model"):
        grid(base.override(FIXED), backbone)
    late = {**FIXED, "model.name": "late-interaction"}
    with pytest.raises(BadInput, match=r"score of each chunk .* docs/examples/late_windows\.toml"):
        grid(base.override(late), backbone)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["training.num_epochs=1"], "training.num_epochs"),
        (["chunking.window=4000"], "chunking.window"),
        (["model.head=new"], "model.head"),
        (["--confirm"], "--confirm"),
    ],
)
def test_what_serving_cannot_do_is_refused(words, named, run_local, reranker_folder, tmp_path):
    given = ["--backbone", str(reranker_folder), *words]
    ended = run_local(tmp_path / "results", *given, code=2, experiment=EXPERIMENT)
    assert named in ended.text and "Traceback" not in ended.text
    assert not (tmp_path / "results").exists()
