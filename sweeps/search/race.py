"""A race of the plan's configurations on dev: `rank_core.stats.racing` decides, seeds are blocks.

The baseline does not compete: all others are compared with it, so it runs every seed. Deterministic
configurations do not compete either. Configurations that remain when the race is decided run their
remaining seeds, so that the table compares equal seeds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rank_core.arrays import Floats
from rank_core.stats.racing import FIRST_ANALYSIS, Race, race_so_far
from sweeps.plan.plan import Plan, PlanLine, Trial
from sweeps.plan.search_options import search_kind
from sweeps.search.search import Decision, FreeOrder, StatusOf, competitors, dev_values
from sweeps.store.records import Records
from sweeps.store.trial_status import USED
from sweeps.terminal.text import say

ALPHA = 0.05
"""The largest probability that the race eliminates the winner of the whole grid."""
EQUAL = 0.65
"""The mean share of the trials beyond the fewest that a race of equal configurations, the dearest,
takes (`python -m tests.benchmarks.racing --only prices`)."""
CLEARLY = 0.85
"""A race is proposed where its dearest mean price is at most this share of the grid's."""


class RaceSearch(FreeOrder):
    """Runs blocks of one seed of every live configuration; the order within them is free, as only
    complete ones are judged."""

    def __init__(self, plan: Plan, known: StatusOf, records: Records) -> None:
        super().__init__(plan, known, records)
        self.competitors = {cell.cell: cell for cell in competitors(plan)}
        self._values: dict[str, Floats] = {}
        self._announced: int | None = None  # verdicts printed so far
        self._race: Race | None = None  # after the trials that have ended

    @classmethod
    def plan_lines(cls, plan: Plan) -> Iterator[PlanLine]:
        """The rule of elimination, and the least and the most trials."""
        yield from super().plan_lines(plan)
        delta, fewest = plan.search.delta, _fewest(plan)
        tie = f" by more than {delta:g}" if delta else ""
        yield (
            "",
            "a configuration is eliminated once it is unlikely to be the best of the whole grid "
            f"on dev{tie}; tested from the second seed on;",
        )
        yield "", f"{fewest} to {plan.num_trials} trials; the baseline runs every seed"

    def race(self) -> Race:
        """The race after the ended trials."""
        if self._race is None:
            self._race = self._after_ends()
        return self._race

    def changes(self, trial: Trial, status: str) -> bool:
        """Where a block is complete or a configuration has lost a trial."""
        own, race = (trial.cell.cell, trial.seed), self.race()
        if own[0] not in self.competitors:
            return False
        if status in USED:
            left = tuple(one for one in race.pending if one != own)
            self._race = replace(race, pending=left)
            if left or not race.pending:
                return False
        self._race = None
        return True

    def _after_ends(self) -> Race:
        trials = {
            (trial.cell.cell, trial.seed): trial
            for trial in self.plan.trials()
            if trial.cell.cell in self.competitors
        }
        by_end = {key: self.status(trial) for key, trial in trials.items()}
        return race_so_far(
            {key: self._dev(trials[key]) for key, status in by_end.items() if status in USED},
            configurations=tuple(self.competitors),
            seeds=self.plan.seeds,
            # A configuration that cannot be trained with every seed cannot be compared over all of
            # them.
            lost=[key for key, status in by_end.items() if status and status not in USED],
            alpha=ALPHA,
            delta=self.plan.search.delta,
        )

    def _dev(self, trial: Trial) -> Floats:
        if trial.name not in self._values:
            self._values[trial.name] = dev_values(self.records, trial)
        return self._values[trial.name]

    def decide(self) -> Decision:
        """A block beyond the complete ones; all seeds for the configurations that remain at the
        end."""
        race = self.race()
        last = {
            standing.configuration: len(self.plan.seeds)
            if standing.left_after is None
            else standing.left_after + standing.lost  # even the lost trial
            for standing in race.standings
        }
        # Only the block after the complete ones is wanted: a trial of a later one might be of a
        # configuration that this block eliminates.
        horizon = len(self.plan.seeds) if race.over else max(FIRST_ANALYSIS, race.num_complete + 1)
        until = {seed: number for number, seed in enumerate(self.plan.seeds, start=1)}
        trials = tuple(
            trial
            for trial in self.plan.trials()
            if until[trial.seed] <= min(horizon, last.get(trial.cell.cell, horizon))
        )
        return Decision(trials, final=race.over)

    def ended(self, trial: Trial, status: str) -> None:
        """Records the end, decides again, and prints the configurations that are eliminated."""
        announced = len(self.race().verdicts) if self._announced is None else self._announced
        if status in USED and trial.cell.cell in self.competitors:
            self._dev(trial)  # now: all of a block at its end would take long
        super().ended(trial, status)
        verdicts = self.race().verdicts
        self._announced = len(verdicts)
        if verdicts[announced:] or status not in USED:
            self.describe()  # at once: `status` and the report of a killed sweep read who has left
        for verdict in verdicts[announced:]:
            eliminated = ", ".join(self.competitors[name].label for name in verdict.leaves)
            leader = self.competitors[verdict.leader].label
            say(
                f"race: after {verdict.num_seeds} of {verdict.planned_seeds} seeds {leader} leads "
                f"on dev, eliminated: {eliminated or 'none'}; {len(verdict.stays)} remain"
            )

    def described(self) -> Mapping[str, Any]:
        """The verdicts, and the seeds and reasons of eliminations."""
        race, seeds = self.race(), len(self.plan.seeds)
        judged = {
            judgment.configuration: (verdict, judgment)
            for verdict in race.verdicts
            for judgment in verdict.judged
            if judgment.leaves
        }
        standings = []
        for standing in race.standings:
            lost = standing.lost and standing.left_after is not None
            line: dict[str, Any] = {
                "cell": standing.configuration,
                "dev_mean": standing.mean if standing.num_seeds else None,
                "num_seeds": standing.num_seeds,
                "left_after": standing.left_after,
                "reason": "a trial was lost" if lost else None,
            }
            if standing.configuration in judged and not lost:
                verdict, judgment = judged[standing.configuration]
                leader = self.competitors[verdict.leader].label
                line["reason"] = f"{judgment.gap:.4f} below {leader} on dev"
                line |= {"leader": verdict.leader, "gap": judgment.gap, "p": judgment.p}
                line["level"] = verdict.level
            standings.append(line)
        return {
            "name": self.plan.search.name,
            "alpha": ALPHA,
            "delta": self.plan.search.delta,
            "num_seeds": seeds,
            "num_complete": race.num_complete,
            "over": race.over,
            "standings": standings,
            "launched_by_design": len(self.decision.wanted),
            "whole_grid": sum(1 for _ in self.plan.trials()),
        }


def _fewest(plan: Plan) -> int:
    """The trials of a race that eliminates all but one configuration at once."""
    racing = sum(not cell.deterministic for cell in plan.cells[1:])
    return plan.num_trials - (racing - 1) * (len(plan.seeds) - FIRST_ANALYSIS)


@dataclass(frozen=True)
class RacePrice:
    """What a race would take of a grid: trials, and shares of its encoder tokens; the least, and
    the mean where all configurations are equal."""

    trials: tuple[int, int]
    shares: tuple[float, float]


def race_price(plan: Plan) -> RacePrice | None:
    """The price of a race in place of the plan's grid; None where it is not clearly lower, or where
    all rows of the grid are wanted or none is chosen."""
    experiment, search = plan.experiment, search_kind("race")
    whole = experiment.confirms or experiment.test_set or experiment.reference or plan.reduced
    racing = [cell for cell in plan.cells[1:] if not cell.deterministic]
    if plan.search.name != "grid" or whole or plan.only is not None:
        return None
    if len(racing) < search.fewest_configs or len(plan.seeds) < search.fewest_seeds:
        return None
    total = sum(trial.cost for trial in plan.trials())
    costs = [Trial(cell, plan.seeds[0]).cost for cell in racing]
    # One of the configurations runs all seeds; which one is not known.
    saved = (len(plan.seeds) - FIRST_ANALYSIS) * sum(costs) * (1 - 1 / len(costs)) / total
    if 1 - (1 - EQUAL) * saved > CLEARLY:
        return None
    fewest = _fewest(plan)
    mean = round(fewest + EQUAL * (plan.num_trials - fewest))
    return RacePrice((fewest, mean), (1 - saved, 1 - (1 - EQUAL) * saved))
