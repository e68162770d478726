"""Every search by name, and what the user asked of it. Adding one: a file in `sweeps/search` and a
line in `SEARCHES`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rank_core.errors import BadInput, unknown


@dataclass(frozen=True)
class Kind:
    """What a plan must know of a search before its class is loaded.

    `path` is "module:Class", a `Search`, imported on use because some bring in Optuna. `drawn` says
    of `--num-configs`, which draws from the grid: "never", "may" or "must". `takes` are the
    settings that are its own."""

    path: str
    drawn: str = "may"
    takes: tuple[str, ...] = ()
    proposes: bool = False  # its configurations are known only as trials end
    orders: bool = False  # `--search-seed` says something without `--num-configs` too
    pauses: bool = False  # its trials pause between epochs, and may never go on
    fewest_configs: int = 1
    fewest_seeds: int = 0  # of a search that looks at dev before the last seed


SEARCHES: dict[str, Kind] = {
    "grid": Kind("sweeps.search.search:Listed", drawn="never"),
    "random": Kind("sweeps.search.search:Listed", drawn="must"),
    "tpe": Kind("sweeps.search.proposing:ProposingSearch", drawn="must", proposes=True),
    "gp": Kind("sweeps.search.proposing:ProposingSearch", drawn="must", proposes=True),
    "race": Kind(
        "sweeps.search.race:RaceSearch", takes=("delta",), fewest_configs=2, fewest_seeds=3
    ),
    "halving": Kind(
        "sweeps.search.halving:HalvingSearch",
        takes=("eta", "min_epochs"),
        orders=True,
        pauses=True,
    ),
}
OWN = {
    "delta": ("--race-delta", 0),
    "eta": ("--halving-eta", 2),
    "min_epochs": ("--halving-min-epochs", 1),
}
"""{setting that not every search takes: its flag and least value}"""

MOST_CONFIGS = 100_000
ETA = 3
"""Of so many configurations at a rung of halving one goes on, as in the papers."""
AT_ONCE = 4
"""Proposed configurations under way at a time, where these fill the slots: a proposal does not know
what the three before it reach."""


@dataclass(frozen=True)
class SearchSettings:
    """`num_configs` is how many configurations beside the baseline; None: all of the grid. `seed`
    draws configurations, never what a trial does with its own seed. `delta` is the difference on
    dev that does not matter to a race. One of `eta` configurations goes on from each rung of
    halving, the first of which has `min_epochs` or more. `at_once` proposals are under way at a
    time."""

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
        """With as many proposals under way as fill the slots, and one more for those that wait for
        another's last seed."""
        return replace(self, at_once=max(AT_ONCE, math.ceil(slots / num_seeds) + 1))

    @property
    def fewest(self) -> int:
        """So many configurations at least make a search."""
        return max(self.kind.fewest_configs, self.eta if "eta" in self.kind.takes else 1)


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
    """The settings of a command line, where None means not given; `BadInput` where they contradict
    each other."""
    name = name or "grid"
    if name == "asha":
        raise BadInput(
            "--search asha is called --search halving: successive halving in a fixed order, with "
            "--halving-eta and --halving-min-epochs"
        )
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
        raise BadInput(f"--search {name} needs --num-configs N, how many configurations to try")
    if num_configs is not None and num_configs < settings.fewest:
        raise BadInput(f"--num-configs >= {settings.fewest} must hold, got {num_configs}")
    if num_configs is not None and num_configs > MOST_CONFIGS:
        raise BadInput(f"--num-configs <= {MOST_CONFIGS:,} must hold, got {num_configs}")
    if num_configs is not None and kind.drawn == "never":
        raise BadInput(f"--search {name} runs all of the grid; --num-configs is of {drawing}")
    if seed is not None and num_configs is None and not kind.orders:
        raise BadInput("--search-seed draws configurations: it stands beside --num-configs")
    if ranges and num_configs is None:
        raise BadInput(
            "a range lo..hi has no end of values: it needs --num-configs N and --search with one "
            f"of {drawing}"
        )
    if num_seeds < kind.fewest_seeds:
        raise BadInput(
            f"--search {name} needs {kind.fewest_seeds} seeds or more, because it looks at dev "
            f"before the last; got {num_seeds}"
        )
    return settings


def _check_own(name: str, given: Mapping[str, float | None]) -> None:
    for setting, (flag, least) in OWN.items():
        value = given[setting]
        if value is None or (setting in SEARCHES[name].takes and least <= value < float("inf")):
            continue
        owners = ", ".join(other for other, row in SEARCHES.items() if setting in row.takes)
        raise BadInput(f"{flag} >= {least} is of --search {owners}, got {value:g} with {name}")
