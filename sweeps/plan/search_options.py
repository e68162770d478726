"""The searches by name, and their settings. A new search is a file in `sweeps/search` and a line in
`SEARCHES`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from rank_core.errors import BadInput, unknown
from sweeps.plan.objectives import parse_amounts, parse_objectives
from sweeps.plan.samplers import check_sampler, is_sampler


@dataclass(frozen=True)
class SearchKind:
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

    @property
    def eliminates(self) -> bool:
        """True if it eliminates configurations by the measure on dev alone."""
        return self.stops or self.fewest_seeds > 0


SEARCHES: dict[str, SearchKind] = {
    "grid": SearchKind("sweeps.search.search:Listed", drawn="never"),
    "random": SearchKind("sweeps.search.search:Listed", drawn="must"),
    "tpe": SearchKind("sweeps.search.proposing:ProposingSearch", drawn="must", proposes=True),
    "gp": SearchKind("sweeps.search.proposing:ProposingSearch", drawn="must", proposes=True),
    "race": SearchKind("sweeps.search.race:RaceSearch", takes=("delta",), fewest_configs=2,
                       fewest_seeds=3),
    "asha": SearchKind("sweeps.search.asha:AshaSearch", takes=("eta", "min_epochs"), stops=True,
                       fewest_configs=2),
}  # fmt: skip
SAMPLED = SEARCHES["tpe"]
"""What a sampler of Optuna that is named by its text is."""
AT_ONCE = 4
"""Proposed configurations that run at a time, if that fills the slots: a proposal ignores running
ones."""


class SearchOutcome(NamedTuple):
    """What a search knows of a configuration: the values of its objectives, means over seeds, and
    how far each limit is exceeded, as a share of it (at most 0: within)."""

    values: tuple[float, ...]
    excess: tuple[float, ...] = ()


class Finished(NamedTuple):
    """A configuration that another sweep has finished."""

    point: Mapping[str, Any]
    outcome: SearchOutcome


@dataclass(frozen=True)
class SearchSettings:
    """`num_configs` configurations run beside the baseline; None: the whole grid. `seed` draws
    configurations and has no effect within trials. `delta` is the difference on dev that a race
    ignores. One of `eta` configurations passes each rung of ASHA, the first after `min_epochs`.
    `at_once` proposals run at a time. `objectives` are the measure and the costs that are sought,
    none for the measure alone; a system may cost `at_most` so much, and a unit of cost counts as
    much as `cost_weights` of the measure in the choice. `start_from` names sweeps whose finished
    configurations, `started`, begin the search."""

    name: str = "grid"
    num_configs: int | None = None
    seed: int = 1
    delta: float = 0.0
    eta: int = 3  # as in the paper
    min_epochs: int = 1
    at_once: int = AT_ONCE
    objectives: tuple[str, ...] = ()
    at_most: Mapping[str, float] = field(default_factory=dict)
    cost_weights: Mapping[str, float] = field(default_factory=dict)
    start_from: tuple[str, ...] = ()
    started: "tuple[Finished, ...]" = ()

    @property
    def kind(self) -> SearchKind:
        """The properties of the search."""
        return search_kind(self.name)

    def filling(self, slots: int, num_seeds: int) -> "SearchSettings":
        """The settings with as many proposals at a time as fill the slots, and one more while the
        last seed of a proposal runs."""
        return replace(self, at_once=max(AT_ONCE, math.ceil(slots / num_seeds) + 1))


def search_kind(name: str) -> SearchKind:
    """The properties of the search of a name, or of the text of a sampler."""
    return SAMPLED if is_sampler(name) else SEARCHES[name]


def search_settings(given: Mapping[str, Any], *, ranges: bool, num_seeds: int) -> SearchSettings:
    """The settings of a command line, None where not given. Raises `BadInput` where they contradict
    each other."""
    own = {key: value for key, value in given.items() if value is not None}
    name = own.get("name", "grid")
    if not is_sampler(name) and name not in SEARCHES:
        raise unknown("search", name, SEARCHES)
    kind, number = search_kind(name), own.get("num_configs")
    drawing = ", ".join(other for other, row in SEARCHES.items() if row.drawn != "never")
    common = ("name", "num_configs", "seed", *_PARSED)
    if foreign := [key for key in own if key not in (*common, *kind.takes)]:
        owner = next(other for other, row in SEARCHES.items() if foreign[0] in row.takes)
        flag = f"--{owner}-{foreign[0].replace('_', '-')}"
        raise BadInput(f"{flag} needs --search {owner}, got --search {name}")
    if kind.drawn == "must" and number is None:
        raise BadInput(f"--search {name} needs --num-configs N, the number of configurations")
    if number is not None and number < kind.fewest_configs:
        raise BadInput(f"--num-configs >= {kind.fewest_configs} must hold, got {number}")
    if number is not None and kind.drawn == "never":
        raise BadInput(f"--search {name} runs the whole grid; --num-configs needs {drawing}")
    if number is None and ("seed" in own or ranges):
        what = "--search-seed" if "seed" in own else "a range lo..hi"
        raise BadInput(f"{what} needs --num-configs N and --search with one of {drawing}")
    if num_seeds < kind.fewest_seeds:
        raise BadInput(
            f"--search {name} needs {kind.fewest_seeds} seeds or more, because it analyses dev "
            f"before the last seed; got {num_seeds}"
        )
    own |= {key: parse(own[key]) for key, parse in _PARSED.items() if key in own}
    if is_sampler(name):
        check_sampler(name, len(own.get("objectives", ())) or 1)
    _check_goals(name, own)
    return SearchSettings(**own)


_PARSED: Mapping[str, Callable[[str], Any]] = {
    "objectives": parse_objectives,
    "at_most": partial(parse_amounts, "--at-most"),
    "cost_weights": partial(parse_amounts, "--cost-weight"),
    "start_from": lambda text: tuple(filter(None, map(str.strip, text.split(",")))),
}
"""{key of the table `search`: how its text is read}, of any search."""


def _check_goals(name: str, own: Mapping[str, Any]) -> None:
    """Refuses goals that a search cannot follow."""
    kind = search_kind(name)
    for key, flag in (("objectives", "--objective"), ("at_most", "--at-most"),
                      ("cost_weights", "--cost-weight")):  # fmt: skip
        if key in own and kind.eliminates:
            others = ", ".join(other for other, row in SEARCHES.items() if not row.eliminates)
            raise BadInput(
                f"--search {name} eliminates configurations by the measure on dev alone; {flag} "
                f"needs one of {others}"
            )
    if "start_from" in own and not kind.proposes:
        others = ", ".join(other for other, row in SEARCHES.items() if row.proposes)
        raise BadInput(
            f"--search-from needs a search that proposes configurations, {others} or a sampler; "
            f"got --search {name}"
        )
    if "start_from" in own and not own["start_from"]:
        raise BadInput("--search-from names folders of finished sweeps, got none")
