"""A cluster that changes under a sweep: a node joins and gets trials, another one leaves, and the
values are those of a sweep that one process computes."""

import json
import os
import re
import signal
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pandas as pd
import pytest

from sweeps.chunk_size import EXPERIMENT as CHUNK_SIZE
from tests.chaos.victims import Machines
from tests.e2e.conftest import ROOT, trials_of, values_of

# Trials are long enough that some are left when a node joins.
TRIALS = 12
WORDS = (
    "--smoke-test --num-seeds 4 training.max_steps=200 training.num_epochs=100 --tracking-uri none"
).split()
STEPS = 600
LONG = (
    f"--smoke-test --num-seeds 1 chunking.window=48 chunking.stride=32 training.max_steps={STEPS} "
    "training.num_epochs=400 training.validate_every=300 --tracking-uri none"
).split()
"""Two trials that run for some time after both have begun."""
pytestmark = [
    *(pytest.mark.ray, pytest.mark.chaos, pytest.mark.long),
    pytest.mark.timeout(1800),
]


def attempts(sweep, ended):
    """The number of attempts that have ended, or that run now."""
    files = sweep.storage.glob("trials/*/attempt-*.json")
    return sum(bool(json.loads(file.read_text())["ended"]) is ended for file in files)


def wait_for(sweep, seen):
    while not seen():
        assert sweep.process.poll() is None, sweep.text
        time.sleep(0.2)


def test_trials_follow_the_nodes(start_sweep, run_local, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with closing(Machines(0)) as machines:
        monkeypatch.setenv("RAY_ADDRESS", machines.address)
        words = (*WORDS, "--max-slots", "3")
        with start_sweep(tmp_path / "changing", *words) as sweep:
            sweep.wait_for("waiting for a first node")
            machines.join()
            wait_for(sweep, lambda: attempts(sweep, ended=True) == 2)
            assert attempts(sweep, ended=False) <= 1
            machines.join()
            sweep.wait_for("nodes have joined: 2 slots, 1 before")
            wait_for(sweep, lambda: attempts(sweep, ended=False) == 2)
            machines.leave(0)  # what follows runs on the second
            sweep.wait_for("nodes have left: 1 slot, 2 before")
            assert sweep.end() == 0, sweep.text
    trials = trials_of(sweep.folder)
    assert trials["status"].tolist() == ["done"] * TRIALS
    assert re.search(f"{TRIALS} trials on 3 slots", sweep.text)
    undisturbed = run_local(tmp_path / "undisturbed", *WORDS)
    ours, theirs = values_of(sweep.folder), values_of(undisturbed.folder)
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


def titled(title):
    """The processes of this machine by the titles that Ray gives, of whatever cluster."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # none of a process, or one that has ended
            if (entry / "cmdline").read_bytes().startswith(title):
                yield int(entry.name)


@contextmanager
def held(title):
    """Processes that begin in the block stand still in it."""
    known, over, held = {*titled(title)}, threading.Event(), set()

    def hold():
        while not over.wait(0.01):
            for pid in {*titled(title)} - known - held:
                os.kill(pid, signal.SIGSTOP)
                held.add(pid)

    holding = threading.Thread(target=hold)
    holding.start()
    try:
        yield held
    finally:
        over.set()
        holding.join()
        for pid in held:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_a_node_that_joins_prepares_before_a_trial_takes_its_place(
    start_sweep, tmp_path, monkeypatch
):
    """A trial waits for the node, whose preparation stands still for a while."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    words = (*WORDS[:2], "2", *WORDS[3:], "--max-slots", "2")
    with closing(Machines(1, tmp_path / "caches")) as machines:
        monkeypatch.setenv("RAY_ADDRESS", machines.address)
        with start_sweep(tmp_path / "joined", *words) as sweep:
            wait_for(sweep, lambda: attempts(sweep, ended=False) == 1)
            with held(b"ray::_join") as joining:
                machines.join()
                wait_for(sweep, lambda: joining)
                sweep.wait_for("preparing inputs on")
                assert attempts(sweep, ended=False) <= 1
                assert not (tmp_path / "caches" / "2" / "training").exists()
            sweep.wait_for("nodes have joined: 2 slots, 1 before")
            wait_for(sweep, lambda: attempts(sweep, ended=False) == 2)
            assert sweep.end() == 0, sweep.text
    print(sweep.text)
    trials = trials_of(sweep.folder)
    assert trials["status"].tolist() == ["done"] * 6 and trials["attempts"].eq(1).all()


def test_nodes_with_caches_of_their_own_embed_a_chunk_once(
    start_sweep, run_local, tmp_path, monkeypatch
):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "drivers"))
    words = ("chunking.window=24,48", "chunking.overlap=0,0.5", "chunking.snap=no")
    words = (*words, "--tracking-uri", "none")
    with closing(Machines(2, tmp_path / "caches")) as machines:
        monkeypatch.setenv("RAY_ADDRESS", machines.address)
        program = [str(ROOT / "sweeps" / "chunk_size.py")]
        with start_sweep(tmp_path / "shared", *words, program=program) as sweep:
            assert sweep.end() == 0, sweep.text
    alone = run_local(tmp_path / "alone", *words, experiment=CHUNK_SIZE)
    folder = sweep.storage / "chunk_size" / "woods"
    pd.testing.assert_frame_equal(values_of(folder), values_of(alone.folder), check_exact=True)
    files = [place / "report" / "results.json" for place in (folder, alone.folder)]
    shared, once = (
        sum(row["embedded_tokens"] for row in json.loads(file.read_text())["indexes"])
        for file in files
    )
    nodes = [len([*(tmp_path / "caches" / n / "vectors").glob("*-*.lock")]) for n in "12"]
    print(f"{shared:,} tokens embedded on two nodes, {once:,} by one process; shards {nodes}")
    assert shared == once and all(nodes)
    assert any((sweep.storage / "prepared" / "vectors").rglob("vectors.npy"))
    assert not any((sweep.storage / "prepared" / "vectors").rglob(".claim"))


def test_a_drained_node_saves_its_trial_and_gets_no_other(
    start_sweep, run_local, tmp_path, monkeypatch
):
    """No checkpoint is due within the test: the one that counts is that of the notice."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    words = (*LONG, "--checkpoint-minutes", "60")
    with closing(Machines(2)) as machines:
        monkeypatch.setenv("RAY_ADDRESS", machines.address)
        with start_sweep(tmp_path / "drained", *words) as sweep:
            wait_for(sweep, lambda: len(list(sweep.storage.glob("trials/*/progress.json"))) == 2)
            machines.drain(0, 300.0)
            sweep.wait_for("its node is going;")
            sweep.wait_for("nodes have left: 1 slot, 2 before")
            machines.leave(0)
            assert sweep.end() == 0, sweep.text
    pattern = r"checkpoint\s+of\s+step\s+(\d+),\s+(\d+\.\d)\s+s\s+old"  # lines are wrapped
    step, age = re.search(pattern, sweep.text).groups()
    print(f"the last checkpoint was of step {step} and {age} s old")
    assert 0 < int(step) <= STEPS and float(age) < 60
    trials = trials_of(sweep.folder)
    assert trials["status"].tolist() == ["done"] * 2 and trials["attempts"].sum() == 3
    undisturbed = run_local(tmp_path / "undisturbed", *words)
    ours, theirs = values_of(sweep.folder), values_of(undisturbed.folder)
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)


ELASTIC = (
    "--smoke-test --num-seeds 1 chunking.window=48 chunking.stride=32 training.max_steps=1500 "
    "training.num_epochs=1000 training.validate_every=750 training.precision=fp32 "
    "model.dropout=0 --tracking-uri none --max-slots 1 --checkpoint-minutes .05"
).split()
SOONER = """
import sys
from sweeps.launch import command
from sweeps.ray_engine import attempts
from sweeps.window_stride import EXPERIMENT
attempts.GROW_SECONDS = 3.0
sys.exit(command.main(EXPERIMENT, sys.argv[1:], doc=None))
"""


def results(sweep):
    """{trial: its result}."""
    files = sweep.storage.glob("trials/*/result.json")
    return {file.parent.name: json.loads(file.read_text()) for file in files}


def curve(sweep, trial):
    """{step: (loss, learning rate)}, of the attempt that ended the trial."""
    lines = (sweep.storage / "trials" / trial / "history.jsonl").read_text().splitlines()
    points = [point for line in lines for point in json.loads(line)["curve"]]
    return {point["step"]: (point["loss"], point["learning_rate"]) for point in points}


def test_an_elastic_group_goes_on_with_fewer_workers_and_with_more(
    start_sweep, run_sweep, tmp_path, monkeypatch
):
    """Its first trial has 2, 1 and 2 workers; the second has 2, and the bits of a fixed group."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with closing(Machines(2)) as machines:
        monkeypatch.setenv("RAY_ADDRESS", machines.address)
        home, words = tmp_path / "elastic", (*ELASTIC, "--num-workers", "1-2")
        with start_sweep(home, *words, program=["-c", SOONER]) as sweep:
            wait_for(sweep, lambda: list(home.glob("checkpoints/*/checkpoint")))
            machines.leave(1)
            sweep.wait_for("attempt 2")
            wait_for(sweep, lambda: list(home.glob("trials/*/progress.json")))
            machines.join()
            sweep.wait_for("room for more workers")
            assert sweep.end() == 0, sweep.text
        fixed = run_sweep(tmp_path / "fixed", *ELASTIC, "--num-workers", "2")
    ours, theirs = results(sweep), results(fixed)
    numbers = {trial: [row["number"] for row in one["workers"]] for trial, one in ours.items()}
    [changed] = [trial for trial, number in numbers.items() if number == [2, 1, 2]]
    [same] = numbers.keys() - {changed}
    assert numbers[same] == [2] and ours.keys() == theirs.keys()
    for file in ("test.run.gz", "dev.run.gz", "per_query.parquet"):
        one, other = (run.storage / "trials" / same / file for run in (sweep, fixed))
        assert one.read_bytes() == other.read_bytes()
    assert curve(sweep, same) == curve(fixed, same)
    one, other = curve(sweep, changed), curve(fixed, changed)
    assert one.keys() == other.keys()
    assert [rate for _, rate in one.values()] == [rate for _, rate in other.values()]
    first = ours[changed]["workers"][1]["step"]
    assert all(one[step] == other[step] for step in one if step <= first)
    apart = {step: abs(one[step][0] - other[step][0]) for step in one}
    unlike = [step for step in apart if apart[step]]
    print(ours[changed]["workers"])
    print(f"equal bits up to step {first}; {len(unlike)} of {len(one)} losses differ,", end=" ")
    print(f"first at step {unlike[0]}, at most by {max(apart.values()):.1e}")
    print({name: (ours[changed][name], theirs[changed][name]) for name in ("dev", "test")})
    assert max(apart[step] for step in one if step <= first + 20) < 1e-4
    assert ours[changed]["encoder_tokens"] == theirs[changed]["encoder_tokens"]
    [row] = [row for row in trials_of(sweep.folder).to_dict("records") if row["cell"] in changed]
    assert row["attempts"] == 2  # a lost one, and one that went on with more workers
