"""`ranksweep status` of a sweep that runs, was killed or has ended."""

import os
import re
import shutil
import time
import uuid
from dataclasses import replace

import pytest

from sweeps.__main__ import main
from sweeps.commands import status
from sweeps.commands.status import status_text, take_snapshot
from sweeps.plan.description import description_of, write_description
from sweeps.store.lock import only_driver
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import read_sweep_file, update_sweep_file

SMALL = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "2")  # 2 cells x 2 seeds


class Driven:
    """A sweep as its driver leaves it when everything is planned and nothing has run; trials are
    named by their numbers."""

    def __init__(self, storage, plan_of, leave_result):
        place = Storage(storage)
        place.open()
        self.records = Records(place, "window_stride/woods", command="driver")
        self.leave = leave_result
        plan = plan_of(*SMALL)
        described = replace(description_of(plan, list(SMALL)), tracking_uri="sqlite:///mlflow.db")
        write_description(self.records, plan, described)
        self.trials = list(plan.trials())
        self.folder = self.records.folder

    def start(self, number):
        self.records.begin(self.trials[number].name)

    def end(self, number, status="failed", **facts):
        self.records.end(self.trials[number].name, status, **facts)

    def lose(self, number, status="failed", **facts):
        self.start(number)
        self.end(number, status, **facts)

    def finish(self, number, *, dev=0.5, state="done"):
        """A trial of ten seconds."""
        self.start(number)
        name, costs = self.trials[number].name, {"train_seconds": 9.0, "eval_seconds": 1.0}
        self.leave(self.records, name, state, dev={"nDCG@10": dev}, **costs)
        self.end(number, state)


@pytest.fixture
def begun(tmp_path, plan_of, leave_result):
    return Driven(str(tmp_path / "results"), plan_of, leave_result)


def seen(begun, width=80, now=None):
    snapshot = take_snapshot(str(begun.folder))
    when = now if now is not None else (snapshot.news.time if snapshot.news else 0.0)
    return status_text(snapshot, now=when, width=width)


def line_of(text, start):
    [line] = [line for line in text.splitlines() if line.startswith(start)]
    return line


def broken(begun, number, content):
    begun.finish(number)
    (begun.records.trial_folder(begun.trials[number].name) / "result.json").write_text(content)


TOLD = {
    "means": (
        lambda sweep: (sweep.finish(0, dev=0.25), sweep.finish(2, dev=0.75), sweep.start(1)),
        # mean of .25 and .75, and their standard deviation .5 / sqrt(2)
        ["2/2 0.500 .354", "= 4: 2 done, 1 interrupted, 1 waiting; 3 attempts", "incomplete"],
        ["budget"],
    ),
    "collapsed": (
        lambda sweep: sweep.finish(0, state="collapsed"),
        ["1/2", "seed 1 collapsed"],
        [],
    ),
    "lost attempts": (
        lambda sweep: (
            sweep.lose(0, kind="node lost", again=True),
            sweep.lose(1, kind="process died", again=True),
            sweep.lose(2, kind="node lost", again=True),
            sweep.finish(0),
            sweep.lose(3, "diverged", reason="loss is nan"),
        ),
        ["node lost (2), worker process died (1), diverged (1)"],
        [],
    ),
    "stopped early": (
        lambda sweep: (
            *(sweep.finish(number) for number in (1, 2, 3)),
            sweep.lose(0, "stopped", reason="by ASHA at step 3 of 9"),
        ),
        ["3 done, 1 stopped early", "not running (finished)"],
        ["resume"],
    ),
    "failed": (
        lambda sweep: [
            (sweep.start(n), sweep.lose(n, reason="nan at step 7\nand more")) for n in (0, 1)
        ],
        ["failed: nan at step 7 ", "seed 1 (2 attempts); MaxP 48/32 seed 1 (2 attempts)"],
        ["and more", "tracebacks"],
    ),
    "damaged": (
        lambda sweep: (broken(sweep, 0, ""), broken(sweep, 1, "{}")),
        ["2 damaged", "-seed1: result.json"],
        [],
    ),
    "ended": (
        lambda sweep: [sweep.finish(number) for number in range(4)],
        [" report {folder}"],
        ["resume"],
    ),
}
"""{case: (what happened, texts of its status, texts that it lacks)}."""


@pytest.mark.parametrize("case", TOLD)
def test_the_status_of_trials(begun, case):
    happen, texts, absent = TOLD[case]
    happen(begun)
    told = " ".join(seen(begun).split())
    assert [text for text in texts if text.format(folder=begun.folder) not in told] == []
    assert [text for text in absent if text in told] == []


def test_the_best_mean_on_dev_stands_beside_the_first_stage(begun):
    file = read_sweep_file(begun.records)
    assert file.first_stage_dev["nDCG@10"] > 0
    replace(file, first_stage_dev={"nDCG@10": 0.25}).write(begun.records)
    assert line_of(seen(begun), "best on dev").endswith(
        " nDCG@10 0.250 by the first stage, none by a cell yet"
    )
    for number, dev in enumerate((0.25, 0.875, 0.75)):  # FirstP, MaxP, FirstP
        begun.finish(number, dev=dev)
    told = " nDCG@10 0.875 by MaxP 48/32 (1 seed), +0.625 over the first stage"
    assert line_of(seen(begun), "best on dev").endswith(told)
    begun.finish(3, dev=0.0625)
    assert "0.500 by FirstP 96 (2 seeds)" in line_of(seen(begun), "best on dev")
    for rule in ("at_most", "cost_weights"):  # by which another system may be the choice
        costs = {"at_most": {}, "cost_weights": {}, rule: {"tokens_per_document": 1.0}}
        update_sweep_file(begun.records, **costs)
        assert "best on dev" not in seen(begun)


def test_what_a_budget_has_left_counts_lost_attempts(begun, monkeypatch):
    assert "budget" not in seen(begun)
    budget = {"hours": 0.5, "unit": "core", "units": 2.0}
    update_sweep_file(begun.records, budget=budget)
    now = [1_700_000_000_000]
    monkeypatch.setattr("sweeps.store.records._now", lambda: now[0])
    begun.start(0)
    now[0] += 90_000  # 90 s of two cores
    begun.end(0, kind="node lost", again=True)
    assert line_of(seen(begun), "budget").split()[1:5] == ["0.05", "of", "0.5", "core-hours"]


def test_why_a_sweep_stopped_is_told_until_another_command_drives_it(begun):
    for number in range(4):
        begun.finish(number)
    assert "resume" not in seen(begun)
    why = "2 trials with seed 3 would end after the deadline"
    update_sweep_file(begun.records, stopped=why)
    text = seen(begun)
    assert line_of(text, "stopped").split(maxsplit=1)[1] == why
    assert "resume" in text and "(incomplete)" in text
    with only_driver(begun.records):
        assert "stopped" not in seen(begun)


def test_a_living_driver_is_named_and_its_trials_show_their_steps(begun):
    begun.finish(0)
    with only_driver(begun.records):
        begun.start(2)
        assert line_of(seen(begun), "FirstP").endswith("seed 2 starting")
        news = {"step": 20, "num_steps": 40, "curve": [], "dev": {"nDCG@10": 0.125}}
        begun.records.progress(begun.trials[2].name, news)
        before = {path: path.stat().st_mtime_ns for path in begun.folder.rglob("*")}
        text = seen(begun)
        assert not re.search("^workers", text, re.M)
        assert {path: path.stat().st_mtime_ns for path in begun.folder.rglob("*")} == before
        assert f"running, process {os.getpid()} on " in text
        assert "nothing: the sweep is running" in text and "resume" not in text
        assert line_of(text, "FirstP").endswith("seed 2 step 20/40 (0.125)")
    after = seen(begun)
    assert "not running (incomplete)" in after
    assert "resume" in after and " run window_stride" in after


def test_a_range_of_workers_is_shown_with_what_running_trials_have(begun):
    file = read_sweep_file(begun.records)
    replace(file, flags={"num_workers": "1-4"}).write(begun.records)
    assert line_of(seen(begun), "workers").split(maxsplit=1)[1] == "1-4 a trial"
    with only_driver(begun.records):
        begun.records.begin(begun.trials[2].name, 3)
        assert line_of(seen(begun), "workers").split(maxsplit=1)[1] == "1-4 a trial; 3 now"
        begun.records.end(begun.trials[2].name, "resized", reason="room", again=True)
        assert line_of(seen(begun), "workers").split(maxsplit=1)[1] == "1-4 a trial"
    replace(file, flags={"num_workers": "2-2"}).write(begun.records)
    assert not any(line.startswith("workers") for line in seen(begun).splitlines())


def test_the_time_left_follows_the_tokens_that_cells_read(begun):
    file = read_sweep_file(begun.records)
    cells = (
        replace(cell, encoder_tokens_per_document=number)
        for cell, number in zip(file.cells, (100.0, 300.0), strict=True)
    )
    replace(file, cells=tuple(cells)).write(begun.records)
    begun.finish(0)
    # FirstP took 9 + 1 s: one more of it, and two of MaxP at three times its tokens
    assert "10 s in finished trials; about 1 min 10 s left, one at a time" in seen(begun)
    with only_driver(begun.records):
        for number in (1, 3):
            begun.start(number)
        assert "about 35 s left, 2 at a time" in seen(begun)
        begun.end(1, reason="a bug")  # this command does not try it again
        assert "about 40 s left, 1 at a time" in seen(begun)
        # A sixth of MaxP's 30 s is done: 10 + 25 s are left.
        news = {"step": 4, "num_steps": 24, "curve": [], "dev": None}
        begun.records.progress(begun.trials[3].name, news)
        assert "about 35 s left, 1 at a time" in seen(begun)


def test_the_time_left_is_told_before_the_first_trial_ends(begun):
    file = read_sweep_file(begun.records)
    cells = (
        replace(cell, encoder_tokens_per_document=number)
        for cell, number in zip(file.cells, (100.0, 300.0), strict=True)
    )
    replace(file, cells=tuple(cells)).write(begun.records)
    with only_driver(begun.records):
        begun.start(0)
        now = time.time()

        def report(**at):
            curve = [{"step": int(name[1:]), "seconds": now + later} for name, later in at.items()]
            news = {"step": curve[-1]["step"], "num_steps": 100, "curve": curve, "dev": None}
            begun.records.progress(begun.trials[0].name, news)
            return " ".join(seen(begun).split())

        assert "time unknown until a trial has made some steps" in report(s1=1, s5=5)
        # Steps before a checkpoint tell nothing of this attempt, which takes 2 s a step: 158 s,
        # 200 s of the other seed, and MaxP at three times its tokens.
        assert "time by the steps so far; about 25 min 58 s left, 1 at a time" in report(
            s1=-900, s2=-890, s3=2, s21=38
        )


def test_the_sweeps_below_a_folder_are_named(begun, tmp_path, capsys):
    begun.finish(0)
    broken = begun.folder.parent / "broken"
    broken.mkdir()
    (broken / "sweep.json").write_text("oops")
    for where, name in (("", "window_stride/woods"), ("/window_stride/", "woods")):
        assert main(["status", f"{tmp_path / 'results'}{where}"]) == 0
        told = capsys.readouterr().out
        [line] = [line for line in told.splitlines() if line.startswith(name)]
        assert "1 done, 3 waiting" in line and "incomplete" in line
        assert name.replace("woods", "broken") in told and "must be a sweep's description" in told
        command = told.splitlines()[-1].partition(" status ")[2]
        assert main(["status", command]) in (0, 2), "a sweep below"
        capsys.readouterr()
    assert main(["report", str(tmp_path / "results")]) == 2
    assert "window_stride/woods" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["status", str(tmp_path / "empty")]) == 2


def test_a_remote_sweep_is_read_where_another_machine_left_it(
    plan_of, leave_result, tmp_path, monkeypatch, capsys
):
    begun = Driven(f"memory://{uuid.uuid4().hex}", plan_of, leave_result)
    begun.finish(0)
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "second"))
    assert main(["status", f"{begun.records.uri}/"]) == 0
    there = capsys.readouterr().out
    assert "= 4: 1 done, 3 waiting; 1 attempt\n" in there
    assert "not running (incomplete)" in there
    assert not (tmp_path / "second").exists()


def test_trials_of_other_commands_on_the_folder_are_counted_apart(begun):
    begun.start(0)
    replace(read_sweep_file(begun.records), seeds=(2,)).write(begun.records)
    assert "= 2: 2 waiting; 0 attempts; 1 more from other commands" in " ".join(seen(begun).split())


def test_the_command_to_resume_names_no_folder_that_the_reader_is_in(begun, monkeypatch):
    elsewhere, link = begun.folder / "elsewhere", begun.folder / "link"
    elsewhere.mkdir()
    link.symlink_to(elsewhere)
    update_sweep_file(begun.records, directory=str(link))
    assert f"cd {link} && " in seen(begun)
    monkeypatch.chdir(elsewhere)
    assert "cd " not in seen(begun), "one folder under two paths"


def test_watching_waits_for_a_sweep_that_has_not_begun(begun, monkeypatch, capsys, tmp_path):
    folder = begun.folder
    late = folder.rename(tmp_path / "late")
    steps = iter([folder.mkdir, folder.rmdir, lambda: late.rename(folder)])

    def sleep(seconds: float) -> None:
        next(steps)()

    monkeypatch.setattr(status.time, "sleep", sleep)
    assert main(["status", str(begun.folder)]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["status", str(begun.folder), "--watch"]) == 0
    said = capsys.readouterr().out
    assert said.count(str(begun.folder)) == 1 and "window_stride: " in said
    waits = []
    monkeypatch.setattr(status.time, "sleep", waits.append)
    assert main(["status", str(tmp_path / "typo"), "--watch", "600"]) == 2
    assert sum(waits) == 1800 and "typo" in capsys.readouterr().err


def test_watching_ends_with_the_command_that_is_watched(begun, monkeypatch, capsys):
    driver, waits = only_driver(begun.records), []
    driver.__enter__()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            driver.__exit__(None, None, None)

    monkeypatch.setattr(status.time, "sleep", sleep)
    assert main(["status", str(begun.folder), "--watch", "7"]) == 0
    assert waits == [7, 7]
    assert capsys.readouterr().out.count("window_stride: ") == 3
    assert main(["status", str(begun.folder), "--watch"]) == 0
    assert waits == [7, 7], "nobody drives it: once is enough"
    assert main(["status", str(begun.folder), "--watch", "0"]) == 2
    assert "--watch must be seconds above 0, got 0" in capsys.readouterr().err


@pytest.mark.parametrize("typed", [{}, {"storage": "results"}, {"storage": "{tmp}/results"}])
def test_a_copy_says_which_folder_its_command_works_on(begun, tmp_path, capsys, typed):
    flags = {name: text.format(tmp=tmp_path) for name, text in typed.items()}
    update_sweep_file(begun.records, directory=str(tmp_path), flags=flags)
    for number in range(3):
        begun.finish(number)
    copy = shutil.copytree(tmp_path / "results", tmp_path / "archive") / "window_stride" / "woods"
    for folder, told in ((begun.folder, False), (copy, True)):
        assert main(["status", str(folder)]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert (f"works on {begun.folder}, of which this folder is a copy" in text) == told
    shutil.rmtree(tmp_path / "results")  # moved: there is no other folder
    assert main(["status", str(copy)]) == 0
    assert "folder is a copy" not in capsys.readouterr().out
