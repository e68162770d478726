"""Settings of published experiments by name: `--profile NAME`, overridden by the user's settings.

A profile has the hyperparameters of a paper or its code beside the reference's names for them, the
faults of the code that affect its numbers (quirks), and the differences that no setting removes.
They are in `profiles.toml`; `ranksweep models --profile NAME` prints one. The user chooses the
backbone, the collection and its fields.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rank_core.errors import unknown
from rank_core.parsing import parsed_toml
from rank_core.settings.config import TrialConfig

Stated = Mapping[str, tuple[Any, str]]
"""{setting: (its value, the reference's name or remark)}."""


@dataclass(frozen=True)
class Profile:
    """The experiments of a paper, as far as settings can reproduce them."""

    source: str = ""
    settings: Stated = field(default_factory=dict)
    of_models: Mapping[str, Stated] = field(default_factory=dict)  # for one model, above `settings`
    quirks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # {model: model.quirks}
    not_the_same: tuple[str, ...] = ()  # remaining differences
    by_hand: tuple[str, ...] = ()  # settings of its other runs


def _stated(table: Mapping[str, list[Any]]) -> Stated:
    return {
        name: (tuple(value) if isinstance(value, list) else value, words)
        for name, (value, words) in table.items()
    }


_TABLES = parsed_toml(Path(__file__).with_name("profiles.toml").read_bytes(), __name__)
PROFILES = {
    name: Profile(
        source=table["source"],
        settings=_stated(_TABLES[table.get("like", name)].get("settings", {})),
        of_models={model: _stated(own) for model, own in table.get("of_models", {}).items()},
        quirks={model: tuple(names) for model, names in table.get("quirks", {}).items()},
        not_the_same=tuple(table.get("not_the_same", ())),
        by_hand=tuple(table.get("by_hand", ())),
    )
    for name, table in _TABLES.items()
}


def profile(name: str) -> Profile:
    """The profile called `name`."""
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    return PROFILES[name]


def profile_settings(name: str, model: str = "") -> dict[str, Any]:
    """The dotted settings of a profile, for one model where it is named."""
    stated = {**profile(name).settings, **profile(name).of_models.get(model, {})}
    return {setting: value for setting, (value, _) in stated.items()}


def suited_to_model(name: str, config: TrialConfig, given: Collection[str] = ()) -> dict[str, Any]:
    """A profile's changes for a model: its settings for that model and its quirks, except those in
    `given` (settings of the user or sweep); and no limits on chunks for a model of one chunk."""
    model = config.model.name
    changes = profile_settings(name, model) if model in profile(name).of_models else {}
    changes = {setting: value for setting, value in changes.items() if setting not in given}
    if not config.model.quirks:
        changes["model.quirks"] = profile(name).quirks.get(model, ())
    from rank_core.models import model_class

    one_chunk = model_class(model).first_chunk_only
    if one_chunk and config.training.unit == "document":
        set_here, settings = profile_settings(name), config.settings()
        for setting in ("chunking.max_chunks", "chunking.overflow"):
            if setting in set_here and settings[setting] == set_here[setting]:
                changes[setting] = TrialConfig().settings()[setting]
    return changes
