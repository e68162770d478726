"""What a sweep file states: its question, its grid, its baseline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import TrialConfig

Settings = Mapping[str, Any]
"""Dotted settings and their values: one point of a grid."""


@dataclass(frozen=True)
class Grid:
    """The points of a sweep and the one that all others are compared with."""

    points: tuple[Settings, ...]
    baseline: Settings


@dataclass(frozen=True)
class Experiment:
    """One sweep. `grid` says which points suit a base configuration and its backbone; `label` and
    `group` name a cell in tables."""

    name: str
    question: str
    swept: tuple[str, ...]
    grid: Callable[[TrialConfig, Backbone], Grid]
    label: Callable[[TrialConfig], str]
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of settings nobody has given
    profile: str = "clean"  # of PROFILES; below what the user sets
    confirms: Mapping[str, Any] | None = None  # the choice of another sweep, for `sweep.json`

    @property
    def script(self) -> str:
        """The file that runs it: a confirmation is a mode of the sweep that it confirms."""
        return f"{self.confirms['sweep'] if self.confirms else self.name}.py"
