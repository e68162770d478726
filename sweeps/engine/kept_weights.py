"""The weights that a sweep keeps: those of the seed of each cell that is best on dev, of as many
cells as a quota allows, the best on dev first. Only weights of `training.keep_weights=best` are
ever removed; those of `all` stay.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean

from rank_core.checkpoints.weights import WEIGHTS
from rank_core.models import model_class
from rank_core.models.kept_files import CHUNK_SCORES, SELECTED_BLOCKS
from rank_core.parsing import parsed_json
from rank_core.settings.config import TrialConfig
from sweeps.plan.plan import Trial
from sweeps.store.records import DamagedTrial, Records, State, cell_and_seed, trial_name
from sweeps.systems.order import ranked

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Model:
    """A finished trial that could leave weights."""

    dev: float  # its value of the primary measure
    num_bytes: int | None  # of its weights, removed ones included


class KeptWeights:
    """The weights in a sweep's storage, used by its only driver; `measure` is the measure on
    dev that chooses. The best cell keeps its weights at any size."""

    def __init__(
        self, records: Records, measure: str, quota_bytes: int, *, held: bool = False
    ) -> None:
        self.records, self.measure, self.quota_bytes = records, measure, quota_bytes
        self.held = held  # all stay until test sets have been ranked by them
        self.over_quota: set[str] = set()  # cells whose weights exceeded the quota
        self._models: dict[str, dict[int, _Model]] = {}  # {cell: {seed: its model}}
        self._here: set[str] = set()  # trials with weights in the storage
        self._may_go: dict[str, int] = {}  # {those of them that may be removed: bytes}
        self._bytes = 0  # of these
        self._unwanted: set[str] = set()  # those that could not be removed

    def num_kept(self, trials: Iterable[Trial]) -> int:
        """The number of trials with weights in the storage, of the recorded ones."""
        return sum(trial.name in self._here for trial in trials)

    def take_in(self, states: Iterable[State]) -> None:
        """Records finished trials."""
        for state in states:
            if not state.status.used or self.measure not in state.dev:
                continue
            with suppress(DamagedTrial):
                weights = self.records.result(state.name).files.get(WEIGHTS, {})
                model = _Model(state.dev[self.measure], weights.get("bytes"))
                self._models.setdefault(state.cell, {})[state.seed] = model
                if weights and WEIGHTS in state.files:
                    settings = parsed_json(
                        self.records.read(state.name, "config.json"), f"{state.name}/config.json"
                    )
                    self._here.add(state.name)
                    self._forget(state.name)  # it ran again
                    if settings["training.keep_weights"] == "best":
                        self._may_go[state.name] = weights["bytes"]
                        self._bytes += weights["bytes"]

    def _forget(self, name: str) -> None:
        self._bytes -= self._may_go.pop(name, 0)

    def finished(self, name: str) -> None:
        """Records a trial that has ended now. Of its cell the best seed alone keeps its weights."""
        self.take_in([self.records.state(name)])
        if not self.held:
            cell = cell_and_seed(name)[0]
            seeds = [trial_name(cell, seed) for seed in self._models.get(cell, ())]
            own = [one for one in seeds if one in self._may_go]
            best = self._best((), (), own)
            self._remove({*own} - best.keys())
            self.over_quota -= {cell} if best else set()

    @property
    def exceed(self) -> bool:
        """True if weights exceed the quota, or could not be removed: it is time to `prune`."""
        return not self.held and bool(self._bytes > self.quota_bytes or self._unwanted)

    def prune(self, cells: Iterable[str], eliminated: Collection[str] = ()) -> None:
        """Removes the weights of all but the best seed of each cell, and of the cells beyond the
        quota; none while they are `held`. `cells` are those of the plan, in its order."""
        if self.held:
            return
        best = self._best(cells, eliminated, self._may_go)
        kept = self._within(best)
        self.over_quota -= {cell_and_seed(name)[0] for name in kept}
        self.over_quota |= {cell_and_seed(name)[0] for name in best if name not in kept}
        self._unwanted.clear()
        self._remove(self._may_go.keys() - kept)

    def _remove(self, names: Collection[str]) -> None:
        for name in sorted(names):
            self._unwanted.add(name)
            try:
                self.records.remove(name, [WEIGHTS])
            except Exception as error:  # filesystems raise many kinds; tried again next time
                _log.warning("the weights of %s could not be removed: %s", name, error)
            else:
                self._here.remove(name)
                self._unwanted.remove(name)
                self._forget(name)

    def missing(self, trials: Sequence[Trial]) -> set[str]:
        """The trials whose weights should be kept and are missing: the best one of each cell,
        within the quota."""
        names = [trial.name for trial in trials]
        trained = {trial.name for trial in trials if is_trained(trial.config)}
        cells = dict.fromkeys(cell_and_seed(name)[0] for name in names)
        known = [trial_name(cell, seed) for cell, models in self._models.items() for seed in models]
        kept = self._within(self._best(cells, (), known))
        return {name for name in kept if name not in self._here} & trained

    def _best(
        self, cells: Iterable[str], eliminated: Collection[str], among: Iterable[str]
    ) -> dict[str, _Model]:
        """The best one of these trials of each cell, the first of equals; the best cells first,
        then those that a search eliminated, then those of earlier plans."""
        seeds: dict[str, list[int]] = {}
        for cell, seed in map(cell_and_seed, among):
            seeds.setdefault(cell, []).append(seed)
        means = {cell: fmean(m.dev for m in self._models[cell].values()) for cell in seeds}
        planned = [cell for cell in cells if cell in means]
        stayed = ranked(means, planned, eliminated)
        best = {}
        for cell in dict.fromkeys((*stayed, *ranked(means, planned), *ranked(means, means))):
            own = self._models[cell]
            seed = max(seeds[cell], key=lambda seed: (own[seed].dev, -seed))
            best[trial_name(cell, seed)] = own[seed]
        return best

    def _within(self, models: Mapping[str, _Model]) -> set[str]:
        """The first models within the quota, and always the first. A model with unrecorded weights
        counts as large as the largest."""
        largest = max((model.num_bytes or 0 for model in models.values()), default=0)
        kept: set[str] = set()
        total = 0
        for name, model in models.items():
            total += model.num_bytes or largest
            if kept and total > self.quota_bytes:
                break
            kept.add(name)
        return kept


def lacking(trials: Iterable[Trial], states: Mapping[str, State]) -> dict[str, str]:
    """{finished trial: a file that its settings require and it lacks}, except the weights of a
    cell's best seed. These settings are not part of a trial's name and may have changed since."""
    missing = {}
    for trial in trials:
        settings, state = trial.config.settings(), states[trial.name]
        if not state.status.used:
            continue
        for name, (file, leaves) in LEFT_FOR_OTHERS.items():
            asked = settings[name] in (True, "all") and leaves(trial.config)
            if asked and file not in state.files:
                missing[trial.name] = file
    return missing


def is_trained(config: TrialConfig) -> bool:
    """True if a trial can leave weights: those of one model, not of several folds."""
    return model_class(config.model.name).trains and not config.evaluation.folds


def _selects_blocks(config: TrialConfig) -> bool:
    return model_class(config.model.name).selects_blocks(config.model)


LEFT_FOR_OTHERS: Mapping[str, tuple[str, Callable[[TrialConfig], bool]]] = {
    "training.keep_weights": (WEIGHTS, is_trained),
    "training.keep_run": ("train.run.gz", is_trained),
    "evaluation.keep_chunk_scores": (CHUNK_SCORES, is_trained),
    "evaluation.keep_selected_blocks": (SELECTED_BLOCKS, _selects_blocks),
}
"""{setting that changes a trial's files, but no number: (its file, whether a trial can leave it)}:
an equal trial may lack them."""
