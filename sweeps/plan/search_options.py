"""The search that the user asked for, by the names that the field knows."""

from dataclasses import dataclass

from rank_core.errors import BadInput, unknown

SEARCHES = {
    "grid": "every configuration with every seed",
    "random": "N configurations drawn from the grid, without replacement",
    "tpe": "N configurations proposed by Optuna's tree-structured Parzen estimator",
    "gp": "N configurations proposed by Optuna's Gaussian process",
    "race": "every configuration starts; it leaves once it is credibly worse on dev",
    "halving": "successive halving: the best of each rung of epochs on dev go on",
}
PROPOSING = ("tpe", "gp")
"""Searches that choose a configuration by what earlier ones have reached."""

FEWEST_SEEDS_OF_A_RACE = 3
"""A race looks after 2 seeds and more, and before the last."""
ETA = 3
"""Of so many configurations at a rung of halving one goes on, as in the papers."""


@dataclass(frozen=True)
class SearchSettings:
    """`num_configs` is how many configurations beside the baseline; None: all of the grid. `seed`
    draws configurations, never what a trial does with its own seed. `delta` is the difference on
    dev that does not matter to a race. One of `eta` configurations goes on from each rung of
    halving, the first of which has `min_epochs` or more."""

    name: str = "grid"
    num_configs: int | None = None
    seed: int = 1
    delta: float = 0.0
    eta: int = ETA
    min_epochs: int = 1

    @property
    def proposes(self) -> bool:
        """Whether the configurations are known only as trials end."""
        return self.name in PROPOSING

    @property
    def fewest(self) -> int:
        """So many configurations at least make a search."""
        return {"race": 2, "halving": self.eta}.get(self.name, 1)


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
    _check_halving(name, eta, min_epochs)
    found = SearchSettings(
        name,
        num_configs,
        1 if seed is None else seed,
        delta or 0.0,
        ETA if eta is None else eta,
        1 if min_epochs is None else min_epochs,
    )
    draws = name in ("random", *PROPOSING)
    if draws and num_configs is None:
        raise BadInput(f"--search {name} needs --num-configs N, how many configurations to try")
    if num_configs is not None and num_configs < found.fewest:
        raise BadInput(f"--num-configs >= {found.fewest} must hold, got {num_configs}")
    if num_configs is not None and name == "grid":
        raise BadInput(
            "--search grid runs all of the grid; --num-configs is of random, tpe, gp, race, halving"
        )
    if seed is not None and num_configs is None and name != "halving":
        raise BadInput("--search-seed draws configurations: it stands beside --num-configs")
    if ranges and num_configs is None:
        raise BadInput(
            "a range lo..hi has no end of values: it needs --num-configs N and --search random, "
            "tpe, gp, race or halving"
        )
    if delta is not None and (name != "race" or not 0 <= delta < float("inf")):
        raise BadInput(f"--race-delta >= 0 is of --search race, got {delta:g} with {name}")
    if name == "race" and num_seeds < FEWEST_SEEDS_OF_A_RACE:
        raise BadInput(
            f"--search race needs {FEWEST_SEEDS_OF_A_RACE} seeds or more, because it looks after 2 "
            f"and before the last; got {num_seeds}"
        )
    return found


def _check_halving(name: str, eta: int | None, min_epochs: int | None) -> None:
    for flag, value, least in (("--halving-eta", eta, 2), ("--halving-min-epochs", min_epochs, 1)):
        if value is not None and (name != "halving" or value < least):
            raise BadInput(f"{flag} >= {least} is of --search halving, got {value} with {name}")
