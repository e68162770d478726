"""The plan of a sweep: its cells and trials, and their cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from rank_core.settings.config import TrialConfig
from sweeps.plan.experiment import Experiment
from sweeps.plan.search_options import SearchSettings
from sweeps.plan.search_space import Space
from sweeps.store.records import cell_and_seed, trial_name

if TYPE_CHECKING:  # they import torch, which `status` does not need
    from rank_core.chunking.inputs import Inputs
    from sweeps.plan.trial_cost import ChunkStatistics

PlanLine: TypeAlias = tuple[str, str]
"""What a line of a plan is about, in at most ten letters, and its text; "" where it goes on with
what the line before it is about."""


@dataclass(frozen=True)
class PlannedCell:
    """A cell: a configuration that will run with every seed."""

    cell: str
    label: str
    config: TrialConfig  # without a seed
    inputs: "Inputs"
    chunks: "ChunkStatistics"
    cost: float  # of one trial, see `trial_cost`
    deterministic: bool  # the same run for every seed: only the first runs
    meaning: str = ""  # equal for cells that differ in nothing that their trials read
    left_out: tuple[str, ...] = ()  # settings of all cells that its model never reads


@dataclass(frozen=True)
class Removed:
    """An excluded point of the grid, and the reason."""

    label: str
    reason: str


@dataclass(frozen=True)
class Trial:
    """A cell with a seed."""

    cell: PlannedCell
    seed: int
    competes: bool = False  # ASHA may stop it

    @property
    def name(self) -> str:
        """The trial's folder under `trials/`."""
        return trial_name(self.cell.cell, self.seed)

    @property
    def cost(self) -> float:
        """The encoder tokens of its cell; at least 1, for systems that read none."""
        return max(self.cell.cost, 1.0)

    @property
    def config(self) -> TrialConfig:
        """The whole configuration."""
        return self.cell.config.override({"seed": self.seed})


@dataclass(frozen=True)
class Plan:
    """All trials of a sweep. The first cell is the baseline."""

    experiment: Experiment
    base: TrialConfig
    inputs: "Inputs"
    cells: tuple[PlannedCell, ...]
    removed: tuple[Removed, ...]
    seeds: tuple[int, ...]
    space: Space
    search: SearchSettings
    reduced: str = ""  # the size of a smoke test
    drawn: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """{model: its parts that the weights to start from lack}."""
    trained: Mapping[str, str] = field(default_factory=dict)
    """{cell on a test set: the trained cell whose weights it has}."""
    only: frozenset[str] | None = None  # the trials that can run; None: all

    def trials(self) -> Iterator[Trial]:
        """The trials seed by seed: a sweep that ends early has about as many seeds of every
        cell."""
        for seed in self.seeds:
            for cell in self.cells:
                if seed == self.seeds[0] or not cell.deterministic:
                    trial = Trial(cell, seed)
                    if self.only is None or trial.name in self.only:
                        yield trial

    def trained_by(self, trial: str) -> str:
        """The trained trial whose weights a trial on a test set has."""
        cell, seed = cell_and_seed(trial)
        return trial_name(self.trained[cell], seed)

    @property
    def num_trials(self) -> int:
        """Cells times seeds, less repetitions of deterministic cells."""
        return sum(1 for _ in self.trials())

    @property
    def max_trials(self) -> int:
        """The number of trials; of a search that proposes configurations, its limit."""
        if not self.search.kind.proposes:
            return self.num_trials
        of_baseline = sum(trial.cell is self.cells[0] for trial in self.trials())
        return of_baseline + (self.search.num_configs or 0) * len(self.seeds)
