"""A system: what a row of the table is about, wherever its values come from."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import pandas as pd
from scipy import stats

from rank_core.stats.compare import CellComparison
from sweeps.store.sweep_file import FIRST_STAGE, Cell
from sweeps.store.trial_status import USED
from sweeps.terminal.notation import MISSING

ListReader: TypeAlias = Callable[[Collection[str]], dict[str, list[str]]]
"""A function from queries to {query_id: doc_ids, best first} of those that a run ranks."""


class Kind(StrEnum):
    """Where the values of a system come from."""

    TRAINED = "trained"  # a cell of a sweep: its trials
    EXTERNAL = "external"  # runs of a third party
    AGGREGATION = "aggregation"  # kept chunk scores of a model as it is, put together
    DERIVED = "inference-only"  # kept chunk scores of a trained cell, put together in another way
    INTERPOLATED = "interpolated"  # the trials of another system, mixed with the first stage
    FIRST_STAGE = "first stage"  # the candidates in their order


@dataclass(frozen=True, eq=False)
class System:
    """A system over its seeds; as a row of the table with its tests."""

    cell: Cell
    seed_means: Mapping[str, Mapping[int, float]]  # {measure: {used seed: mean over queries}}
    statuses: Mapping[int, str]  # {seed: status}; a declared seed without a trial is `planned`
    kind: Kind = Kind.TRAINED
    of: str = ""  # the system whose trials it is made of; "" where they are its own
    scores: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    """Per query, on the reported split, of one seed where it is deterministic; empty for a cell,
    whose values are among those of its sweep."""
    deterministic: bool = False
    dev: Mapping[int, float] = field(default_factory=dict)
    """{seed: mean of the primary measure on dev} of a row that is not a cell: those of cells are in
    their sweep."""
    alphas: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    """{seed: its weight beside the first stage's, or those of its folds}; may be empty."""
    lists: Mapping[int, ListReader] = field(default_factory=dict)  # by seed, where they are known
    is_baseline: bool = False
    same_as: str = ""  # the label of the row that it is by construction; then it has no test
    tests: Mapping[str, Mapping[str, CellComparison]] = field(default_factory=dict)
    """{measure: {letter of a baseline: the comparison}}, in the order of the letters."""

    @property
    def name(self) -> str:
        """The name in tables of values; of a cell the one that its trials begin with."""
        return self.cell.cell

    @property
    def label(self) -> str:
        """The name for people."""
        return self.cell.label

    @property
    def is_cell(self) -> bool:
        """True for a system with runs of its own; interpolated ones and the first stage are
        computed beside these."""
        return self.kind not in (Kind.INTERPOLATED, Kind.FIRST_STAGE)

    @property
    def alphas_text(self) -> str:
        """`0.6, 0.7, 0.6`, seed by seed; those of folds as `0.6/0.7`."""
        return ", ".join(
            "/".join(f"{alpha:g}" for alpha in of_seed) for of_seed in self.alphas.values()
        )

    @property
    def identical_to(self) -> str:
        """The system that it is by construction: the first stage where all alphas are 0, its cell
        where all are 1; "" otherwise. Alpha is chosen on dev, so this is known before any test."""
        alphas = {alpha for of_seed in self.alphas.values() for alpha in of_seed}
        return FIRST_STAGE if alphas == {0} else self.of if alphas == {1} else ""

    @property
    def seeds_text(self) -> str:
        """`3/3`, used and launched; `—` of a system without seeds."""
        if not self.is_cell and not self.num_launched:
            return MISSING
        return f"{self.num_used}/{self.num_launched}"

    def test(self, measure: str) -> CellComparison | None:
        """The comparison with the first baseline, if there is one."""
        return self.tests.get(measure, {}).get("a")

    def runs(self, measure: str) -> dict[int, float]:
        """{seed: mean over queries} of its runs; none of a system without seeds, nor of a mean over
        collections whose runs are separate: no run is on all of them."""
        values = self.seed_means[measure].items()
        return {seed: value for seed, value in values if seed in self.statuses}

    def deviation(self, measure: str) -> float:
        """The standard deviation of the seed means; NaN for one seed."""
        values = list(self.seed_means[measure].values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")

    def seeds(self, *statuses: str) -> list[int]:
        """The seeds that ended in one of `statuses`."""
        return [seed for seed, status in self.statuses.items() if status in statuses]

    @property
    def num_used(self) -> int:
        """The number of seeds with scores."""
        return len(self.seeds(*USED))

    @property
    def num_launched(self) -> int:
        """The number of seeds that were started, however they ended."""
        return len(self.statuses) - len(self.seeds("planned"))

    @property
    def dev_mean(self) -> float:
        """The mean on dev over seeds; NaN where it is not known."""
        return float(np.mean([*self.dev.values()])) if self.dev else float("nan")

    def mean(self, measure: str) -> float:
        """The mean over seeds of the means over queries; NaN without a used seed."""
        values = list(self.seed_means[measure].values())
        return float(np.mean(values)) if values else float("nan")

    def interval(self, measure: str, alpha: float) -> tuple[float, float] | None:
        """Student's interval of the mean, runs random and queries fixed; None below 2 seeds and for
        equal ones."""
        count, mean = len(self.seed_means[measure]), self.mean(measure)
        if count < 2 or self.deviation(measure) == 0:
            return None
        error = self.deviation(measure) / np.sqrt(count)
        half = float(stats.t.ppf(1 - alpha / 2, count - 1) * error)
        return mean - half, mean + half


def seed_means(scores: pd.DataFrame, measures: Sequence[str]) -> dict[str, dict[int, float]]:
    """{measure: {seed: mean over queries}} of the values of one system."""
    means: dict[str, dict[int, float]] = {measure: {} for measure in measures}
    grouped = scores.groupby(["measure", "seed"], observed=True)["value"].mean()
    for (measure, seed), value in grouped.items():
        means[str(measure)][int(seed)] = float(value)
    return means
