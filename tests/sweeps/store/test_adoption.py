"""What one sweep has finished no other one computes again."""

import uuid

import pytest

from rank_core.checkpoints.weights import WEIGHTS
from rank_core.ranking.chunk_scores import CHUNK_SCORES
from sweeps import chunk_counts, window_stride
from sweeps.driver.sweep import Finished, _known_status
from sweeps.plan.make_plan import make_plan
from sweeps.plan.options import parse
from sweeps.search.search import Listed
from sweeps.store.plan_description import manifest
from sweeps.store.trial_store import LEFT_FOR_OTHERS, Store
from sweeps.store.trial_table import TrialTable

SAME = ("chunking.stride=32", "chunking.max_document_tokens=120")


@pytest.fixture
def plans(inputs_words):
    """The same cell in two sweeps, once beside a wider window, once beside fewer chunks."""

    def plan(module, *words):
        words = (*inputs_words, "--model", "maxp", *SAME, *words)
        options = parse(words, prog="x.py", description="")
        return make_plan(module.EXPERIMENT, options)

    return (
        plan(window_stride, "--num-seeds", "2", "chunking.window=48,64"),
        plan(chunk_counts, "--num-seeds", "3", "chunking.window=48", "chunking.max_chunks=0,2"),
    )


def opened(folder, sweep):
    store = Store(str(folder / "s"), sweep)
    store.open()
    return store


def names(trials):
    return {trial.name for trial in trials}


def test_a_cell_that_two_sweeps_share_runs_once(plans, tmp_path, leave_result):
    first, second = plans
    theirs, ours = opened(tmp_path, "window_stride"), opened(tmp_path, "chunk_counts")
    shared = names(first.trials()) & names(second.trials())
    assert len(shared) >= 2, "two seeds of the same cell"
    for name in names(first.trials()):
        leave_result(theirs, name)
    assert ours.adoptable(second.trials()) == shared
    assert ours.adopt(second.trials()) == shared
    missing = TrialTable(ours).plan(second, ours.finished())
    assert names(missing) == names(second.trials()) - shared


def test_a_trial_that_is_to_keep_its_weights_is_not_taken_from_one_that_did_not(
    plans, tmp_path, leave_result, inputs_words
):
    first, _ = plans
    theirs, ours = opened(tmp_path, "theirs"), opened(tmp_path, "ours")
    for name in names(first.trials()):
        leave_result(theirs, name)
    words = [*inputs_words, *SAME, "--num-seeds", "2", "chunking.window=48,64"]
    options = parse([*words, "training.keep_weights=all"], prog="x.py", description="")
    keeping = make_plan(window_stride.EXPERIMENT, options)
    assert names(keeping.trials()) == names(first.trials())
    assert ours.adopt(keeping.trials()) == set()
    assert ours.adopt(first.trials()) == names(first.trials())


def test_a_wider_grid_and_more_seeds_run_only_what_is_missing(plan_of, tmp_path, leave_result):
    store = opened(tmp_path, "window_stride")
    words = ("chunking.window=48", "chunking.stride=32")
    for trial in plan_of(*words, "--num-seeds", "2").trials():
        leave_result(store, trial.name)
    done = store.finished()
    more_seeds = plan_of(*words, "--num-seeds", "3")
    missing = TrialTable(store).plan(more_seeds, done)
    assert {trial.seed for trial in missing} == {3} and len(missing) == len(more_seeds.cells)
    wider = plan_of("chunking.window=48,64", "chunking.stride=32", "--num-seeds", "2")
    missing = TrialTable(store).plan(wider, done)
    assert names(missing) == names(wider.trials()) - done
    assert {trial.config.chunking.window for trial in missing} == {64}


def test_what_a_twin_may_lack_has_its_names():
    files = {"train.run.gz", WEIGHTS, CHUNK_SCORES}
    assert set(LEFT_FOR_OTHERS.values()) == files


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_what_another_sweep_finishes_meanwhile_is_not_launched(
    plans, tmp_path, leave_result, kind, monkeypatch, capsys
):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    storage = str(tmp_path / "s") if kind == "folder" else f"memory://{uuid.uuid4().hex}"
    first, second = plans
    theirs, ours = (Store(storage, f"{name}/woods") for name in ("window_stride", "chunk_counts"))
    theirs.open()
    ours.open()
    manifest(second, []).write(ours.folder)
    table = TrialTable(ours)
    finished = Finished(ours)
    assert ours.adopt(second.trials()) == set()
    table.plan(second, finished.names)
    search = Listed(second, _known_status(table, finished), ours)
    assert not search.over
    shared = names(first.trials()) & names(second.trials())
    launched = [search.next()]  # the first one is ours already when they finish it
    for name in names(first.trials()):
        leave_result(theirs, name)
    while trial := search.next():
        launched.append(trial)
    assert names(launched) == names(second.trials()) - (shared - names(launched[:1]))
    assert search.over and ours.finished() == shared - names(launched[:1])
    assert capsys.readouterr().out.count("adopted: ") == len(shared - names(launched[:1])) >= 1


def test_a_storage_that_cannot_tell_launches_the_trial(plans, tmp_path, monkeypatch):
    _, second = plans
    ours = opened(tmp_path, "chunk_counts")
    search = Listed(second, lambda trial: None, ours)

    def away(name):
        raise ConnectionError("no route")

    monkeypatch.setattr(ours, "seek", away)
    assert search.next() == next(iter(second.trials()))
