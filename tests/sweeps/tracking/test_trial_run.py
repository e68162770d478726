"""A trial as what MLflow keeps of its run."""

from dataclasses import replace

import pytest

from sweeps.store.records import Attempt, State
from sweeps.store.storage import Entry
from sweeps.store.sweep_file import Cell, SweepFile
from sweeps.store.trial_status import TrialStatus
from sweeps.tracking.runs import datasets
from sweeps.tracking.trial_run import (
    final_points,
    number_points,
    report_points,
    run_params,
    run_status,
    run_tags,
    times,
)

CELL = Cell("c1", "FirstP 48", config={"chunking.window": 48, "measures": ("RR@10", "nDCG@10")})
DATA = {"name": "woods", "content_hash": "a", "num_documents": 9,
        "num_queries": {"train": 4, "test": 3}}  # fmt: skip
SWEEP = SweepFile("ws", "?", "test", ("RR@10", "nDCG@10"), "RR@10", "c1", (CELL,), collection=DATA,
                  swept=("chunking.window", "chunking.stride"), tags={"git.sha": "0"})  # fmt: skip
ATTEMPT = Attempt(attempt=1, sweep="ws/woods", command="", begun=1000, ended=5000, host="node-1")


def state(status: str, **facts) -> State:
    return State("c1-seed7", TrialStatus(status), "the reason", (ATTEMPT,), facts)


@pytest.mark.parametrize(
    ("status", "of_the_run"),
    [
        ("running", "RUNNING"),
        ("done", "FINISHED"),
        ("collapsed", "FINISHED"),
        ("failed", "FAILED"),
        ("diverged", "FAILED"),
        ("stopped", "KILLED"),
        ("planned", "KILLED"),
    ],
)
def test_a_run_has_the_status_of_its_trial(status, of_the_run):
    assert run_status(state(status)) == of_the_run
    tags = run_tags(SWEEP, CELL, state(status))
    assert tags.get("diverged") == ("true" if status == "diverged" else None)
    told = {"running": None, "collapsed": "collapsed"}.get(status, "the reason")
    assert tags.get("stop.reason") == told


def test_the_tag_of_a_device_names_those_of_all_workers():
    versions = {"versions": {"device": "T4"}}
    assert run_tags(SWEEP, CELL, state("done", **versions))["device"] == "T4"
    workers = [{"step": 0, "number": 2, "seconds": 0.0, "devices": {"A100": 1, "T4": 1}}]
    assert run_tags(SWEEP, CELL, state("done", **versions, workers=workers))["device"] == (
        "A100 and T4"
    )
    assert "device" not in run_tags(SWEEP, CELL, state("failed"))


def test_params_numbers_and_data_are_those_with_an_effect():
    assert run_params(CELL, 7) == {
        "seed": "7",
        "chunking.window": "48",
        "measures": "RR@10,nDCG@10",
    }
    assert list(number_points(SWEEP, CELL, 5)) == [("hp/window", 48.0, 0, 5)]
    assert [item.dataset.digest for item in datasets(SWEEP, CELL)] == ["test-a"], "trains nothing"
    trains = Cell("c", config={"training.batch_size": 8, "collection": "woods"})
    assert [item.tags[0].value for item in datasets(SWEEP, trains)] == ["train", "test"]


def test_the_end_brings_measures_in_their_order_and_costs():
    test, dev = {"nDCG@10": 0.5, "RR@10": 0.25}, {"nDCG@10": 0.4, "RR@10": 0.2}
    ended = state("done", test=test, dev=dev, best_step=3, peak_memory_bytes=2**20, ties=1)
    assert times(ended) == (1000, 5000)
    assert times(replace(ended, files={"result.json": Entry(9, 4.0)})) == (1000, 4000)
    assert list(final_points(SWEEP, ended)) == [
        ("test/recip_rank_10", 0.25, 0, 5000),
        ("test/ndcg_cut_10", 0.5, 0, 5000),
        ("best/dev_recip_rank_10", 0.2, 0, 5000),
        ("best/dev_ndcg_cut_10", 0.4, 0, 5000),
        ("best/step", 3.0, 0, 5000),
        ("cost/peak_memory_mib", 1.0, 0, 5000),
    ]
    assert list(final_points(SWEEP, state("failed"))) == []


@pytest.mark.parametrize("num_steps, steps", [(100, 100), (1000, 1000), (1001, 501), (4500, 900)])
def test_of_a_long_trial_the_curves_are_thinned_and_nothing_else(num_steps, steps):
    curve = [{"step": step, "loss": 1 / step, "seconds": 5.0} for step in range(1, num_steps + 1)]
    facts = {"step": num_steps, "num_steps": num_steps, "curve": curve, "dev": {"P@5": 0.1}}
    *losses, dev = report_points(facts, 0)
    every = -(-num_steps // 1000)
    kept = {step for _, _, step, _ in losses}
    assert kept == {num_steps, *range(every, num_steps + 1, every)} and len(kept) == steps
    assert dev == ("dev/p_5", 0.1, num_steps, 5000)
    assert [*report_points(facts | {"curve": []}, 7)] == [("dev/p_5", 0.1, num_steps, 7)]
