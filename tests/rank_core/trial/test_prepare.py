"""The preparation of trials: nothing prepared is built again."""

import pytest

from rank_core import cache
from rank_core.chunking import inputs
from rank_core.data import folder
from rank_core.training.micro_batch import TrainingStep
from rank_core.trial.trial import prepare, run_trial


@pytest.fixture(autouse=True)
def new_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    forget()
    yield
    forget()


def forget():
    """The inputs that a process caches in memory."""
    for cached in (inputs._loaded, inputs._query_tokens, folder._load):
        cached.cache_clear()


def builds(monkeypatch):
    """The kinds of cache entries built from now on."""
    kinds, locked = [], cache._locked

    def noted(path, kind):
        kinds.append(kind)
        return locked(path, kind)

    monkeypatch.setattr(cache, "_locked", noted)
    return kinds


class _FirstStepError(Exception):
    pass


def test_a_prepared_trial_reaches_its_first_step_without_building(
    small_trial, tmp_path, monkeypatch
):
    built = builds(monkeypatch)
    prepare(small_trial)
    assert {"document-sources", "collections", "tokens", "training"} <= set(built)
    forget()
    built.clear()

    def first_step(*_):
        raise _FirstStepError

    monkeypatch.setattr(TrainingStep, "backward", first_step)
    with pytest.raises(_FirstStepError):
        list(run_trial(small_trial, tmp_path / "trial"))
    assert built == []
    prepare(small_trial.override({"training.depth": 3}))
    assert built == ["training"], "another depth has rows of its own, and the rest in common"


def test_every_fold_is_prepared(small_trial, monkeypatch):
    built = builds(monkeypatch)
    prepare(small_trial.override({"evaluation.folds": 3}))
    assert built.count("training") == 3 and built.count("tokens") == 1 + 3 * 3


def test_inputs_from_memory_are_those_of_each_preparation(small_trial):
    opened = []
    for _ in range(2):
        with cache.opened_anew():
            prepare(small_trial)
            opened.append({*cache.used_folders()})
    assert opened[0] == opened[1]
    assert {"document-sources", "collections", "tokens", "training"} <= dict([*opened[1]]).keys()
