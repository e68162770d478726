"""A confirmation: the choice of a sweep and its baseline, frozen, trained again with fresh seeds.

A system is chosen together with its runs, so their test values are optimistic even though only dev
was used. New runs of the same two cells have no such selection bias.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import pandas as pd

from rank_core.data.load import load_collection
from rank_core.errors import BadInput
from rank_core.parsing import parsed_json
from rank_core.settings.config import TrialConfig
from sweeps.plan.experiment import Experiment, Grid
from sweeps.plan.next_command import our_command
from sweeps.plan.options import Options
from sweeps.plan.plan import Plan
from sweeps.plan.search_options import SEARCHES
from sweeps.store.records import Records, trial_name
from sweeps.store.sweep_file import described, local_copy, sweep_on, sweeps_in
from sweeps.store.trial_status import TrialStatus
from sweeps.systems.choice import choose as choice_of
from sweeps.systems.choice import dev_means
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import Sweep, load_sweep


@dataclass(frozen=True)
class Frozen:
    """A cell of the first sweep with every setting but the seed."""

    cell: str
    label: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Shortlist:
    """The choice that a confirmation tests: `confirms` of its `sweep.json`, which is written before
    a launch."""

    sweep: str
    primary: str
    winner: Frozen
    baseline: Frozen
    dev_mean: float  # of the choice, over its seeds in the first sweep
    num_candidates: int
    naive_gain: float  # on the reported split, from the runs of the choice
    used_seeds: tuple[int, ...]  # by any trial of the first sweep
    fresh_seeds: tuple[int, ...]  # of the command that froze it
    system: str = ""  # the row of the choice: the winner, or it with the first stage

    @classmethod
    def of(cls, confirms: Mapping[str, Any]) -> "Shortlist":
        """The choice as it is stored."""
        stored = {item.name: confirms[item.name] for item in fields(cls) if item.name in confirms}
        stored |= {name: Frozen(**stored[name]) for name in ("winner", "baseline")}
        stored |= {name: tuple(stored[name]) for name in ("used_seeds", "fresh_seeds")}
        return cls(**stored)

    @property
    def base(self) -> TrialConfig:
        """The settings shared by both cells; each then sets its own."""
        return TrialConfig().override(self.winner.settings)

    def seeds(self, options: Options) -> tuple[int, ...]:
        """The seeds of a command, by default those of the frozen shortlist."""
        first = max(self.used_seeds) + 1
        if used := {*options.seeds} & {*self.used_seeds}:
            raise BadInput(
                f"the seeds of a confirmation must not have been used in {self.sweep}, got "
                f"{_joined(sorted(used))}; used: {_joined(self.used_seeds)}; free from {first} on"
            )
        if options.seeds or options.num_seeds is None:
            return options.seeds or self.fresh_seeds
        return tuple(range(first, first + options.num_seeds))

    def experiment(self, first: Experiment) -> Experiment:
        """The sweep over the frozen pair, otherwise as the first sweep."""
        grid = Grid(points=(self.winner.settings,), baseline=self.baseline.settings)
        return replace(
            first,
            name=f"{self.sweep}-confirm",
            question=(
                f"Does {self.winner.label}, chosen on dev in {self.sweep}, differ from "
                f"{self.baseline.label} with fresh seeds?"
            ),
            grid=lambda base, backbone: grid,
            confirms=asdict(self) | {"cell": self.winner.cell, "label": self.winner.label},
        )

    def check(self, plan: Plan) -> None:
        """Refuse a plan of other cells: the contents of the inputs are part of a cell's name."""
        frozen = [self.baseline.cell, self.winner.cell]
        planned = [cell.cell for cell in plan.cells]
        if planned != frozen:
            raise BadInput(
                f"a confirmation trains the frozen cells {', '.join(frozen)}, got "
                f"{', '.join(planned)}: collection, backbone or program changed since {self.sweep}"
            )


def confirmation_records(
    experiment: Records, options: Options, own: str | None = None
) -> tuple[Records, Records]:
    """The finished sweep (on the command's collection or the sweep's `own`, else on the only one)
    and its confirmation."""
    first, name = experiment, options.collection or own
    if name:
        first = sweep_on(experiment, load_collection(name))
    elif collections := sweeps_in(experiment):
        if len(collections) > 1:
            raise BadInput(
                f"--confirm needs --collection where there are several, found in "
                f"{experiment.uri}: {', '.join(collections)}"
            )
        first = Records(experiment.storage, f"{experiment.sweep}/{collections[0]}")
    name = first.sweep.removeprefix(experiment.sweep)
    return first, Records(experiment.storage, f"{experiment.sweep}-confirm{name}")


def find_shortlist(first: Records, confirmation: Records, options: Options) -> Shortlist:
    """The choice of a confirmation that has begun, or a new one from the finished sweep."""
    if begun := described(confirmation):
        return Shortlist.of(begun.confirms)
    chosen = choose(first)
    return replace(chosen, fresh_seeds=chosen.seeds(options))


def choose(records: Records) -> Shortlist:
    """The cell of the sweep's choice, and the baseline. Raises `BadInput` where the choice is the
    baseline or the first stage."""
    file = described(records)
    if file is None:
        raise BadInput(f"--confirm needs a finished sweep in {records.uri}")
    copy = local_copy(records, file)
    sweep = load_sweep(copy.folder)
    _check_finished(sweep)
    sweep, dev = with_interpolated(sweep), dev_means(sweep)
    choice = choice_of(sweep)
    candidates = [c.cell for c in sweep.cells if c.cell in dev and c.cell != sweep.baseline]
    if not candidates or choice is None:
        raise BadInput(
            f"a confirmation needs a finished cell besides the baseline, with {sweep.primary} on "
            f"dev; {records.uri} has none"
        )
    if choice.cell in ("", sweep.baseline):
        export = our_command("export", records.uri, "--to", "model")
        saves = f". `{export}` saves it" if choice.cell else ""
        what = "the baseline" if choice.cell else "the first stage"
        raise BadInput(
            f"the choice is {what}; nothing to confirm: {choice.label} was chosen on dev, with "
            f"{sweep.primary} {choice.mean:.3f}{saves}"
        )
    # The reported split is read only now, after the choice.
    chosen = sweep.scores[sweep.scores["measure"] == sweep.primary]
    mean = _means(chosen)
    # Of all trials, also those whose plans `sweep.json` no longer describes.
    launched = [s for s in copy.states(file.trials).values() if s.num_attempts]
    used = {*sweep.about.seeds, *(state.seed for state in launched)}
    # With a budget the report may have fewer seeds than the search was to run.
    number = max(len(sweep.about.seeds), sweep.about.search.get("num_seeds", 0))
    return Shortlist(
        sweep=sweep.about.sweep,
        primary=sweep.primary,
        winner=_frozen(copy, sweep, choice.cell),
        baseline=_frozen(copy, sweep, sweep.baseline),
        dev_mean=choice.mean,
        num_candidates=max(choice.num_candidates, len(sweep.about.search.get("standings", ()))),
        naive_gain=float(mean[choice.cell] - mean[sweep.baseline]),
        used_seeds=tuple(sorted(used)),
        fresh_seeds=tuple(range(max(used) + 1, max(used) + 1 + number)),
        system=choice.system,
    )


def _check_finished(sweep: Sweep) -> None:
    """Every seed of the baseline must have ended, at least one with scores."""
    if {cell.cell for cell in sweep.cells} <= {*sweep.deterministic}:
        raise BadInput(
            f"--confirm runs the choice with fresh seeds, and every system of {sweep.about.sweep} "
            "is deterministic: it would give the same runs. Confirm it on new queries"
        )
    trials = sweep.trials[sweep.trials["cell"] == sweep.baseline]
    status = dict(zip(trials["seed"], map(TrialStatus, trials["status"]), strict=True))
    open_seeds = [s for s in sweep.about.seeds if status.get(s, TrialStatus.PLANNED).waits]
    if open_seeds or not any(status.used for status in status.values()):
        state = f"unfinished seeds {_joined(open_seeds)}" if open_seeds else "no seed with scores"
        raise BadInput(
            f"--confirm needs a finished baseline in {sweep.about.sweep}; "
            f"{sweep.label(sweep.baseline)} has {state}"
        )
    search = str(sweep.about.search.get("name"))
    if search in SEARCHES and SEARCHES[search].stops and not sweep.about.search["over"]:
        raise BadInput(
            f"--confirm needs a {search} that has ended; resume {sweep.about.sweep} first"
        )


def _frozen(records: Records, sweep: Sweep, cell: str) -> Frozen:
    """A cell with the settings of its first trial with scores."""
    name = trial_name(cell, sweep.used.loc[sweep.used["cell"] == cell, "seed"].iloc[0])
    settings = parsed_json(records.read(name, "config.json"), f"{name}/config.json")
    # A confirmation keeps its winner's weights in any case.
    del settings["seed"]
    settings.pop("training.keep_weights", None)
    return Frozen(cell, sweep.label(cell), settings)


def _means(values: pd.DataFrame) -> "pd.Series[float]":
    """The mean of each cell with values over its seeds, each the mean over queries."""
    of_seed = values.groupby(["cell", "seed"], observed=True)["value"].mean()
    return of_seed.groupby("cell", observed=True).mean()


def _joined(seeds: Any) -> str:
    return ", ".join(map(str, seeds))
