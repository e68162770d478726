"""The events of a trial as what MLflow keeps of its run."""

import math

import pytest

from sweeps.store.trial_events import CommandBegan, Reported, TrialEvent, read_lines
from sweeps.tracking.records import RunRecords
from tests.sweeps.made_log import MadeLog


def records(log: MadeLog, sweep_id: str = "ws"):
    run, command, made = RunRecords(sweep_id), None, []
    lines = [line for path in (log.path, log.progress) for line in read_lines(path)]
    for line in sorted(lines, key=lambda line: line.event.time):
        if isinstance(line.event, CommandBegan):
            command = line.event
        elif isinstance(line.event, TrialEvent):
            made.append(run.add(line.event, command))
    return made


def test_a_repeated_step_of_a_later_attempt_adds_no_second_point(tmp_path):
    log = MadeLog(tmp_path)
    log.start("c1-seed1")
    log.report("c1-seed1", 5, loss=1.0)
    log.report("c1-seed1", 10, loss=0.5)
    log.start("c1-seed1", attempt=2)
    log.report("c1-seed1", 10, dev={"P@5": 0.1}, loss=7.0)
    log.report("c1-seed1", 15, loss=0.2)
    points = [point for record in records(log) for point in record.points]
    assert points == [
        ("train/loss", 1.0, 5),
        ("train/loss", 0.5, 10),
        ("dev/p_5", 0.1, 10),
        ("train/loss", 0.2, 15),
    ]


def test_a_second_start_reopens_the_run_and_brings_no_second_header(tmp_path):
    log = MadeLog(tmp_path)
    for attempt in (1, 2):
        log.start("c1-seed1", attempt=attempt, label="MaxP 48/32", swept={"chunking.window": 48})
    created, reopened = records(log)
    assert (created.kind, reopened.kind) == ("created", "reopened")
    assert (created.name, reopened.name) == ("MaxP 48/32 #1", "")
    assert [record.tags["attempts"] for record in (created, reopened)] == ["1", "2"]
    assert created.tags["rank.trial_key"] == "ws/c1-seed1" and created.tags["config.id"] == "48/32"
    assert created.params == {"seed": "1", "model.name": "maxp", "chunking.window": "48"}
    assert created.points == (("hp/window", 48.0, 0),) and reopened.points == ()


def test_a_setting_that_the_trial_ignores_is_neither_param_nor_metric_nor_name(tmp_path):
    log = MadeLog(tmp_path)
    swept = {"chunking.window": 48, "chunking.stride": 32}
    log.start("c1-seed1", label="FirstP 48", swept=swept, ignored=["chunking.stride"])
    [created] = records(log)
    assert created.params == {"seed": "1", "model.name": "maxp", "chunking.window": "48"}
    assert created.points == (("hp/window", 48.0, 0),) and created.name == "FirstP 48 #1"
    assert created.tags["mlflow.note.content"] == "FirstP 48, seed 1"


def test_values_that_are_no_numbers_become_tags_once(tmp_path):
    log = MadeLog(tmp_path)
    log.start("c1-seed1")
    for step in (1, 2):
        log.report("c1-seed1", step, loss=math.nan, learning_rate=0.1)
    _, *news = records(log)
    assert [record.points for record in news] == [
        (("train/learning_rate", 0.1, step),) for step in (1, 2)
    ]
    assert [dict(record.tags) for record in news] == [{"nonfinite.train/loss": "nan at step 1"}, {}]


def test_a_step_of_fp16_whose_gradients_overflow_is_no_divergence(tmp_path):
    log = MadeLog(tmp_path)
    log.start("c1-seed1")
    log.report("c1-seed1", 1, loss=0.7, gradient_norm=math.inf)
    log.report("c1-seed1", 2, loss=0.6, gradient_norm=3.0)
    log.end("c1-seed1", test={"nDCG@10": 0.5})
    made = records(log)
    assert all("diverged" not in record.tags for record in made)
    told = [record.tags for record in made if record.kind == "points"]
    assert told == [{"nonfinite.train/gradient_norm": "inf at step 1"}, {}]


def test_a_trial_that_diverged_is_tagged_so(tmp_path):
    log = MadeLog(tmp_path)
    log.start("c1-seed1")
    log.end("c1-seed1", "diverged")
    assert records(log)[-1].tags == {"diverged": "true", "stop.reason": "the reason"}


def test_the_end_brings_measures_costs_and_evidence_and_a_lost_one_its_reason(tmp_path):
    log = MadeLog(tmp_path)
    log.start("c1-seed1", swept={"evaluation.measures": ["RR@10", "nDCG@10"]})
    log.end("c1-seed1", "failed")
    test, dev = {"nDCG@10": 0.5, "RR@10": 0.25}, {"nDCG@10": 0.4, "RR@10": 0.2}
    files = ["result.json", "per_query.parquet"]
    log.end("c1-seed1", test=test, dev=dev, files=files, versions={"torch": "2"})
    _, lost, end = records(log)
    assert (lost.status, lost.points, lost.tags) == ("FAILED", (), {"stop.reason": "the reason"})
    assert end.status == "FINISHED" and end.files == ("per_query.parquet",)
    assert end.points[:4] == (
        ("test/recip_rank_10", 0.25, 0),
        ("test/ndcg_cut_10", 0.5, 0),
        ("best/dev_recip_rank_10", 0.2, 0),
        ("best/dev_ndcg_cut_10", 0.4, 0),
    )
    assert ("cost/peak_memory_mib", 1.0, 0) in end.points
    assert end.tags == {"stop.reason": "completed", "version.torch": "2"}


@pytest.mark.parametrize("num_steps, steps", [(100, 100), (1000, 1000), (1001, 501), (4500, 900)])
def test_of_a_long_trial_the_curves_are_thinned_and_nothing_else(tmp_path, num_steps, steps):
    log = MadeLog(tmp_path)
    log.start("c1-seed1")
    curve = [{"step": step, "loss": 1 / step, "seconds": 5.0} for step in range(1, num_steps + 1)]
    curve[1]["loss"] = math.inf
    facts = {"step": num_steps, "num_steps": num_steps, "curve": curve}
    log.tell(Reported.of("c1-seed1", facts | {"dev": {"P@5": 0.1}}))
    _, record = records(log)
    losses = [step for name, _, step in record.points if name == "train/loss"]
    every = -(-num_steps // 1000)
    assert losses == [step for step in [*range(every, num_steps, every), num_steps] if step != 2]
    assert len({*losses, 2} if every < 3 else losses) == steps
    assert ("dev/p_5", 0.1, num_steps) in record.points
    assert record.tags["nonfinite.train/loss"] == "inf at step 2", "no fault is thinned away"


def test_a_report_has_the_time_of_its_last_step_whoever_reads_it(tmp_path):
    log = MadeLog(tmp_path)
    log.start("c1-seed1")
    log.report("c1-seed1", 1, loss=1.0, seconds=1234.5)
    log.report("c1-seed1", 2, {"P@5": 0.1})
    created, first, second = records(log)
    assert (first.time, second.time) == (1234500, created.time)


def test_what_never_started_has_no_record(tmp_path):
    log = MadeLog(tmp_path)
    log.report("c1-seed1", 1, loss=1.0)
    assert records(log) == [None]


def test_a_pause_and_an_interrupt_kill_the_run_and_a_divergence_fails_it(tmp_path):
    log = MadeLog(tmp_path)
    log.start("c1-seed1")
    for status in ("stopped", "planned", "diverged"):
        log.end("c1-seed1", status)
    assert [record.status for record in records(log)[1:]] == ["KILLED", "KILLED", "FAILED"]
