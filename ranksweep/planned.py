"""The plan of a sweep as data frames."""

from collections import Counter

import pandas as pd

from sweeps.launch.plan_text import excluded_lines, plan_lines, plan_text
from sweeps.launch.sweep import DryRun

WARNINGS = ("warning", "no effect", "left out", "excluded")
"""What the lines of a plan are about that a reader should see to."""


class SweepPlan:
    """A plan that was not run. `cells` has a row for each cell (chunks, tokens and cost of a trial,
    the seconds and hours of its trials that are still to run), `cost` one for each machine with the
    95% interval, `lines` what the plan says and `warnings` what to see to; `print` shows it as
    `--dry-run` does.

    Examples:
        >>> import ranksweep
        >>> planned = ranksweep.plan("my_sweep.toml", engine="local")
        >>> list(planned.cost.columns)
        ['machine', 'slots', 'seconds', 'low', 'high', 'hours', 'unit', 'tokens', 'price']
    """

    def __init__(self, dry: DryRun) -> None:
        plan, self._missing = dry.plan, dry.missing
        finished = plan.num_trials - len(dry.missing)
        self._text = plan_text(plan, finished=finished)
        lines = [*plan_lines(plan, finished=finished), *excluded_lines(plan)]
        self.question = plan.experiment.question
        self.lines = pd.DataFrame(lines, columns=["about", "text"])
        self.warnings = self.lines[self.lines["about"].isin(WARNINGS)].reset_index(drop=True)
        self.cells, self.cost = _cells(dry), _costs(dry)

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        cells = self.cells.drop(columns=["settings"])
        return str(cells.to_html(index=False) + self.cost.to_html(index=False))


def _cells(dry: DryRun) -> pd.DataFrame:
    number = Counter(trial.cell.cell for trial in dry.plan.trials())
    left = Counter(trial.cell.cell for trial in dry.missing)
    costs = dry.costs[0] if dry.costs else None
    rows = []
    for cell in dry.plan.cells:
        estimate = costs.trials.get(cell.cell) if costs else None
        seconds = dry.calibration.interval(estimate.seconds)[1] if estimate else None
        rows.append(
            {
                "cell": cell.label,
                "trials": number[cell.cell],
                "to_run": left[cell.cell],
                "chunks": cell.chunks.chunks_per_document,
                "tokens_per_document": cell.chunks.tokens_per_document,
                "read": cell.chunks.coverage,
                "tokens": estimate.tokens if estimate else None,
                "seconds": seconds,
                "hours": seconds * left[cell.cell] * costs.units / 3600
                if costs and seconds is not None
                else None,
                "settings": cell.config.settings(),
            }
        )
    return pd.DataFrame(rows)


def _costs(dry: DryRun) -> pd.DataFrame:
    columns = "machine slots seconds low high hours unit tokens price".split()
    rows = []
    for costs, machines in zip(dry.costs, dry.machines or (None,), strict=False):
        low, middle, high = costs.wall(dry.missing, dry.calibration)
        found = [costs.trials.get(trial.cell.cell) for trial in dry.missing]
        seconds = dry.calibration.interval(sum(one.seconds for one in found if one))[1]
        hours = seconds * costs.units / 3600
        price = machines.price * hours if machines and machines.price else None
        tokens = sum(one.tokens for one in found if one)
        name = machines.name if machines else "here"
        rows.append(
            [name, costs.slots, middle, low, high, hours, f"{costs.unit}-hours", tokens, price]
        )
    return pd.DataFrame(rows, columns=columns)
