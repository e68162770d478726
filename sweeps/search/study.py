"""Studies of Optuna over a space, which propose its next point, weigh its settings and are a file
for others to open. Only this module imports Optuna."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from sweeps.plan.samplers import is_sampler, sampler_of
from sweeps.plan.search_options import SearchOutcome
from sweeps.plan.search_space import Space

AT_RANDOM = 10
"""The number of ended proposals below which a proposal is drawn at random."""
CONSTRAINTS = "constraints"  # the key of a trial of Optuna


class Proposal(NamedTuple):
    """The values of settings, and what a sampler has noted for itself: a generation, a state."""

    values: Mapping[str, Any]
    notes: Mapping[str, Any]


Seen = tuple[Proposal, SearchOutcome | None, bool]
"""An earlier proposal, what came of it, and True if it has ended."""


def propose(
    name: str, space: Space, seen: Sequence[Seen], *, seed: int, num_objectives: int = 1
) -> Iterator[Proposal]:
    """An endless sequence of values for the settings of the space. Later proposals avoid the
    neighbourhood of rejected ones. Maximises the first objective and minimises the others; an
    outcome of None is a failure."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = _distributions(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # Settings interact: the effect of a stride depends on its window.
        limited = any(outcome.excess for _, outcome, _ in seen if outcome)
        sampler = _sampler(name, seed, limited=limited)
        study = optuna.create_study(directions=_directions(num_objectives), sampler=sampler)
        for proposal, outcome, ended in seen:
            study.add_trial(_study_trial(proposal, outcome, ended, distributions))
        while True:
            values = study.ask(distributions).params
            noted = study.get_trials(deepcopy=False)[-1].system_attrs if is_sampler(name) else {}
            yield Proposal(values, noted)


def _directions(num_objectives: int) -> list[StudyDirection]:
    return [StudyDirection.MAXIMIZE, *[StudyDirection.MINIMIZE] * (num_objectives - 1)]


def _sampler(name: str, seed: int, *, limited: bool) -> optuna.samplers.BaseSampler:
    # Optuna 4 reads constraints by a function alone, which Optuna 5 warns of.
    by_function = limited and int(optuna.__version__.partition(".")[0]) < 5
    if is_sampler(name):
        return sampler_of(name, seed, _constraints if by_function else None)
    own: dict[str, Any] = {"constraints_func": _constraints} if by_function else {}
    if name == "gp":
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=AT_RANDOM, **own)
    return optuna.samplers.TPESampler(
        # `constant_liar`: running proposals count as bad ones, or parallel proposals would be
        # nearly equal.
        seed=seed,
        n_startup_trials=AT_RANDOM,
        multivariate=True,
        constant_liar=True,
        **own,
    )


def _constraints(trial: optuna.trial.FrozenTrial) -> Sequence[float]:
    found: Sequence[float] = trial.system_attrs[CONSTRAINTS]
    return found


def importance(
    space: Space,
    points: Mapping[str, Proposal],
    values: Mapping[str, Mapping[int, float | None]],
) -> list[dict[str, Any]]:
    """How much each setting of the space matters to be among the best (PED-ANOVA, Watanabe et al.
    2023), as shares of 1, most first: by the means of `values`, {cell: {seed: value}}, with the
    least and the most over single seeds, which say how much is luck. Empty below `AT_RANDOM` cells
    or two settings. Seeds that some cell lacks give no value of their own."""
    distributions = {k: own for k, own in _distributions(space).items() if not own.single()}
    if len(values) < AT_RANDOM or len(distributions) < 2:
        return []

    def shares(value_of: Mapping[str, float]) -> dict[str, float]:
        study = optuna.create_study(direction="maximize")
        for cell, value in value_of.items():
            params = {name: points[cell].values.get(name) for name in distributions}
            study.add_trial(create_trial(value=value, params=params, distributions=distributions))
        # At least five of the best, as its authors advise.
        best = min(0.5, max(0.1, 5 / len(value_of)))
        evaluator = PedAnovaImportanceEvaluator(target_quantile=best)
        return get_param_importances(study, evaluator=evaluator)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    means = {
        cell: float(np.mean([value for value in own.values() if value is not None]))
        for cell, own in values.items()
    }
    seeds = [*next(iter(values.values()))]
    of_seeds = [
        {cell: value for cell, own in values.items() if (value := own[seed]) is not None}
        for seed in seeds
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        whole = shares(means)
        single = [shares(own) for own in of_seeds if len(own) == len(values)]
    return [
        {"setting": name, "share": share, "by_seed": [own[name] for own in single]}
        for name, share in sorted(whole.items(), key=lambda entry: -entry[1])
    ]


def write_study(
    path: Path,
    name: str,
    space: Space,
    proposals: Sequence[tuple[str, Seen]],
    num_objectives: int,
) -> None:
    """The proposals with their labels as a study called `name`, in a file that optuna-dashboard and
    optuna's plots open (`JournalFileBackend`)."""
    distributions = _distributions(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        storage = JournalStorage(JournalFileBackend(str(path)))
        directions = _directions(num_objectives)
        study = optuna.create_study(study_name=name, storage=storage, directions=directions)
        for label, (proposal, outcome, ended) in proposals:
            trial = _study_trial(proposal, outcome, ended, distributions)
            trial.set_user_attr("label", label)
            study.add_trial(trial)


def _study_trial(
    proposal: Proposal,
    outcome: SearchOutcome | None,
    ended: bool,
    distributions: dict[str, BaseDistribution],
) -> optuna.trial.FrozenTrial:
    state = TrialState.RUNNING if not ended else TrialState.COMPLETE
    if ended and outcome is None:
        state = TrialState.FAIL
    params = {name: proposal.values.get(name) for name in distributions}
    known = outcome if ended else None
    limits = {CONSTRAINTS: list(known.excess)} if known and known.excess else {}
    return create_trial(
        state=state,
        values=list(known.values) if known else None,
        params=params,
        distributions=distributions,
        system_attrs={**proposal.notes, **limits},
    )


def _distributions(space: Space) -> dict[str, BaseDistribution]:
    distributions: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(values) for name, values in space.axes().items()
    }
    for name, span in space.ranges.items():
        if span.whole:
            distributions[name] = IntDistribution(int(span.low), int(span.high), log=span.log)
        else:
            distributions[name] = FloatDistribution(span.low, span.high, log=span.log)
    return distributions
