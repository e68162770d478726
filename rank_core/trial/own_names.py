"""User code in a trial's settings, by names that every process knows."""

from dataclasses import replace

from rank_core.data.ir_collections import PREFIX
from rank_core.data.load import portable_collection
from rank_core.data.transforms.expression import parse_collection_expression
from rank_core.models import MODELS
from rank_core.own_code import is_reference, portable
from rank_core.settings.config import TrialConfig


def portable_config(config: TrialConfig) -> TrialConfig:
    """The settings with entry points, and names that a program added to `MODELS`, as `module:name`,
    because workers know only those."""
    model = replace(config.model, name=portable("model", config.model.name, MODELS))
    return replace(config, collection=portable_collection(config.collection), model=model)


def own_paths(config: TrialConfig) -> tuple[str, ...]:
    """`module:name` of each of the user's models, collections and transforms."""
    base, steps = parse_collection_expression(config.collection)
    names = [config.model.name, base, *(name for name, _ in steps)]
    return tuple(name for name in names if is_reference(name) and not name.startswith(PREFIX))
