"""Asynchronous successive halving (ASHA, Li et al. 2020): Ray Tune's `ASHAScheduler` stops trials.

The first seed of every configuration competes; those that reach the end run all seeds, as the
baseline and deterministic configurations do, and only they are tested. Which trials stop depends on
the order in which they report.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rank_core.errors import BadInput
from sweeps.plan.plan import Plan, PlanLine, Trial
from sweeps.search.search import Block, Decision, Search, StatusOf, competitors, dev_values
from sweeps.store.records import Records
from sweeps.store.trial_status import USED, TrialStatus


class AshaSearch(Search):
    """The first seed of all configurations, then the other seeds of the survivors."""

    def __init__(self, plan: Plan, known: StatusOf, records: Records) -> None:
        super().__init__(plan, known, records)
        _check(plan)
        self._competing = {cell.cell for cell in plan.cells[1:] if not cell.deterministic}
        self._means: dict[str, float] = {}  # {finished trial: its mean on dev}

    @classmethod
    def plan_lines(cls, plan: Plan) -> Iterator[PlanLine]:
        """The rule, and that it is not reproducible to the trial."""
        _check(plan)
        yield from super().plan_lines(plan)
        least, eta = plan.search.min_epochs, plan.search.eta
        yield (
            "",
            f"with seed {plan.seeds[0]} a configuration stops after {least}, "
            f"{least * eta}, ... epochs unless it is among the best 1/{eta} on dev so far; those "
            f"that reach the end run all {len(plan.seeds)} seeds; at most {plan.num_trials} "
            "trials; which ones stop depends on the order of their reports",
        )

    def decide(self) -> Decision:
        """The competition first; further seeds of a configuration that reached the end."""
        first, wanted, final = self.plan.seeds[0], [], True
        for trial in self.plan.trials():
            competes = trial.cell.cell in self._competing
            if competes and trial.seed == first:
                trial = replace(trial, competes=True)
                # Survivors are known when the last competitor has ended: until then no more seeds
                # are certain.
                final = final and self.status(trial) is not None
            elif competes and self.status(replace(trial, seed=first)) not in USED:
                continue
            wanted.append(trial)
        return Decision(tuple(wanted), final)

    def changes(self, trial: Trial, status: str) -> bool:
        """With the ends of first seeds, once all have started: further seeds come after them."""
        first = self.plan.seeds[0]
        # They start in the order of the plan, not the longest first: a trial is judged by those
        # that have reported before it, so another order would stop others.
        waiting = next(iter(self._waiting.values()), None)
        return trial.seed == first and (waiting is None or waiting.seed != first)

    def ended(self, trial: Trial, status: str) -> None:
        """Reads its value, so that writing all takes no longer."""
        if status in USED and trial.cell.cell in self._competing:
            self._mean(trial)
        super().ended(trial, status)

    def block(self, trial: Trial) -> Block | None:
        """All trials of a seed; of a further seed, once the survivors are known."""
        known = trial.seed == self.plan.seeds[0] or self.decision.final
        return super().block(trial) if known else None

    def described(self) -> Mapping[str, Any]:
        """The settings, and the configurations that ASHA stopped."""
        search = self.plan.search
        return {
            "name": search.name,
            "eta": search.eta,
            "min_epochs": search.min_epochs,
            "num_seeds": len(self.plan.seeds),
            "over": self.decision.final,
            "standings": self._standings(),
        }

    def _standings(self) -> list[dict[str, Any]]:
        used: dict[str, list[float]] = {}
        for trial in self.decision.wanted:
            if trial.cell.cell in self._competing and self.status(trial) in USED:
                used.setdefault(trial.cell.cell, []).append(self._mean(trial))
        return [
            _standing(trial.cell.cell, self.status(trial), used.get(trial.cell.cell, []))
            for trial in self.decision.wanted
            if trial.competes
        ]

    def _mean(self, trial: Trial) -> float:
        if trial.name not in self._means:
            self._means[trial.name] = float(dev_values(self.records, trial).mean())
        return self._means[trial.name]


def _standing(cell: str, status: str | None, means: Sequence[float]) -> dict[str, Any]:
    """That of a cell whose first seed has this status, by the means of its finished trials."""
    fate = "stopped" if status == TrialStatus.STOPPED else "a trial was lost"
    left = status is not None and not means
    return {
        "cell": cell,
        "dev_mean": sum(means) / len(means) if means else None,
        "num_seeds": len(means),
        "left_after": 0 if left else None,
        "reason": fate if left else None,
    }


def _check(plan: Plan) -> None:
    """Refuse a plan without two configurations to compare after whole epochs of one model."""
    competing = [cell.config for cell in competitors(plan)]
    if any(config.evaluation.folds or config.training.max_steps for config in competing):
        raise BadInput(
            "--search asha counts epochs of one model, without evaluation.folds and "
            "training.max_steps (training.epoch_steps makes short epochs)"
        )
    least = min(config.training.num_epochs for config in competing)
    if least <= plan.search.min_epochs:
        raise BadInput(
            "--search asha can only stop trials before their end: --asha-min-epochs < "
            f"training.num_epochs must hold, got {plan.search.min_epochs} and {least}"
        )
