"""Further collections on which the trained models of a sweep are tested (`evaluation.test_on`).

Each of them is a sweep of its own beside the trained one, with the same cells and seeds: a trial
ranks the test queries with the weights that the trained trial's dev queries chose, and trains
nothing. So it is no part of the trained trial's name, and resumes, is recorded and is reported as
every other sweep.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from rank_core.checkpoints.weights import STORED
from rank_core.data.load import load_collection
from rank_core.errors import BadInput, shown
from rank_core.models import model_class, trains
from rank_core.settings.config import OWN_DEV, TRAINING_DEV, TrialConfig
from rank_core.trial.trial import portable_config
from sweeps.plan.experiment import Grid, Settings
from sweeps.plan.make_plan import make_plan
from sweeps.plan.options import Options, split_of
from sweeps.plan.plan import Plan, PlannedCell
from sweeps.plan.search_options import SearchSettings

UNTRAINED = {
    "training.num_epochs": 0,
    "training.keep_weights": "none",
    "training.keep_run": False,
    "evaluation.test_on": (),
    "evaluation.test_alpha": TRAINING_DEV,
}
"""Settings of every trial on a test set."""


@dataclass(frozen=True)
class TestSet:
    """A collection of `evaluation.test_on`, and the split that is tested."""

    __test__ = False  # pytest collects classes by their names

    text: str  # as typed
    base: str  # the collection
    split: str
    name: str  # `robust04-title`, or `msmarco-document:dev` where the split is not test

    def collection(self, *, own_dev: bool) -> str:
        """Its expression as a collection: the split as test, with the dev split where that chooses
        the weight of the first stage."""
        settings = f"split={self.split}" + (",dev=true" if own_dev else "")
        return f"{self.base}|test-set({settings})"


def test_sets(base: TrialConfig) -> tuple[TestSet, ...]:
    """The test sets of a sweep's settings; raises `BadInput` for one that is named twice, and for
    queries that the sweep itself ranks."""
    sets = []
    for text in base.evaluation.test_on:
        name, split = split_of(text)
        of_split = "" if split in ("", "test") else f":{split}"
        known_as = f"{load_collection(name).name}{of_split}"
        sets.append(TestSet(text, name, split or "test", known_as))
    seen: dict[tuple[str, str], str] = {}
    own = load_collection(base.collection) if sets else None
    for one in sets:
        collection = load_collection(one.base)
        if one.split not in collection.splits:
            raise BadInput(
                f"evaluation.test_on: {collection.name} has no {one.split} split, only "
                f"{', '.join(collection.splits)}; name one of them as {one.base}:SPLIT"
            )
        if own and collection.content_hash == own.content_hash:
            what = "validates on" if one.split == "dev" else "trains on or tests"
            raise BadInput(
                f"evaluation.test_on={one.text} is the collection that the sweep itself {what}; "
                "name another one"
            )
        key = collection.content_hash, one.split
        if key in seen:
            raise BadInput(
                f"evaluation.test_on: {shown(seen[key])} and {shown(one.text)} are the same queries"
            )
        seen[key] = one.text
    return tuple(sets)


def check_tested(base: TrialConfig) -> None:
    """Raises `BadInput` for settings of a sweep whose models cannot be tested elsewhere."""
    if not base.evaluation.test_on:
        if base.evaluation.test_alpha == OWN_DEV:
            raise BadInput("evaluation.test_alpha=own needs evaluation.test_on")
        return
    if base.evaluation.folds:
        raise BadInput(
            f"evaluation.test_on needs a single model, but evaluation.folds="
            f"{base.evaluation.folds} trains one per fold; use evaluation.folds=0"
        )
    if base.training.keep_weights == "none":
        raise BadInput(
            "evaluation.test_on ranks with the weights of finished trials: "
            "training.keep_weights must be best or all, got none"
        )


def plan_on(
    plan: Plan, test_set: TestSet, options: Options, finished: Collection[str] | None = None
) -> Plan:
    """The plan of ranking a test set by the models of a plan: by every cell and seed, or by those
    whose trained trial has `finished`. Cells that cannot rank it are excluded with the reason."""
    collection = test_set.collection(own_dev=plan.base.evaluation.test_alpha == OWN_DEV)
    points = [_point(cell, collection) for cell in plan.cells]
    trained = {
        portable_config(TrialConfig().override(point)): cell
        for point, cell in zip(points, plan.cells, strict=True)
    }
    experiment = replace(
        plan.experiment,
        question=f"{plan.experiment.question.rstrip('?')}, tested on {test_set.name}?",
        grid=lambda base, backbone: Grid(tuple(points[1:]), points[0]),
        label=lambda config: trained[config].label,
        crossed=(),
        beside=None,
        confirms=None,
        file=plan.experiment.source,
        kind=plan.experiment.kind or plan.experiment.name,
        test_set=test_set.name,
    )
    alone = replace(
        options,
        collection=None,
        backbone=None,
        model=None,
        init_from=None,
        seeds=plan.seeds,
        settings={},
        grids={},
        ranges={},
        search=SearchSettings(),
        smoke_test=False,
        typed_flags=frozenset(),
    )
    made = make_plan(experiment, alone, plan.base.override({**UNTRAINED, "collection": collection}))
    of = {cell.cell: trained[cell.config].cell for cell in made.cells}
    made = replace(made, trained=of, reduced=plan.reduced)
    if finished is None:
        return made
    names = (trial.name for trial in made.trials())
    return replace(
        made, only=frozenset(name for name in names if made.trained_by(name) in finished)
    )


def _point(cell: PlannedCell, collection: str) -> Settings:
    """The settings of a cell on a test set; a trained one starts from the cell's weights."""
    config = cell.config
    settings = config.settings()
    del settings["seed"]
    kind = model_class(config.model.name)
    learned = trains(kind) and config.training.num_epochs
    start = f"{STORED}{cell.cell}" if learned else config.training.init_from
    return {**settings, **UNTRAINED, "collection": collection, "training.init_from": start}
