"""Configurations that a model of the earlier ones (Optuna's) proposes, each run with every seed.

The values of a configuration are means over seeds, so that no proposal depends on a single lucky
run: the measure on dev, and with `--objective` costs, which are sought with it (a Pareto front).
Limits of `--at-most` are constraints of the study. The next proposal depends on the proposals so
far, on the results of the earlier ones, in whatever order they end, and on the number that runs at
a time. Each proposal is on disk before its launch and never repeated. Only points that are valid
for the plan are proposed. Every proposal has a new study with all earlier results, so that no state
of Optuna is lost with a killed driver. The configurations of other sweeps that begin a search are
stored with its proposals: what later becomes of those sweeps changes none.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from rank_core.errors import BadInput
from rank_core.parsing import parsed_json
from rank_core.seeding import derive
from sweeps.plan.description import described_cells
from sweeps.plan.make_plan import DRAWS, FEW_REASONS, extended
from sweeps.plan.plan import Plan, PlanLine, PlannedCell, Removed, Trial
from sweeps.plan.samplers import is_sampler
from sweeps.plan.search_options import Finished, SearchOutcome, SearchSettings
from sweeps.search.search import Block, Decision, Search, StatusOf, dev_values, source
from sweeps.search.study import AT_RANDOM, Proposal, Seen, importance, propose, write_study
from sweeps.store.records import Records
from sweeps.store.trial_costs import MEASURED, TOKENS, measured_costs
from sweeps.store.trial_status import USED
from sweeps.terminal.text import numbered

ASKS = 50
"""Attempts at a proposal before a point is drawn at random, as most of the space may be infeasible
or have run."""


class StoredSearch(NamedTuple):
    """What a search has on disk: its proposals, and the finished configurations that began it."""

    proposals: tuple[Proposal, ...]
    started: tuple[Finished, ...]


class ProposingSearch(Search):
    """Optuna's proposals, one configuration after the other."""

    def __init__(self, plan: Plan, known: StatusOf, records: Records) -> None:
        super().__init__(plan, known, records)
        self._at_once, self._most = plan.search.at_once, plan.search.num_configs or 0
        self._path = _path(plan)
        self._points: list[Proposal] = []
        self._refused: list[Mapping[str, Any]] = []
        self._reasons: dict[str, None] = {}  # of refused points
        self._exhausted = False
        self._shown: list[bool] = []  # which proposals had ended in the last study
        self._outcomes: dict[str, SearchOutcome | None] = {}  # of ended cells
        self._started = plan.search.started
        # Proposals on disk are facts: a newer Optuna, which would propose otherwise, does not
        # change a sweep that has begun.
        stored = stored_search(plan, records)
        for proposal in stored.proposals[: self._most] if stored else ():
            if not self._accept(proposal):
                break  # a newer version rejects it: later proposals are made again

    @classmethod
    def plan_lines(cls, plan: Plan) -> Iterator[PlanLine]:
        """The most configurations and trials."""
        search = plan.search
        most = search.num_configs
        yield "search", f"{search.name}: up to {most} configurations of {source(plan)}"
        if search.objectives:
            measure, *costs = search.objectives
            yield "", f"sought: the highest {measure} on dev with the lowest {', '.join(costs)}"
        if search.at_most:
            limits = ", ".join(f"{cost} <= {most:g}" for cost, most in search.at_most.items())
            yield "", f"limits: {limits}"
        if search.started:
            begun = numbered(len(search.started), "finished configuration")
            yield "", f"begun by {begun} of {', '.join(search.start_from)}"
        without = search.at_once - 1
        random = max(0, AT_RANDOM - len(search.started))
        if not is_sampler(search.name):
            first = f"the first {random + without} at random, later ones" if random else "each"
            yield "", f"{first} by the dev values"
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
            **({"started": len(self._started)} if self._started else {}),
            **({"importance": found} if (found := self._importance()) else {}),
        }

    def block(self, trial: Trial) -> Block:
        """A configuration with all its seeds, whose mean is its value."""
        cell = trial.cell
        trials = tuple(ahead for ahead in self.unstarted if ahead.cell.cell == cell.cell)
        return Block(trials, f"{numbered(len(trials), 'trial')} of {cell.label}")

    def write_description(self) -> None:
        """Also store the proposals as a study for optuna-dashboard."""
        super().write_description()
        ended = [self._settled(cell) for cell in self._proposals]
        if ended == self._shown:
            return
        # The search does not need it.
        with suppress(Exception), TemporaryDirectory() as folder:
            file = Path(folder, self._path).with_suffix(".optuna.log")
            labels = (cell.label for cell in self._proposals)
            proposals = list(zip(labels, self._seen(ended), strict=True))
            name, space = self.plan.experiment.name, self.plan.space
            write_study(file, name, space, proposals, self._num_objectives)
            self.records.storage.write(self.records.path(file.name), file)
            self._shown = ended

    def _new_cells(self) -> dict[str, Any]:
        """With the number of proposals, which these are."""
        facts = super()._new_cells()
        if facts and self._described is not None:
            numbers = {"over": self.decision.final, "proposed": len(self._points)}
            facts["search"] = self._described = {**self._described, **numbers}
        return facts

    def begun(self) -> Mapping[str, Any]:
        """The trials without configurations that lack a seed, whose means are not comparable."""
        cells = self._comparable_cells()
        if not (used := self._seeds_used(cells)):
            return {}
        facts = described_cells(replace(self.plan, cells=cells))
        if any(trial.cell.cell == cells[0].cell for trial in self.unstarted):
            facts["seeds"] = [seed for seed in self.plan.seeds if seed in used]
        return facts | {"search": {**self.described(), "proposed": len(cells) - 1, "over": False}}

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
        if not self._points:
            raise BadInput(f"no configuration can run: {'; '.join([*self._reasons][:FEW_REASONS])}")

    def _candidates(self) -> Iterator[Proposal]:
        """The model's proposals, then the rest of the space at random."""
        search, space, number = self.plan.search, self.plan.space, len(self._points)
        # A stream for each proposal: a resumed search draws what an uninterrupted one would.
        seed = derive(search.seed, search.name, number)
        # The last ones count as running even where they have ended: the study must look the same in
        # every order of ends.
        ended = [earlier < self._num_used for earlier in range(number)]
        seen: list[Seen] = [(Proposal(own.point, {}), own.outcome, True) for own in self._started]
        seen += self._seen(ended)
        proposals = propose(
            search.name, space, seen, seed=seed % 2**32, num_objectives=self._num_objectives
        )
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
            yield point, self._outcome(cell) if over else None, over

    @property
    def _num_objectives(self) -> int:
        return max(1, len(self.plan.search.objectives))

    def _outcome(self, cell: PlannedCell) -> SearchOutcome | None:
        """What came of an ended cell with scores; None without any."""
        if cell.cell not in self._outcomes:
            used = [trial for trial in self._trials(cell) if self.status(trial) in USED]
            found = None
            if used:
                values = [dev_values(self.records, trial).mean() for trial in used]
                names, tokens = [trial.name for trial in used], cell.chunks.tokens_per_document
                folds, search = cell.config.evaluation.folds, self.plan.search
                costs = costs_of_cell(self.records, names, tokens, search, folds=folds)
                found = outcome_of(float(np.mean(values)), costs, search)
            self._outcomes[cell.cell] = found
        return self._outcomes[cell.cell]

    def _importance(self) -> list[dict[str, Any]]:
        """How much each setting matters for the measure on dev, once the search has ended."""
        if not (self.decision.final and all(map(self._settled, self._proposals))):
            return []
        values = {}
        for cell in self._proposals:
            used = [trial for trial in self._trials(cell) if self.status(trial) in USED]
            own = {trial.seed: dev_values(self.records, trial).mean() for trial in used}
            if own:  # a deterministic cell has one run, which every seed would repeat
                only = own[used[0].seed] if cell.deterministic else None
                values[cell.cell] = {s: own.get(s, only) for s in self.plan.seeds}
        points = dict(zip((cell.cell for cell in self._proposals), self._points, strict=True))
        return importance(self.plan.space, points, values)

    def _settled(self, cell: PlannedCell) -> bool:
        return all(self.status(trial) is not None for trial in self._trials(cell))

    def _trials(self, cell: PlannedCell) -> Iterator[Trial]:
        seeds = self.plan.seeds[:1] if cell.deterministic else self.plan.seeds
        for seed in seeds:
            yield Trial(cell, seed)

    def _accept(self, proposal: Proposal) -> bool:
        plan = extended(self.plan, proposal.values)
        if isinstance(plan, Removed):
            self._reasons[plan.reason] = None
            return False
        self.plan = plan
        self._points.append(proposal)
        return True

    def _write(self) -> None:
        """All proposals, including those of an earlier command for more configurations."""
        if not self.writes:
            return
        proposals = [
            {"point": dict(point), "cell": cell.cell} | ({"notes": dict(notes)} if notes else {})
            for (point, notes), cell in zip(self._points, self._proposals, strict=True)
        ]
        started = [{"point": dict(own.point), **own.outcome._asdict()} for own in self._started]
        stored = {"proposals": proposals} | ({"started": started} if started else {})
        content = json.dumps(stored, indent=1)
        self.records.write_file(self._path, content.encode())


def stored_search(plan: Plan, records: Records) -> StoredSearch | None:
    """What an earlier command of this search has stored; None where there was none. Raises
    `BadInput` for a file that is no such thing."""
    content = records.read_file(_path(plan))
    if content is None:
        return None
    try:
        stored = parsed_json(content)
        proposals = tuple(
            Proposal(dict(own["point"]), dict(own.get("notes", {}))) for own in stored["proposals"]
        )
        started = tuple(
            Finished(own["point"], SearchOutcome(tuple(own["values"]), tuple(own["excess"])))
            for own in stored.get("started", ())
        )
    except (ValueError, KeyError, TypeError):
        raise BadInput(
            f"{records.uri}/{_path(plan)} must hold the proposals of this search; move it "
            "away, and the same command proposes again from the ended trials"
        ) from None
    return StoredSearch(proposals, started)


def _path(plan: Plan) -> str:
    """The file of a search, by a hash (six hex digits) of the search, the space, and the settings
    and contents that all cells share."""
    search = plan.search
    shared: list[Any] = [search.name, search.seed, plan.space.text(), plan.cells[0].cell]
    shared += filter(None, (search.objectives, sorted(search.at_most.items()), search.start_from))
    identity = hashlib.sha256("\n".join(map(str, shared)).encode()).hexdigest()[:6]
    return f"search-{identity}.json"


def costs_of_cell(
    records: Records,
    trials: Sequence[str],
    tokens: float,
    search: SearchSettings,
    *,
    folds: int,
) -> dict[str, float]:
    """The costs of a cell by its finished trials; `tokens` are those of a document. Measured ones
    only where the search needs them."""
    needed = {*search.objectives[1:], *search.at_most}
    if needed & {*MEASURED}:
        return {TOKENS: tokens} | measured_costs(records, trials, folds=folds)
    return {TOKENS: tokens}


def outcome_of(mean: float, costs: Mapping[str, float], search: SearchSettings) -> SearchOutcome:
    """What a search knows of a configuration with this mean on dev and these costs."""
    values = (mean, *(costs[name] for name in search.objectives[1:]))
    return SearchOutcome(
        values, tuple(costs[own] / most - 1 for own, most in search.at_most.items())
    )
