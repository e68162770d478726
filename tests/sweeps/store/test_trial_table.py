"""The table of trials over several commands on one store."""

import json
import math
import subprocess
import uuid

import pandas as pd
import pytest

from rank_core.errors import BadInput
from sweeps.store.failures import Failure
from sweeps.store.trial_events import AttemptLost, AttemptStarted, TrialEnded
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import COSTS, SweepState, TrialTable, git_state, source_tags
from tests.sweeps import made_log

SMALL = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "2")  # 2 cells x 2 seeds
NAME = "maxp-w48-s32-0a1b2c3d4e5f-seed1"


def table(store):
    """`trials.parquet` as a command leaves it."""
    TrialTable(store).write_tables()
    return pd.read_parquet(store.folder / "trials.parquet")


def test_a_command_that_launched_nothing_leaves_no_warning(store, plan_of, capsys):
    ledger = TrialTable(store)
    ledger.begin(plan_of(*SMALL))
    ledger.write_tables()
    TrialTable(store)
    assert capsys.readouterr().out == ""


def test_a_trial_is_in_the_table_once_it_was_started(store, plan_of):
    plan, ledger = plan_of(*SMALL), TrialTable(store)
    missing = ledger.plan(plan, store.finished())
    assert [trial.name for trial in missing] == [trial.name for trial in plan.trials()]
    assert len(table(store)) == 0
    assert ledger.started(missing[1]) == 1
    [row] = table(store).to_dict("records")
    assert (row["cell"], row["seed"], row["status"]) == (plan.cells[1].cell, 1, "running")
    assert (row["model.name"], row["chunking.window"], row["chunking.stride"]) == ("maxp", 48, 32)
    assert math.isnan(row["train_seconds"])


def test_a_finished_trial_brings_its_costs(store, plan_of, leave_result):
    plan, ledger = plan_of(*SMALL), TrialTable(store)
    trial = ledger.plan(plan, store.finished())[0]
    ledger.started(trial)
    leave_result(store, trial.name, seconds=7.0)
    ledger.finished(trial)
    [row] = table(store).to_dict("records")
    assert (row["status"], row["stop_reason"], row["attempts"]) == ("done", "completed", 1)
    assert {name: row[name] for name in COSTS} == made_log.COSTS | {"train_seconds": 7.0}


@pytest.mark.parametrize(
    "status, again", [("diverged", False), ("failed", True), ("planned", True), ("running", True)]
)
def test_the_next_command_repeats_all_but_what_would_diverge_again(store, plan_of, status, again):
    plan, ledger = plan_of(*SMALL), TrialTable(store)
    trial = ledger.plan(plan, store.finished())[0]
    ledger.started(trial)
    if status != "running":  # a killed driver leaves that one behind
        ledger.lost(trial, status, "the reason")
        assert table(store)["stop_reason"].tolist() == ["the reason"]
    later = TrialTable(store)
    names = [missing.name for missing in later.plan(plan, store.finished())]
    assert (trial.name in names) == again
    assert len(names) == 3 + again
    assert later.status(trial) == ("planned" if again else "diverged")


@pytest.mark.parametrize("status", ["done", "collapsed"])
def test_the_store_decides_what_is_finished(store, plan_of, leave_result, status):
    plan, ledger = plan_of(*SMALL), TrialTable(store)
    trial = ledger.plan(plan, store.finished())[2]
    ledger.started(trial)
    # The driver is killed here; the trial's process finishes all the same.
    leave_result(store, trial.name, status=status)
    later = TrialTable(store)
    missing = [one.name for one in later.plan(plan, store.finished())]
    assert len(missing) == 3 and trial.name not in missing
    assert later.status(trial) == status
    assert table(store)["attempts"].tolist() == [1]


def test_a_lost_table_is_made_again_from_the_store(store, plan_of, leave_result):
    plan = plan_of(*SMALL)
    for trial in plan.trials():
        leave_result(store, trial.name)
    assert TrialTable(store).plan(plan, store.finished()) == []
    assert set(table(store)["status"]) == {"done"}
    assert len(table(store)) == 4


def test_attempts_count_up_over_commands(store, plan_of):
    plan = plan_of(*SMALL)
    for number in (1, 2, 3):
        ledger = TrialTable(store)
        assert ledger.started(ledger.plan(plan, store.finished())[0]) == number
    assert table(store)["attempts"].tolist() == [3]


def test_to_go_on_from_a_rung_is_no_attempt_but_to_die_on_the_way_is_one(store, plan_of):
    plan = plan_of(*SMALL)
    trial = next(plan.trials())
    resting = {trial.name: "after 1 of 9 epochs"}
    ledger = TrialTable(store)
    ledger.plan(plan, set())
    assert ledger.started(trial) == 1
    ledger.lost(trial, "stopped", resting[trial.name])  # it has paused
    ledger.plan(plan, set(), resting)
    assert ledger.started(trial) == 1
    again = TrialTable(store)  # the driver died meanwhile
    again.plan(plan, set(), resting)
    assert again.status(trial) == "stopped" and again.started(trial) == 2


def test_rows_of_other_plans_stay(store, plan_of, leave_result):
    first, second = plan_of(*SMALL), plan_of("chunking.window=64", "chunking.stride=48", *SMALL[2:])
    for plan in (first, second):
        for trial in plan.trials():
            if trial.name not in store.finished():
                leave_result(store, trial.name)
        TrialTable(store).plan(plan, store.finished())
    assert len(table(store)) == 6  # the baseline is in both plans
    assert table(store)["cell"].nunique() == 3


def test_another_machine_goes_on_with_a_remote_store(plan_of, leave_result, tmp_path, monkeypatch):
    storage = f"memory://{uuid.uuid4().hex}"
    plan = plan_of(*SMALL)
    for machine, finished in (("first", 0), ("second", 1)):
        monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / machine))
        store = Store(storage, "window_stride")
        store.open()
        ledger = TrialTable(store)
        missing = ledger.plan(plan, store.finished())
        assert len(missing) == 4 - finished
        ledger.started(missing[0])
        leave_result(store, missing[0].name)
        ledger.finished(missing[0])
    assert table(store)["status"].tolist() == ["done", "done"]


def test_the_tables_are_written_where_a_command_ends_by_an_error(store, plan_of):
    plan, ledger = plan_of(*SMALL), TrialTable(store)
    trial = ledger.plan(plan, store.finished())[0]
    with pytest.raises(KeyboardInterrupt), ledger.kept():
        ledger.started(trial)
        ledger.failed(trial, Failure("node lost", "gone"), again=True)
        raise KeyboardInterrupt
    [row] = pd.read_parquet(store.folder / "trials.parquet").to_dict("records")
    assert (row["status"], row["attempts"]) == ("running", 1)
    [lost] = pd.read_parquet(store.folder / "failures.parquet").to_dict("records")
    assert lost["kind"] == "node lost" and lost["time"].endswith("+00:00")


def test_a_trial_pauses_again_and_again_within_one_attempt(store, plan_of):
    """And a search without rungs, which takes it up from its beginning, counts none either."""
    plan, ledger = plan_of(*SMALL), TrialTable(store)
    trial = ledger.plan(plan, store.finished())[0]
    for _ in range(3):
        assert ledger.started(trial) == 1
        ledger.lost(trial, "stopped", "after 1 of 9 epochs")
    again = TrialTable(store)
    again.plan(plan, set())
    assert again.status(trial) == "planned" and again.started(trial) == 1
    ledger = TrialTable(store)  # the driver died
    ledger.plan(plan, set())
    assert ledger.started(trial) == 2


@pytest.mark.parametrize(
    "content, words",
    [("{", "must be the result"), ('{"status": "done"}', "the numbers train_seconds")],
)
def test_a_damaged_result_is_named(store, plan_of, leave_result, content, words):
    plan = plan_of(*SMALL)
    trial = next(plan.trials())
    leave_result(store, trial.name)
    path = store.folder / "runs" / trial.name / "result.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=words) as error:
        TrialTable(store).plan(plan, store.finished())
    assert str(path) in str(error.value)


def news(step, dev=None):
    point = {"step": step, "seconds": 0.0, "loss": 1 / step, "learning_rate": 1e-3}
    return {"step": step, "num_steps": 3, "curve": [point], "dev": dev}


@pytest.mark.parametrize("seen", [0, 1, 3])
def test_a_trial_in_the_store_gets_its_end_and_keeps_its_reports_itself(
    store, plan_of, leave_result, seen
):
    """Whose driver died before it could record them."""
    plan, ledger = plan_of(*SMALL), TrialTable(store)
    trial, history = next(plan.trials()), [news(1), news(2), news(3, {"nDCG@10": 0.4})]
    if seen:
        ledger.started(trial)
    for one in history[:seen]:
        ledger.reported(trial, one)
    leave_result(store, trial.name)
    folder = store.folder / "runs" / trial.name
    (folder / "history.jsonl").write_text("\n".join(map(json.dumps, history)))
    for _ in range(2):  # the second time adds nothing
        ledger = TrialTable(store)
        ledger.plan(plan, store.finished())
    events = [line.event for line in ledger.log.read() if line.event.trial == trial.name]
    names = [type(event).__name__ for event in events]
    assert names == ["AttemptStarted", "TrialEnded"]
    assert events[-1].files == ["history.jsonl", "per_query.parquet", "result.json"]


def test_a_start_tells_what_the_trial_ignores_and_what_it_reads(store, plan_of):
    plan, ledger = plan_of(*SMALL), TrialTable(store)
    baseline, window = ledger.plan(plan, store.finished())[:2]
    starts = [ledger._start_of(trial) for trial in (baseline, window)]
    ignored = [set(start.ignored) for start in starts]
    assert "chunking.stride" in ignored[0] - ignored[1]  # FirstP
    assert all("chat.model" in names and "chunking.window" not in names for names in ignored)
    collection = plan.inputs.collection
    assert starts[0].data == {
        "name": "woods",
        "hash": collection.content_hash,
        "documents": len(collection.documents),
        "queries": {name: len(split.queries) for name, split in collection.splits.items()},
    }


def _git(folder, *words):
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    done = subprocess.run(
        ["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_sweeps_file_is_named_with_the_commit_of_its_own_checkout(tmp_path):
    """Changes are marked; a file that the checkout ignores is of no commit, as one outside."""
    _git(tmp_path, "init", "-q")
    file, ignored = tmp_path / "my_sweep.toml", tmp_path / "env" / "sweep.py"
    (tmp_path / ".gitignore").write_text("env\n")
    ignored.parent.mkdir()
    for path in (file, ignored):
        path.write_text("x")
    assert source_tags(str(file)) == {
        "mlflow.source.name": str(file),
        "mlflow.source.type": "LOCAL",
    }  # no commit yet
    git_state.cache_clear()
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "x")
    sha = _git(tmp_path, "rev-parse", "HEAD")
    expected = {"mlflow.source.git.commit": sha, "source.git.dirty": "False"}
    assert expected.items() <= source_tags(str(file)).items()
    git_state.cache_clear()
    file.write_text("y")
    assert source_tags(str(file))["source.git.dirty"] == "True"
    assert "mlflow.source.git.commit" not in source_tags(str(ignored))
    assert source_tags("") == {}


def test_a_command_names_its_sweeps_file(store, plan_of):
    ledger = TrialTable(store)
    ledger.begin(plan_of(*SMALL))
    assert ledger.state.command.tags["mlflow.source.name"].endswith("/sweeps/window_stride.py")


def test_the_time_of_all_attempts_counts_and_that_of_other_sweeps_trials_does_not():
    state, result = SweepState(), {name: 4.0 for name in COSTS}

    def start(time: int) -> None:
        state.apply(
            AttemptStarted(time=time, trial=NAME, attempt=1, label="", settings={}, swept=())
        )

    def end(time: int, result: dict[str, float]) -> float:
        state.apply(TrialEnded(time=time, trial=NAME, status="done", reason="", result=result))
        return state.trial(NAME).seconds

    start(10_000)
    lost = AttemptLost(
        time=13_000, trial=NAME, attempt=1, kind="node", reason="", node="", again=False
    )
    state.apply(lost)
    assert end(13_000, {}) == 3
    start(20_000)
    assert end(90_000_000, result) == 3 + 8, "the driver died before it recorded the end"
    start(90_000_000)  # reused from another sweep
    assert end(90_000_000, result) == 11
