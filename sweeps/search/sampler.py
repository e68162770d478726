"""The interface to Optuna: values of the next configuration, from the values of earlier ones.

Every proposal has a new study with all earlier results, so that no state of Optuna is lost with a
killed driver.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from rank_core.files import atomic_write
from sweeps.plan.search_space import Range, Space

AT_RANDOM = 10
"""The number of ended proposals below which a proposal is drawn at random."""
Seen = tuple[Mapping[str, Any], float | None, bool]
"""Values of an earlier proposal, its dev value, and True if it has ended."""


def propose(
    name: str, space: Space, seen: Sequence[Seen], *, seed: int
) -> Iterator[dict[str, Any]]:
    """An endless sequence of values for the settings of the space. Later proposals avoid the
    neighbourhood of rejected ones. Maximises; a value of None is a failure."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = _distributions(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(direction="maximize", sampler=_sampler(name, seed))
        for values, value, ended in seen:
            study.add_trial(_study_trial(values, value, ended, distributions))
        while True:
            yield study.ask(distributions).params


def write_study(path: Path, name: str, space: Space, proposals: Sequence[tuple[str, Seen]]) -> None:
    """The proposals with their labels as a study called `name`, in a file that optuna-dashboard and
    optuna's plots open (`JournalFileBackend`); atomic."""
    distributions = _distributions(space)
    with warnings.catch_warnings(), atomic_write(path) as unfinished:
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        storage = JournalStorage(JournalFileBackend(str(unfinished)))
        study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
        for label, (values, value, ended) in proposals:
            trial = _study_trial(values, value, ended, distributions)
            trial.set_user_attr("label", label)
            study.add_trial(trial)


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if name == "gp":
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=AT_RANDOM)
    assert name == "tpe", name
    # Settings interact: the effect of a stride depends on its window.
    return optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=AT_RANDOM, multivariate=True, constant_liar=True
    )


def _study_trial(
    values: Mapping[str, Any],
    value: float | None,
    ended: bool,
    distributions: dict[str, BaseDistribution],
) -> optuna.trial.FrozenTrial:
    state = TrialState.RUNNING
    if ended:
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
    params = {name: values.get(name) for name in distributions}
    result = value if state == TrialState.COMPLETE else None
    return create_trial(state=state, value=result, params=params, distributions=distributions)


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    distributions: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(values) for name, values in space.axes().items()
    }
    return distributions | {name: _numbers(span) for name, span in space.ranges.items()}


def _numbers(span: Range) -> BaseDistribution:
    if span.whole:
        return IntDistribution(int(span.low), int(span.high), log=span.log)
    return FloatDistribution(span.low, span.high, log=span.log)
