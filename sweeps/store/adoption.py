"""Trials that another sweep of the same storage has finished already."""

from collections.abc import Iterable

from rank_core.checkpoints.weights import WEIGHTS
from rank_core.ranking.chunk_scores import CHUNK_SCORES
from sweeps.plan.plan import Trial
from sweeps.store.trial_store import Store

LEFT_FOR_OTHERS = {
    "training.keep_weights": WEIGHTS,
    "training.keep_run": "train.run.gz",
    "evaluation.keep_chunk_scores": CHUNK_SCORES,
}
"""Settings that change no number of a trial, but what it leaves: a twin may lack it."""


def adopt(store: Store, trials: Iterable[Trial]) -> set[str]:
    """Takes over what is finished elsewhere; the names of those that were not here before."""
    return store.adopt(_needs(trials))


def adoptable(store: Store, trials: Iterable[Trial]) -> set[str]:
    """The names of those that could be taken over, or were."""
    return store.adoptable(_needs(trials))


def _needs(trials: Iterable[Trial]) -> dict[str, list[str]]:
    settings = {trial.name: trial.config.settings() for trial in trials}
    return {
        name: [file for setting, file in LEFT_FOR_OTHERS.items() if of_trial[setting]]
        for name, of_trial in settings.items()
    }
