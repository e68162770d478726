"""Configurations that a model of the dev values (Optuna's) proposes, each run with every seed.

The value of a configuration is its mean over seeds, so that no proposal depends on a single lucky
run. The next proposal depends on the proposals so far, on the results of the earlier ones, in
whatever order they end, and on the number that runs at a time. Each proposal is on disk before its
launch and never repeated. Only points that are valid for the plan are proposed. Every proposal has
a new study with all earlier results, so that no state of Optuna is lost with a killed driver.
"""

import hashlib
import itertools
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
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

from rank_core.errors import BadInput
from rank_core.parsing import parsed_json
from rank_core.seeding import derive
from sweeps.plan.description import described_cells
from sweeps.plan.make_plan import DRAWS, extended
from sweeps.plan.plan import Plan, PlanLine, PlannedCell, Removed, Trial
from sweeps.plan.samplers import is_sampler, sampler_of
from sweeps.plan.search_space import Space
from sweeps.search.search import Block, Decision, Search, StatusOf, dev_values, source
from sweeps.store.records import Records
from sweeps.store.trial_status import USED
from sweeps.terminal.text import numbered

AT_RANDOM = 10
"""The number of ended proposals below which a proposal is drawn at random."""


class Proposal(NamedTuple):
    """The values of settings, and what a sampler has noted for itself: a generation, a state."""

    values: Mapping[str, Any]
    notes: Mapping[str, Any]


Seen = tuple[Proposal, float | None, bool]
"""An earlier proposal, its dev value, and True if it has ended."""
ASKS = 50
"""Attempts at a proposal before a point is drawn at random, as most of the space may be infeasible
or have run."""


class ProposingSearch(Search):
    """Optuna's proposals, one configuration after the other."""

    def __init__(self, plan: Plan, known: StatusOf, records: Records) -> None:
        super().__init__(plan, known, records)
        self._at_once, self._most = plan.search.at_once, plan.search.num_configs or 0
        self._path = f"search-{_identity(plan)}.json"
        self._points: list[Proposal] = []
        self._refused: list[Mapping[str, Any]] = []
        self._exhausted = False
        self._shown: list[bool] = []  # which proposals had ended in the last study
        self._values: dict[str, float | None] = {}  # of ended cells
        # Proposals on disk are facts: a newer Optuna, which would propose otherwise, does not
        # change a sweep that has begun.
        for proposal in self._read()[: self._most]:
            if not self._accept(proposal):
                break  # a newer version rejects it: later proposals are made again

    @classmethod
    def plan_lines(cls, plan: Plan) -> Iterator[PlanLine]:
        """The most configurations and trials."""
        search = plan.search
        most = search.num_configs
        yield "search", f"{search.name}: up to {most} configurations of {source(plan)}"
        without = search.at_once - 1
        if not is_sampler(search.name):
            yield "", f"the first {AT_RANDOM + without} at random, later ones by the dev values"
            yield "", f"of all earlier ones but the last {without};"
        yield "", f"at most {plan.max_trials} trials, of which these are known:"

    def decide(self) -> Decision:
        """The baseline, then every proposal, with all seeds."""
        while (
            len(self._points) < self._most
            and not self._exhausted
            # The next proposal waits for a fixed set of earlier ones and for no others, so that it
            # does not depend on which ended first.
            and all(self._settled(cell) for cell in self._proposals[: self._num_used])
        ):
            self._propose()
        trials = tuple(trial for cell in self.plan.cells for trial in self._trials(cell))
        return Decision(trials, final=self._exhausted or len(self._points) == self._most)

    def described(self) -> Mapping[str, Any]:
        """The numbers of proposals, made and planned, and the model that makes them."""
        return {
            "name": self.plan.search.name,
            "over": self.decision.final,
            "seed": self.plan.search.seed,
            "num_configs": self._most,
            "proposed": len(self._points),
            "at_once": self._at_once,
            "space": None if self.plan.space.ranges else len(self.plan.space.points),
        }

    def block(self, trial: Trial) -> Block:
        """A configuration with all its seeds, whose mean is its value."""
        cell = trial.cell
        trials = tuple(ahead for ahead in self.unstarted if ahead.cell.cell == cell.cell)
        return Block(trials, f"{numbered(len(trials), 'trial')} of {cell.label}")

    def describe(self) -> None:
        """Also store the proposals as a study for optuna-dashboard."""
        super().describe()
        ended = [self._settled(cell) for cell in self._proposals]
        if ended == self._shown:
            return
        # The search does not need it.
        with suppress(Exception), TemporaryDirectory() as folder:
            file = Path(folder, self._path).with_suffix(".optuna.log")
            labels = (cell.label for cell in self._proposals)
            proposals = list(zip(labels, self._seen(ended), strict=True))
            write_study(file, self.plan.experiment.name, self.plan.space, proposals)
            self.records.storage.write(self.records.path(file.name), file)
            self._shown = ended

    def begun(self) -> Mapping[str, Any]:
        """The trials without configurations that lack a seed, whose means are not comparable."""
        later = {trial.cell.cell for trial in self.unstarted}
        complete = tuple(cell for cell in self.plan.cells if cell.cell not in later)
        search = {**self.described(), "proposed": len(complete) - 1, "over": False}
        return {**described_cells(replace(self.plan, cells=complete)), "search": search}

    @property
    def _proposals(self) -> tuple[PlannedCell, ...]:
        return self.plan.cells[1:]

    @property
    def _num_used(self) -> int:
        """The number of proposals whose values the next one uses, whatever the order of ends."""
        return max(0, len(self._points) - self._at_once + 1)

    def _propose(self) -> None:
        for proposal in self._candidates():
            if proposal.values in self._refused:
                continue
            if self._accept(proposal):
                self._write()
                return
            self._refused.append(proposal.values)
        self._exhausted = True

    def _candidates(self) -> Iterator[Proposal]:
        """The model's proposals, then the rest of the space at random."""
        search, space, number = self.plan.search, self.plan.space, len(self._points)
        # A stream for each proposal: a resumed search draws what an uninterrupted one would.
        seed = derive(search.seed, search.name, number)
        # The last ones count as running even where they have ended: the study must look the same in
        # every order of ends.
        ended = [earlier < self._num_used for earlier in range(number)]
        proposals = propose(search.name, space, list(self._seen(ended)), seed=seed % 2**32)
        # A sampler that counts its draws repeats the earlier ones first.
        asks = ASKS + number * is_sampler(search.name)
        for values, notes in itertools.islice(proposals, asks):
            if (point := space.point(values)) is not None:
                yield Proposal(point, notes)
        # Where most of the space is infeasible the model repeats itself; chance still finds the
        # rest.
        for point in itertools.islice(space.drawn(seed), DRAWS):
            yield Proposal(point, {})

    def _seen(self, ended: Sequence[bool]) -> Iterator[Seen]:
        for cell, point, over in zip(self._proposals, self._points, ended, strict=True):
            yield point, self._value(cell) if over else None, over

    def _value(self, cell: PlannedCell) -> float | None:
        """The mean on dev over the seeds of an ended cell with scores; None without any."""
        if cell.cell not in self._values:
            used = [trial for trial in self._trials(cell) if self.status(trial) in USED]
            means = [dev_values(self.records, trial).mean() for trial in used]
            self._values[cell.cell] = float(np.mean(means)) if means else None
        return self._values[cell.cell]

    def _settled(self, cell: PlannedCell) -> bool:
        return all(self.status(trial) is not None for trial in self._trials(cell))

    def _trials(self, cell: PlannedCell) -> Iterator[Trial]:
        seeds = self.plan.seeds[:1] if cell.deterministic else self.plan.seeds
        for seed in seeds:
            yield Trial(cell, seed)

    def _accept(self, proposal: Proposal) -> bool:
        plan = extended(self.plan, proposal.values)
        if isinstance(plan, Removed):
            return False
        self.plan = plan
        self._points.append(proposal)
        return True

    def _read(self) -> list[Proposal]:
        content = self.records.read_file(self._path)
        if content is None:
            return []
        try:
            return [
                Proposal(dict(own["point"]), dict(own.get("notes", {})))
                for own in parsed_json(content)["proposals"]
            ]
        except (ValueError, KeyError, TypeError):
            raise BadInput(
                f"{self.records.uri}/{self._path} must hold the proposals of this search; move it "
                "away, and the same command proposes again from the ended trials"
            ) from None

    def _write(self) -> None:
        """All proposals, including those of an earlier command for more configurations."""
        proposals = [
            {"point": dict(point), "cell": cell.cell} | ({"notes": dict(notes)} if notes else {})
            for (point, notes), cell in zip(self._points, self._proposals, strict=True)
        ]
        content = json.dumps({"proposals": proposals}, indent=1)
        self.records.write_file(self._path, content.encode())


def _identity(plan: Plan) -> str:
    """A hash (six hex digits) of the search, the space, and the settings and contents that all
    cells share."""
    shared = (plan.search.name, plan.search.seed, plan.space.text(), plan.cells[0].cell)
    return hashlib.sha256("\n".join(map(str, shared)).encode()).hexdigest()[:6]


def propose(name: str, space: Space, seen: Sequence[Seen], *, seed: int) -> Iterator[Proposal]:
    """An endless sequence of values for the settings of the space. Later proposals avoid the
    neighbourhood of rejected ones. Maximises; a value of None is a failure."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = _distributions(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # Settings interact: the effect of a stride depends on its window.
        study = optuna.create_study(direction="maximize", sampler=_sampler(name, seed))
        for proposal, value, ended in seen:
            study.add_trial(_study_trial(proposal, value, ended, distributions))
        while True:
            values = study.ask(distributions).params
            noted = study.get_trials(deepcopy=False)[-1].system_attrs if is_sampler(name) else {}
            yield Proposal(values, noted)


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if is_sampler(name):
        return sampler_of(name, seed)
    if name == "gp":
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=AT_RANDOM)
    return optuna.samplers.TPESampler(
        # `constant_liar`: running proposals count as bad ones, or parallel proposals would be
        # nearly equal.
        seed=seed,
        n_startup_trials=AT_RANDOM,
        multivariate=True,
        constant_liar=True,
    )


def write_study(path: Path, name: str, space: Space, proposals: Sequence[tuple[str, Seen]]) -> None:
    """The proposals with their labels as a study called `name`, in a file that optuna-dashboard and
    optuna's plots open (`JournalFileBackend`)."""
    distributions = _distributions(space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        storage = JournalStorage(JournalFileBackend(str(path)))
        study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
        for label, (proposal, value, ended) in proposals:
            trial = _study_trial(proposal, value, ended, distributions)
            trial.set_user_attr("label", label)
            study.add_trial(trial)


def _study_trial(
    proposal: Proposal,
    value: float | None,
    ended: bool,
    distributions: dict[str, BaseDistribution],
) -> optuna.trial.FrozenTrial:
    state = TrialState.RUNNING if not ended else TrialState.COMPLETE
    if ended and value is None:
        state = TrialState.FAIL
    params = {name: proposal.values.get(name) for name in distributions}
    result = value if ended else None
    return create_trial(
        state=state,
        value=result,
        params=params,
        distributions=distributions,
        system_attrs=dict(proposal.notes),
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
