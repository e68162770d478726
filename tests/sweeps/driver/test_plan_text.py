"""What a person and the report get to know of a plan."""

import json
from dataclasses import replace

import pytest

from rank_core.data.trec import read_qrels, read_run
from rank_core.encoders.shipped import SETTINGS
from rank_core.evaluate import mean_values, per_query
from rank_core.ranking.scorer import evaluated_queries
from sweeps.driver.plan_text import forecast_text, plan_text
from sweeps.forecast.forecast import Calibration, Forecast, TrialEstimate
from sweeps.store.plan_description import description_of, write_description
from sweeps.store.sweep_file import parse_sweep_file, read_sweep_file

SMALL = ("chunking.window=48,500", "chunking.stride=32", "--seeds", "1,2")


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_the_plan_shows_cells_costs_and_what_is_left_out(plan_of):
    text = plan_text(plan_of(*SMALL), finished=0)
    assert "2 cells x 2 seeds = 4\n" in text
    assert "20 documents, queries train 8, dev 8, test 8; evaluated: dev 8, test 8" in text
    assert "inputs of up to 131 tokens" in text
    first, second = (line for line in text.splitlines() if line.startswith(("First", "MaxP")))
    assert first.endswith("1.0x  baseline")
    assert second.split()[:2] == ["MaxP", "48/32"] and "100%" in second
    assert "read: share of the documents' tokens in some chunk; cost: encoder tokens" in text
    assert "tokens/doc: " in text and "max: " in text, "every column is explained"
    [left_out] = (line for line in text.splitlines() if line.startswith("excluded"))
    assert "chunking.window=500, chunking.stride=32: chunking.window <= 96" in left_out


def test_the_plan_counts_the_queries_that_are_cut(plan_of):
    assert "are cut" not in plan_text(plan_of(*SMALL), finished=0)
    text = plan_text(plan_of(*SMALL, "chunking.max_query_tokens=3"), finished=0)
    assert "queries     24 of 24 are cut at chunking.max_query_tokens=3\n" in text


def test_the_plan_names_the_defaults_of_an_embedded_backbone(plan_of):
    plan = plan_of(*SMALL)
    own = {"model.backbone": "tiny-docs", **SETTINGS, "model.dropout": 0.2}
    text = plan_text(replace(plan, base=plan.base.override(own)), finished=0)
    [line] = (line for line in text.splitlines() if line.startswith("backbone"))
    assert "its own defaults: training.backbone_learning_rate=0.0003" in line
    assert "model.dropout" not in line


def test_the_forecast_adds_up_cells_slots_and_start(plan_of):
    plan = plan_of(*SMALL)
    one = TrialEstimate(100.0, tokens=2e6, peak_bytes=700 * 2**20)
    known = Forecast(
        trials={cell.cell: one for cell in plan.cells},
        **{"slots": 2, "units": 1.0, "unit": "core", "start_seconds": 10.0},
        **{"num_kinds": 2, "num_measured": 2, "seconds": 14.0},
        **{"device": "x86_64", "threads": 1},
    )
    text = forecast_text(list(plan.trials()), known, Calibration(0.0, 0.1, 0))
    first = next(line for line in text.splitlines() if line.startswith("First"))
    assert first.split()[2:] == ("2 4.0 M 1:40 (1:22-2:02) 0.0556 700 MiB".split())
    assert "estimate    3 min 30 s (95%: 2 min 54 s - 4 min 13 s) on 2 slots" in text
    assert "0.111 core-hours (0.0913-0.135), 8.0 M encoder tokens" in text
    assert "measured    2 of 2 kinds of trial, a batch of each" in text and "calibrated" not in text


def test_the_description_has_what_the_report_reads(plan_of, records):
    plan = plan_of(*SMALL, "training.paired_seeds=true")
    write_description(records, plan, description_of(plan, ["--seeds", "1,2"]))
    described = json.loads((records.folder / "sweep.json").read_text())
    assert described["schema_version"] == 3
    assert described["sweep"] == "window_stride" and described["question"].endswith("?")
    assert described["baseline"] == plan.cells[0].cell
    assert described["measures"] == ["nDCG@10", "RR@10"] and described["primary"] == "nDCG@10"
    assert described["split"] == "test"
    assert "correction" not in described and "confirms" not in described
    assert read_sweep_file(records) == parse_sweep_file(json.dumps(described).encode(), "x")
    assert described["seeds"] == [1, 2] and described["paired_seeds"] is True
    assert described["swept"] == ["chunking.window", "chunking.stride"]
    assert described["collection"]["num_documents"] == 20
    assert described["collection"]["num_queries"] == {"train": 8, "dev": 8, "test": 8}
    assert described["command"].endswith(" run window_stride --seeds 1,2")
    first, second = described["cells"]
    assert second["label"] == "MaxP 48/32" and second["group"] == "MaxP"
    assert second["settings"] == {
        "model.name": "maxp",
        "chunking.window": 48,
        "chunking.stride": 32,
    }
    assert 0 < first["coverage"] < second["coverage"] == 1
    assert not list(records.folder.rglob("*.unfinished"))


def test_the_first_stage_is_measured_on_its_own_order(plan_of):
    plan = plan_of(*SMALL)
    split = plan.inputs.collection.splits["test"]
    expected = mean_values(per_query(split.qrels, split.candidates, ["nDCG@10", "RR@10"]))
    found = description_of(plan, []).first_stage
    assert found == pytest.approx(expected) and 0 < found["nDCG@10"] < 1


def test_the_candidates_that_are_reranked_are_kept_with_their_scores(plan_of, records):
    plan = plan_of(*SMALL, "evaluation.max_test_queries=3", "evaluation.depth=4")
    description = description_of(plan, [])
    assert description.collection["first_stage"] == "BM25"
    write_description(records, plan, description)
    split = plan.inputs.collection.splits["test"]
    sample = evaluated_queries(plan.inputs.collection, "test", plan.base.evaluation)
    expected = {q: list(split.candidates[q].items())[:4] for q in sample}
    kept = read_run(records.folder / "first_stage" / "test.run.gz")
    assert {q: list(documents.items()) for q, documents in kept.items()} == expected
    before = (records.folder / "first_stage" / "dev.run.gz").read_bytes()
    write_description(records, plan, description)
    assert (records.folder / "first_stage" / "dev.run.gz").read_bytes() == before


def test_with_folds_all_queries_are_tested_described_and_judged(plan_of, records):
    plan = plan_of(*SMALL, "evaluation.folds=3")
    splits = plan.inputs.collection.splits.values()
    qrels = {query_id: judged for split in splits for query_id, judged in split.qrels.items()}
    run = {query_id: docs for split in splits for query_id, docs in split.candidates.items()}
    assert "evaluated: dev 24, test 24 over 3 folds" in plan_text(plan, finished=0)
    description = description_of(plan, [])
    expected = mean_values(per_query(qrels, run, ["nDCG@10", "RR@10"]))
    assert description.first_stage == pytest.approx(expected)
    write_description(records, plan, description)
    for name in ("dev", "test"):
        assert read_qrels(records.folder / "qrels" / f"{name}.qrels") == qrels
