"""The weights that a sweep keeps: those of the seed of each cell that is best on dev, of as many
cells as a quota allows, the best on dev first. Only weights of `training.keep_weights=best` are
ever removed; those of `all` stay.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from rank_core.checkpoints.weights import WEIGHTS
from sweeps.plan.plan import Trial
from sweeps.store.checksums import DamagedTrial, read_checked, read_result
from sweeps.store.trial_store import Store, is_trained

_log = logging.getLogger("sweeps.storage")


@dataclass(frozen=True)
class _Model:
    """A finished trial that could leave weights."""

    dev: float  # its value of the primary measure
    num_bytes: int | None  # of its weights, removed ones included


class KeptWeights:
    """The weights in a sweep's storage, used by its only driver; `measure` is the measure on
    dev that chooses. The best cell keeps its weights at any size."""

    def __init__(self, store: Store, measure: str, quota_bytes: int) -> None:
        self.store, self.measure, self.quota_bytes = store, measure, quota_bytes
        self.over_quota: set[str] = set()  # cells whose weights exceeded the quota
        self._models: dict[str, dict[int, _Model]] = {}  # {cell: {seed: its model}}
        self._here: dict[str, bool] = {}  # {trial with weights in the storage: may be removed}

    def num_kept(self, trials: Iterable[Trial]) -> int:
        """The number of trials with weights in the storage, of the recorded ones."""
        return sum(trial.name in self._here for trial in trials)

    def take_in(self, names: Iterable[str]) -> None:
        """Records finished trials, whose results are in the store's folder."""
        here = self.store.with_weights()
        for name in names:
            self._add(name, name in here)

    def finished(self, name: str) -> None:
        """Record a trial that has ended now, and remove weights that need not be kept."""
        self._add(name, here=True)
        self.prune()

    def prune(self) -> None:
        """Removes the weights of all but the best seed of each cell, and of the cells beyond the
        quota."""
        for name in sorted(self._superfluous()):
            try:
                self.store.remove_weights(name)
            except Exception as error:  # filesystems raise many kinds; tried again next time
                _log.warning("the weights of %s could not be removed: %s", name, error)
            else:
                del self._here[name]

    def missing(self, trials: Iterable[Trial]) -> set[str]:
        """The trials whose weights should be kept and are missing: the best one of each cell,
        within the quota."""
        trained = {trial.name for trial in trials if is_trained(trial.config)}
        best: dict[str, _Model] = {}
        for cell in self._by_dev():
            seeds = self._models[cell]
            seed = max(seeds, key=lambda seed: (seeds[seed].dev, -seed))
            best[f"{cell}-seed{seed}"] = seeds[seed]
        kept = _within(best, self.quota_bytes)
        return {name for name in kept if name not in self._here} & trained

    def _superfluous(self) -> set[str]:
        best: dict[str, _Model] = {}
        for cell in self._by_dev():
            here = {
                seed: model
                for seed, model in self._models[cell].items()
                if self._here.get(f"{cell}-seed{seed}")
            }
            if here:
                seed = max(here, key=lambda seed: (here[seed].dev, -seed))
                best[f"{cell}-seed{seed}"] = here[seed]
        kept = _within(best, self.quota_bytes)
        self.over_quota -= {name.rpartition("-seed")[0] for name in kept}
        self.over_quota |= {name.rpartition("-seed")[0] for name in best if name not in kept}
        return {name for name, may_go in self._here.items() if may_go} - kept

    def _by_dev(self) -> list[str]:
        """The cells, the highest mean over seeds first."""

        def mean(cell: str) -> float:
            models = self._models[cell].values()
            return sum(model.dev for model in models) / len(models)

        return sorted(self._models, key=lambda cell: (-mean(cell), cell))

    def _add(self, name: str, here: bool) -> None:
        folder = self.store.folder / "runs" / name
        cell, _, seed = name.rpartition("-seed")
        with suppress(DamagedTrial):
            result = read_result(folder)
            dev = result.facts.get("dev", {})
            if self.measure not in dev:
                return
            weights: Mapping[str, int] = result.files.get(WEIGHTS, {})
            model = _Model(dev[self.measure], weights.get("bytes"))
            self._models.setdefault(cell, {})[int(seed)] = model
            if here and weights:
                settings = json.loads(read_checked(folder, "config.json"))
                self._here[name] = settings["training.keep_weights"] == "best"


def _within(models: Mapping[str, _Model], quota_bytes: int) -> set[str]:
    """The first models within the quota, and always the first. A model with unrecorded weights
    counts as large as the largest."""
    largest = max((model.num_bytes or 0 for model in models.values()), default=0)
    kept: set[str] = set()
    total = 0
    for name, model in models.items():
        total += model.num_bytes or largest
        if kept and total > quota_bytes:
            break
        kept.add(name)
    return kept
