"""A confirmation: the winner on dev and the baseline, frozen, trained again with fresh seeds.

A winner is chosen together with its runs, so their test values are optimistic even though only dev
was used. New runs of the same two cells have no such selection bias.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rank_core.data.load import load_collection
from rank_core.errors import BadInput
from rank_core.files import write_json
from rank_core.settings.config import TrialConfig
from sweeps.plan.experiment import Experiment, Grid
from sweeps.plan.options import Options
from sweeps.plan.plan import Plan
from sweeps.plan.search_options import SEARCHES
from sweeps.report.load import FILES, Sweep, load_sweep
from sweeps.report.search import left_after
from sweeps.store.checksums import read_checked
from sweeps.store.scores import pull_dataset
from sweeps.store.trial_status import USED, TrialStatus
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import read_state

FILE = "shortlist.json"


@dataclass(frozen=True)
class Frozen:
    """A cell of the first sweep with every setting but the seed."""

    cell: str
    label: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Shortlist:
    """The trials of a confirmation, stored before a launch and never changed."""

    sweep: str
    primary: str
    winner: Frozen
    baseline: Frozen
    dev_mean: float  # of the winner, over its seeds in the first sweep
    num_candidates: int
    naive_gain: float  # on the reported split, from the runs of the choice
    used_seeds: tuple[int, ...]  # by any trial of the first sweep
    fresh_seeds: tuple[int, ...]  # of the command that froze it

    @property
    def hash(self) -> str:
        """The hash of the fields above, 12 hex digits."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def base(self) -> TrialConfig:
        """The settings shared by both cells; each then sets its own."""
        return TrialConfig().override(self.winner.settings)

    def seeds(self, options: Options) -> tuple[int, ...]:
        """The seeds of a command, by default those of the frozen shortlist."""
        if options.seeds:
            used = [seed for seed in options.seeds if seed in self.used_seeds]
            if used:
                raise BadInput(
                    f"the seeds of a confirmation must not have been used in {self.sweep}, got "
                    f"{_joined(used)}; used: {_joined(self.used_seeds)}; free from "
                    f"{self._first_free} on"
                )
            return options.seeds
        if options.num_seeds is None:
            return self.fresh_seeds
        return tuple(range(self._first_free, self._first_free + options.num_seeds))

    @property
    def _first_free(self) -> int:
        return max(self.used_seeds) + 1

    def experiment(self, first: Experiment) -> Experiment:
        """The sweep over the frozen pair, otherwise as the first sweep."""
        grid = Grid(points=(self.winner.settings,), baseline=self.baseline.settings)
        return replace(
            first,
            name=confirmation_name(self.sweep),
            question=(
                f"Does {self.winner.label}, chosen on dev in {self.sweep}, differ from "
                f"{self.baseline.label} with fresh seeds?"
            ),
            grid=lambda base, backbone: grid,
            confirms={
                "sweep": self.sweep,
                "cell": self.winner.cell,
                "label": self.winner.label,
                "dev_mean": self.dev_mean,
                "num_candidates": self.num_candidates,
                "naive_gain": self.naive_gain,
                "shortlist": self.hash,
            },
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


def confirmation_name(sweep: str) -> str:
    """The name of the sweep that confirms `sweep`."""
    return f"{sweep}-confirm"


def confirmation_stores(experiment: Store, options: Options) -> tuple[Store, Store]:
    """The stores of the finished sweep (on the command's collection, else on the only one) and of
    its confirmation."""
    first = experiment
    if options.collection:
        first = experiment.of(load_collection(options.collection))
    elif collections := experiment.collections():
        if len(collections) > 1:
            raise BadInput(
                f"--confirm needs --collection where there are several, found in "
                f"{experiment.root}: {', '.join(collections)}"
            )
        first = Store(experiment.storage, f"{experiment.sweep}/{collections[0]}")
    name = first.sweep.removeprefix(experiment.sweep)
    return first, Store(experiment.storage, confirmation_name(experiment.sweep) + name)


def find_shortlist(first: Store, confirmation: Store, options: Options) -> Shortlist:
    """The frozen shortlist, or a new one from the finished sweep, which is not written yet."""
    path = confirmation.pull_file(FILE)
    if path.exists():
        return read_shortlist(path)
    chosen = choose(first)
    return replace(chosen, fresh_seeds=chosen.seeds(options))


def choose(store: Store) -> Shortlist:
    """The cell with the highest mean of the primary measure on dev, over its seeds, and the
    baseline, which is no candidate."""
    sweep = _finished_sweep(store)
    dev = sweep.dev_scores.groupby(["cell", "seed"])["value"].mean().groupby("cell").mean()
    candidates = [c.cell for c in sweep.cells if c.cell in dev.index and c.cell != sweep.baseline]
    if not candidates:
        raise BadInput(
            f"a confirmation needs a finished cell beside the baseline, with {sweep.primary} on "
            f"dev; {store.folder} has none"
        )
    stayed = [cell for cell in candidates if cell not in left_after(sweep)] or candidates
    winner = max(stayed, key=lambda cell: float(dev[cell]))
    # The reported split is read only now, after the choice.
    chosen = sweep.scores[sweep.scores["measure"] == sweep.primary]
    mean = chosen.groupby(["cell", "seed"])["value"].mean().groupby("cell").mean()
    # With the seeds of trials whose plans `sweep.json` no longer describes.
    launched = (trial.seed for trial in read_state(store).trials.values() if trial.attempts)
    used = {*sweep.seeds, *launched}
    # With a budget the report may have fewer seeds than the search was to run.
    number = max(len(sweep.seeds), sweep.search.get("num_seeds", 0))
    return Shortlist(
        sweep=sweep.name,
        primary=sweep.primary,
        winner=_frozen(store, sweep, winner),
        baseline=_frozen(store, sweep, sweep.baseline),
        dev_mean=float(dev[winner]),
        num_candidates=max(len(candidates), len(sweep.search.get("standings", ()))),
        naive_gain=float(mean[winner] - mean[sweep.baseline]),
        used_seeds=tuple(sorted(used)),
        fresh_seeds=tuple(range(max(used) + 1, max(used) + 1 + number)),
    )


def _finished_sweep(store: Store) -> Sweep:
    """The first sweep; every seed of its baseline must have ended, at least one with scores."""
    if not store.is_local:
        store.folder.mkdir(parents=True, exist_ok=True)
        pull_dataset(store)
        for name in FILES:
            store.pull_file(name)
    missing = [name for name in FILES if not (store.folder / name).exists()]
    if missing:
        raise BadInput(
            f"--confirm needs a finished sweep, whose folder holds {', '.join(FILES)}; "
            f"{store.root} has no {', '.join(missing)}. Run the sweep without --confirm first"
        )
    sweep = load_sweep(store.folder)
    trials = sweep.trials[sweep.trials["cell"] == sweep.baseline]
    status = dict(zip(trials["seed"], map(TrialStatus, trials["status"]), strict=True))
    open_seeds = [s for s in sweep.seeds if status.get(s, TrialStatus.PLANNED).waits]
    if open_seeds or not any(status.used for status in status.values()):
        state = f"unfinished seeds {_joined(open_seeds)}" if open_seeds else "no seed with scores"
        raise BadInput(
            f"--confirm needs a finished baseline in {sweep.name}; {sweep.label(sweep.baseline)} "
            f"has {state}"
        )
    search = str(sweep.search.get("name"))
    if search in SEARCHES and SEARCHES[search].pauses and not sweep.search["over"]:
        raise BadInput(
            f"--confirm needs a {search} that has ended; {sweep.name} has candidates left. "
            "Resume it with its own command, with a larger budget if it had one"
        )
    return sweep


def _frozen(store: Store, sweep: Sweep, cell: str) -> Frozen:
    """A cell with the settings of its first trial with scores."""
    used = sweep.trials[(sweep.trials["cell"] == cell) & sweep.trials["status"].isin(USED)]
    name = f"{cell}-seed{used['seed'].iloc[0]}"
    store.pull({name})
    settings = json.loads(read_checked(store.folder / "runs" / name, "config.json"))
    # A confirmation keeps its winner's weights in any case.
    del settings["seed"]
    settings.pop("training.keep_weights", None)
    return Frozen(cell, sweep.label(cell), settings)


def freeze(store: Store, shortlist: Shortlist) -> None:
    """Write the shortlist into the confirmation's folder; an existing one is never replaced."""
    path = store.folder / FILE
    if not path.exists():
        now = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(path, asdict(shortlist) | {"hash": shortlist.hash, "frozen_at": now})
        store.push(FILE)
    elif read_shortlist(path).hash != shortlist.hash:
        raise BadInput(
            f"a shortlist is frozen once, and another command has just written {path}; start again"
        )


def read_shortlist(path: Path) -> Shortlist:
    """A frozen shortlist, which must be unchanged."""
    try:
        stored = json.loads(path.read_text())
        hash_then, _ = stored.pop("hash"), stored.pop("frozen_at")
        stored |= {name: Frozen(**stored[name]) for name in ("winner", "baseline")}
        stored |= {name: tuple(stored[name]) for name in ("used_seeds", "fresh_seeds")}
        shortlist = Shortlist(**stored)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: must hold an unchanged shortlist; {error!r}") from None
    if shortlist.hash != hash_then:
        raise BadInput(
            f"{path}: must be unchanged (hash {hash_then}), got contents of hash {shortlist.hash}"
        )
    return shortlist


def _joined(seeds: Any) -> str:
    return ", ".join(map(str, seeds))
