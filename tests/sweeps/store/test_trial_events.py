"""The event log: whole lines alone count, nothing in it is ever changed, and all is derived."""

import math
import os
import uuid
from dataclasses import replace

import pandas as pd
import pytest

from sweeps.store import trial_events
from sweeps.store.failures import Failure
from sweeps.store.trial_events import (
    EVENTS,
    KINDS,
    PROGRESS,
    AttemptLost,
    EventLog,
    Reported,
    TrialEnded,
    append_lines,
    line_of,
    parse_line,
    read_lines,
    read_progress,
    remote_pieces,
)
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import TrialTable, read_state, replay
from tests.sweeps.made_log import MadeLog

SMALL = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "2")  # 2 cells x 2 seeds
NEWS = {"step": 3, "num_steps": 9, "curve": [{"step": 3, "loss": 1.0}], "dev": {"nDCG@10": 0.5}}


def kinds(path):
    return [type(line.event).__name__ for line in read_lines(path)]


def test_an_event_reads_back_as_it_was_written(tmp_path):
    log = MadeLog(tmp_path)
    log.whole("c1-seed1", steps=1)
    log.end("c1-seed2", "failed")
    events = [line.event for line in read_lines(log.path)]
    assert None not in events
    assert [parse_line(line_of(event)) for event in events] == events
    assert [event.seed for event in events[1:]] == [1, 1, 2] and events[1].cell == "c1"
    [report] = [line.event for line in read_lines(log.progress)]
    assert parse_line(line_of(report)) == report


def test_numbers_that_json_lacks_come_back_as_they_were():
    point = {"step": 1, "loss": math.nan, "gradient_norm": math.inf}
    event = Reported(trial="c-seed1", step=1, num_steps=2, curve=[point], dev={"P@5": -math.inf})
    [point] = (back := parse_line(line_of(event))).curve
    assert math.isnan(float(point["loss"])) and float(point["gradient_norm"]) == math.inf
    assert float(back.dev["P@5"]) == -math.inf


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\xff not json\n",
        b"[1]\n",
        b'{"event": "a novelty", "trial": "c-seed1"}\n',
        b'{"event": "reported", "time": 1, "trial": "c-seed1"}\n',
        b'{"event": "trial ended", "time": 1, "trial": "c", "status": "done", "reason": ""}\n',
        b'{"event": "trial ended", "time": 1, "trial": "c-seed1", "status": "?", "reason": ""}\n',
    ],
)
def test_a_line_that_is_no_event_is_passed_over(tmp_path, raw):
    log = MadeLog(tmp_path)
    log.start("c-seed1")
    append_lines(log.path, raw)
    log.end("c-seed1", "failed")
    lines = list(read_lines(log.path))
    assert [line.event is None for line in lines] == [False, False, True, False]
    assert replay(lines).trials["c-seed1"].status == "failed"
    assert lines[-1].end == log.path.stat().st_size


def test_a_torn_last_line_is_ignored_and_cut_before_the_next_append(tmp_path):
    log = MadeLog(tmp_path)
    log.start("c-seed1")
    whole = log.path.read_bytes()
    with log.path.open("ab") as file:
        file.write(b'{"event": "reported", "st' + b"x" * 200_000)
    assert kinds(log.path) == ["CommandBegan", "AttemptStarted"]
    log.end("c-seed1")
    assert kinds(log.path) == ["CommandBegan", "AttemptStarted", "TrialEnded"]
    assert log.path.read_bytes().startswith(whole)


def test_a_log_that_holds_only_a_torn_line_starts_again(tmp_path):
    (tmp_path / EVENTS).write_bytes(b'{"event": "command' + b"x" * 200_000)
    MadeLog(tmp_path)
    assert kinds(tmp_path / EVENTS) == ["CommandBegan"]


def test_a_disk_that_takes_half_of_a_write_keeps_none_of_it(tmp_path, monkeypatch):
    log = MadeLog(tmp_path)
    before, write = log.path.read_bytes(), os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[: len(data) // 2]))
    with pytest.raises(OSError, match="the disk may be full"):
        log.whole("c-seed1")
    assert log.path.read_bytes() == before


def test_the_replayed_log_is_the_state_of_the_driver(store, plan_of, leave_result):
    plan, table = plan_of(*SMALL), TrialTable(store)
    table.begin(plan)
    first, second, third, fourth = table.plan(plan, store.finished())
    table.started(first)
    table.reported(first, NEWS)
    leave_result(store, first.name)
    table.finished(first)
    table.started(second)
    table.failed(second, Failure("node lost", "gone", "n1", "h"), again=True)
    table.started(second)
    table.failed(second, Failure("error", "a bug"), again=False)
    table.started(replace(third, epochs=1))
    table.lost(third, "stopped", "after 1 of 9 epochs")
    table.started(fourth)
    table.reported(fourth, NEWS)
    table.write_tables()
    again = read_state(store)
    assert again.trials.keys() == table.state.trials.keys() and again.lost == table.state.lost
    assert again.trials[fourth.name] == table.state.trials[fourth.name]
    assert (again.command, again.news) == (table.state.command, table.state.news)
    assert [str(again.trials[t.name].status) for t in (first, second, third, fourth)] == [
        "done",
        "failed",
        "stopped",
        "running",
    ]
    later = TrialTable(store).state  # which reads no reports
    assert str(later.rows()) == str(again.rows()) == str(table.state.rows())  # a cost may be nan
    rows = pd.read_parquet(store.folder / "trials.parquet").to_dict("records")
    assert [row["attempts"] for row in rows] == [1, 2, 1, 1]
    [lost, last] = pd.read_parquet(store.folder / "failures.parquet").to_dict("records")
    assert (lost["attempt"], lost["again"], lost["node"]) == (1, True, "h (n1)")
    assert (last["attempt"], last["again"], last["kind"]) == (2, False, "error")


def test_what_happens_at_once_is_one_write_and_no_table_is_written(
    store, plan_of, leave_result, monkeypatch
):
    plan, table = plan_of(*SMALL), TrialTable(store)
    table.begin(plan)
    table.plan(plan, store.finished())
    writes = []

    def counted(path, data, **options):
        writes.append(data.count(b"\n"))
        append_lines(path, data, **options)

    monkeypatch.setattr(trial_events, "append_lines", counted)
    trials = list(plan.trials())
    curve = [{"step": step, "loss": 1.0} for step in range(1, 40)]
    table.started(trials[0])
    table.reported(trials[0], NEWS | {"step": 40, "curve": curve})
    table.failed(trials[0], Failure("error", "a bug"), again=False)
    for trial in trials:
        leave_result(store, trial.name)
    assert writes == [1, 1, 2]
    TrialTable(store).plan(plan, store.finished())  # all that ended while nobody looked
    assert writes[3:] == [1 + 2 * 3]
    assert not list(store.folder.glob("*.parquet"))


def test_reports_of_many_trials_are_one_write_and_before_the_end_of_any(
    store, plan_of, monkeypatch
):
    plan, table = plan_of(*SMALL), TrialTable(store)
    trials = list(plan.trials())
    for trial in trials:
        table.started(trial)
    clock, writes = [100.0], []

    def counted(path, data, **options):
        writes.append((path.name, data.count(b"\n")))
        append_lines(path, data, **options)

    monkeypatch.setattr(trial_events, "append_lines", counted)
    monkeypatch.setattr(trial_events.time, "monotonic", lambda: clock[0])
    for step in range(1, 11):
        for trial in trials:
            table.reported(trial, NEWS | {"step": step})
    assert writes == [(PROGRESS, 1)], "the first at once"
    clock[0] += trial_events.REPORTS_SECONDS
    table.heartbeat()
    assert writes[1:] == [(PROGRESS, 39)]
    table.reported(trials[0], NEWS | {"step": 11})
    table.lost(trials[0], "failed", "a bug")
    assert writes[2:] == [(PROGRESS, 1), (EVENTS, 1)]
    assert {read_state(store).trials[trial.name].step for trial in trials[1:]} == {10}


def test_a_command_starts_without_the_reports_of_earlier_ones(store, plan_of, monkeypatch):
    plan, table = plan_of(*SMALL), TrialTable(store)
    trials = list(plan.trials())
    table.started(trials[0])
    table.started(trials[1])
    table.reported(trials[0], NEWS)
    table.reported(trials[1], NEWS | {"step": 5})
    table.write_tables()
    read = []
    monkeypatch.setattr(trial_events, "_lines", lambda file, *_: read.append(file.name) or iter(()))
    TrialTable(store)
    assert read == [str(store.folder / EVENTS)]
    assert PROGRESS.encode() not in (store.folder / EVENTS).read_bytes()
    assert (store.folder / EVENTS).read_bytes().count(b"reported") == 0


def test_only_the_last_reports_are_read_and_those_of_an_earlier_attempt_are_not_told(
    store, plan_of, monkeypatch
):
    monkeypatch.setattr(trial_events, "TAIL_BYTES", 2000)
    plan, table = plan_of(*SMALL), TrialTable(store)
    first, second, *_ = plan.trials()
    table.started(first)
    table.started(second)
    for step in range(1, 100):
        table.reported(first, NEWS | {"step": step})
    table.failed(second, Failure("node lost", "gone"), again=True)
    assert read_state(store).trials[first.name].step == 99
    assert len(read_progress(store)) < 20
    monkeypatch.setattr(trial_events, "now", lambda: 2**60)
    table.started(first)
    assert read_state(store).trials[first.name].step is None


def test_an_event_is_in_the_log_before_it_counts(store, plan_of, monkeypatch):
    plan, table = plan_of(*SMALL), TrialTable(store)
    trial = next(plan.trials())

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(trial_events, "append_lines", interrupt)
        table.started(trial)
    assert table.status(trial) == "planned" and table.state.rows() == []


def test_a_remote_storage_gets_the_log_in_bounded_pieces(monkeypatch, tmp_path):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "first"))
    monkeypatch.setattr(trial_events, "PIECE_BYTES", 2000)
    storage = f"memory://{uuid.uuid4().hex}"
    store = Store(storage, "ws")
    store.open()
    log, sent = EventLog(store), []
    put = store.fs.pipe_file

    def counted(path, data, **options):
        sent.append(len(data))
        put(path, data, **options)

    monkeypatch.setattr(store.fs, "pipe_file", counted)
    for step in range(100):
        log.append(Reported(trial="c-seed1", step=step, num_steps=100, curve=[], dev=None))
        log.push()
    longest = max(len(line.raw) for line in read_lines(log.path))
    assert max(sent) < 2000 + longest and len(sent) >= 100
    pieces = remote_pieces(store)
    assert len(pieces) > 3 and b"".join(pieces.values()) == log.path.read_bytes()
    assert all(piece.endswith(b"\n") for piece in pieces.values())

    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "second"))
    other = Store(storage, "ws")
    other.open()
    resumed = EventLog(other)  # another machine goes on
    resumed.append(TrialEnded(trial="c-seed1", status="failed", reason="x"))
    resumed.push()
    assert len(resumed.read()) == 101
    log.append(Reported(trial="c-seed1", step=100, num_steps=100, curve=[], dev=None))  # unheard
    back = EventLog(store)
    assert [line.raw for line in back.read()] == [line.raw for line in resumed.read()]
    assert b"".join(remote_pieces(store).values()) == resumed.path.read_bytes()


def test_a_push_that_failed_is_made_up_for_by_the_next(monkeypatch, tmp_path):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    store = Store(f"memory://{uuid.uuid4().hex}", "ws")
    store.open()
    log = EventLog(store)
    log.append(TrialEnded(trial="c-seed1", status="failed", reason="x"))
    log.push()
    log.append(TrialEnded(trial="c-seed2", status="failed", reason="x"))
    again = EventLog(store)  # the driver was killed before it could push
    assert len(again.read()) == 2
    again.push()
    assert b"".join(remote_pieces(store).values()) == again.path.read_bytes()
    store.fs.rm(store.root, recursive=True)  # by a person, to begin anew
    store.fs.invalidate_cache()
    assert EventLog(store).read() == []


def test_every_event_has_a_name_in_the_log():
    assert len(set(KINDS.values())) == len(KINDS)
    lost = AttemptLost(trial="c-seed1", attempt=1, kind="error", reason="", node="", again=False)
    assert b'"event": "attempt lost"' in line_of(lost)


def test_a_folder_of_version_0_1_is_read_by_its_tables(store):
    row = {"cell": "c", "seed": 1, "status": "done", "stop_reason": "completed", "attempts": 2}
    lost = {"cell": "c", "seed": 1, "kind": "node lost"}
    pd.DataFrame([row]).to_parquet(store.folder / "trials.parquet")
    pd.DataFrame([lost]).to_parquet(store.folder / "failures.parquet")
    state = read_state(store)
    assert state.trials["c-seed1"].attempts == 2 and state.trials["c-seed1"].status.used
    assert [event.kind for event in state.lost] == ["node lost"]
