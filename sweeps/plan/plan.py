"""What will run: cells, trials and what they cost, as the other rooms know them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rank_core.settings.config import TrialConfig
from sweeps.plan.experiment import Experiment
from sweeps.plan.search_options import SearchSettings
from sweeps.plan.search_space import Space

if TYPE_CHECKING:  # they bring in torch, which who looks at a sweep does not need
    from rank_core.chunking.inputs import Inputs
    from sweeps.plan.trial_cost import ChunkStatistics


@dataclass(frozen=True)
class PlannedCell:
    """A configuration that will run with every seed."""

    cell: str
    label: str
    config: TrialConfig  # its seed means nothing
    inputs: "Inputs"
    chunks: "ChunkStatistics"
    cost: float  # of one trial, see `trial_cost`
    deterministic: bool  # every seed would give the same run: it runs with the first one only


@dataclass(frozen=True)
class Removed:
    """A point of the grid that is not run, and why."""

    label: str
    reason: str


@dataclass(frozen=True)
class Trial:
    """A cell with a seed; all of it, or its first epochs."""

    cell: PlannedCell
    seed: int
    swept: tuple[str, ...]
    epochs: int = 0  # after which it pauses; 0: it runs to its end

    @property
    def name(self) -> str:
        """The trial's folder under `runs/`."""
        return f"{self.cell.cell}-seed{self.seed}"

    @property
    def job(self) -> str:
        """The name, and where it pauses."""
        return f"{self.name}@{self.epochs}" if self.epochs else self.name

    @property
    def share(self) -> float:
        """How much of the whole trial it is."""
        return self.epochs / self.cell.config.training.num_epochs if self.epochs else 1.0

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
    reduced: str = ""  # what a smoke test leaves of it

    def trials(self) -> Iterator[Trial]:
        """Seed by seed: however early a sweep ends, its cells have (almost) equally many seeds."""
        for seed in self.seeds:
            for cell in self.cells:
                if seed == self.seeds[0] or not cell.deterministic:
                    yield Trial(cell, seed, self.experiment.swept)

    @property
    def num_trials(self) -> int:
        """Cells times seeds, less what would be the same run again."""
        return sum(1 for _ in self.trials())

    @property
    def max_trials(self) -> int:
        """The same where every configuration is known; else what the search can come to."""
        if not self.search.kind.proposes:
            return self.num_trials
        proposed = self.search.num_configs or 0
        return sum(1 for trial in self.trials() if trial.cell is self.cells[0]) + proposed * len(
            self.seeds
        )
