"""The searches by name, and their settings. A new search is a file in `sweeps/search` and a line in
`SEARCHES`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rank_core.errors import BadInput, unknown


@dataclass(frozen=True)
class Kind:
    """The properties of a search that a plan needs before it imports the search. `path` is
    "module:Class", a `Search`, imported on use because some need Optuna. `drawn` is "never", "may"
    or "must" for `--num-configs`, which draws from the grid. `takes` are its own settings."""

    path: str
    drawn: str = "may"
    takes: tuple[str, ...] = ()
    proposes: bool = False  # new configurations follow from finished trials
    stops: bool = False  # trials that need not reach their end; the Ray engine stops them
    fewest_configs: int = 1
    fewest_seeds: int = 0  # of a search with interim analyses on dev


SEARCHES: dict[str, Kind] = {
    "grid": Kind("sweeps.search.search:Listed", drawn="never"),
    "random": Kind("sweeps.search.search:Listed", drawn="must"),
    "tpe": Kind("sweeps.search.proposing:ProposingSearch", drawn="must", proposes=True),
    "gp": Kind("sweeps.search.proposing:ProposingSearch", drawn="must", proposes=True),
    "race": Kind(
        "sweeps.search.race:RaceSearch", takes=("delta",), fewest_configs=2, fewest_seeds=3
    ),
    "asha": Kind(
        "sweeps.search.asha:AshaSearch",
        takes=("eta", "min_epochs"),
        stops=True,
        fewest_configs=2,
    ),
}
MOST_CONFIGS = 100_000
ETA = 3
"""One in so many configurations passes a rung of ASHA, as in the paper."""
AT_ONCE = 4
"""Proposed configurations that run at a time, if that fills the slots: a proposal ignores running
ones."""


@dataclass(frozen=True)
class SearchSettings:
    """`num_configs` configurations run beside the baseline; None: the whole grid. `seed` draws
    configurations and has no effect within trials. `delta` is the difference on dev that a race
    ignores. One of `eta` configurations passes each rung of ASHA, the first after `min_epochs`.
    `at_once` proposals run at a time."""

    name: str = "grid"
    num_configs: int | None = None
    seed: int = 1
    delta: float = 0.0
    eta: int = ETA
    min_epochs: int = 1
    at_once: int = AT_ONCE

    @property
    def kind(self) -> Kind:
        """The entry of `SEARCHES`."""
        return SEARCHES[self.name]

    def filling(self, slots: int, num_seeds: int) -> "SearchSettings":
        """The settings with as many proposals at a time as fill the slots, and one more while the
        last seed of a proposal runs."""
        return replace(self, at_once=max(AT_ONCE, math.ceil(slots / num_seeds) + 1))


def search_settings(
    name: str | None,
    num_configs: int | None,
    seed: int | None,
    delta: float | None,
    *,
    eta: int | None = None,
    min_epochs: int | None = None,
    ranges: bool,
    num_seeds: int,
) -> SearchSettings:
    """The settings of a command line, None where not given. Raises `BadInput` where they contradict
    each other."""
    name = name or "grid"
    if name not in SEARCHES:
        raise unknown("search", name, SEARCHES)
    kind = SEARCHES[name]
    _check_own(name, {"delta": delta, "eta": eta, "min_epochs": min_epochs})
    settings = SearchSettings(
        name,
        num_configs,
        1 if seed is None else seed,
        delta or 0.0,
        ETA if eta is None else eta,
        1 if min_epochs is None else min_epochs,
    )
    drawing = ", ".join(other for other, row in SEARCHES.items() if row.drawn != "never")
    if kind.drawn == "must" and num_configs is None:
        raise BadInput(f"--search {name} needs --num-configs N, the number of configurations")
    if num_configs is not None and num_configs < kind.fewest_configs:
        raise BadInput(f"--num-configs >= {kind.fewest_configs} must hold, got {num_configs}")
    if num_configs is not None and num_configs > MOST_CONFIGS:
        raise BadInput(f"--num-configs <= {MOST_CONFIGS:,} must hold, got {num_configs}")
    if num_configs is not None and kind.drawn == "never":
        raise BadInput(f"--search {name} runs the whole grid; --num-configs needs {drawing}")
    if seed is not None and num_configs is None:
        raise BadInput("--search-seed draws configurations and needs --num-configs")
    if ranges and num_configs is None:
        raise BadInput(f"a range lo..hi needs --num-configs N and --search with one of {drawing}")
    if num_seeds < kind.fewest_seeds:
        raise BadInput(
            f"--search {name} needs {kind.fewest_seeds} seeds or more, because it analyses dev "
            f"before the last seed; got {num_seeds}"
        )
    return settings


def _check_own(name: str, given: Mapping[str, float | None]) -> None:
    """Refuses a setting of another search."""
    for setting, value in given.items():
        if value is not None and setting not in SEARCHES[name].takes:
            owners = ", ".join(other for other, row in SEARCHES.items() if setting in row.takes)
            flag = f"--{owners}-{setting.replace('_', '-')}"
            raise BadInput(f"{flag} needs --search {owners}, got {value:g} with {name}")
