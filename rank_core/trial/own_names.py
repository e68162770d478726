"""What a trial's settings name from outside the package, as every other process knows it."""

from dataclasses import replace

from rank_core.data.ir_datasets.collection import PREFIX
from rank_core.data.load import portable_collection
from rank_core.data.transforms.expression import parse_collection_expression
from rank_core.models import MODELS
from rank_core.own_code import is_reference, portable
from rank_core.settings.config import TrialConfig


def portable_config(config: TrialConfig) -> TrialConfig:
    """The settings with entry points, and entries that a program added to `MODELS`, written as
    `module:name`: a worker may know no other name."""
    model = replace(config.model, name=portable("model", config.model.name, MODELS))
    return replace(config, collection=portable_collection(config.collection), model=model)


def own_paths(config: TrialConfig) -> tuple[str, ...]:
    """`module:name` of each model, collection and transform from outside."""
    base, steps = parse_collection_expression(config.collection)
    names = [config.model.name, base, *(name for name, _ in steps)]
    return tuple(name for name in names if is_reference(name) and not name.startswith(PREFIX))
