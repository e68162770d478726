"""The experiment that a sweep file defines: question, grid, baseline, names of its cells."""

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput, shown
from rank_core.models import model_class
from rank_core.models.checks import check_model
from rank_core.settings.config import FILES, TrialConfig
from sweeps.plan.reference import Reference

NAMED_ANYWAY = ("model.name", "model.backbone", "chunking.window", "chunking.stride")
"""Settings that every default label shows; backbones where there are several."""
VALUE_TEXTS = {
    "model.truncate_dim": "dims {}",
    "model.stored": "as {}",
    "model.query_prompt": "query prompt {}",
    "model.document_prompt": "document prompt {}",
}
"""{setting that may cross all points: its value in a label}; of the others the value alone."""
EMPTY = {"0": "all", "": "none"}
"""The values of these that stand for no number and no text."""
RESERVED = ("trials", "checkpoints", "prepared", "artifacts")
"""Folders of a storage that hold no sweep."""
Settings = Mapping[str, Any]
"""Dotted settings and their values: one point of a grid."""


@dataclass(frozen=True)
class Grid:
    """The points of a sweep, and the baseline that they are compared with.

    Examples:
        >>> import ranksweep
        >>> points = tuple({"model.name": "maxp", "chunking.window": w} for w in (75, 150))
        >>> len(ranksweep.Grid(points=points, baseline={"model.name": "firstp"}).points)
        2
    """

    points: tuple[Settings, ...]
    baseline: Settings


@dataclass(frozen=True)
class Experiment:
    """A sweep. `grid` gives the points for a base configuration and its backbone; `label` names a
    cell in tables, by default by its model, windows and other swept settings.

    Examples:
        >>> import ranksweep
        >>> chance = ranksweep.Grid(({"model.name": "bm25"},), baseline={"model.name": "random"})
        >>> ranksweep.Experiment(
        ...     name="chance",
        ...     question="Does BM25 rank better than chance?",
        ...     swept=("model.name",),
        ...     grid=lambda base, backbone: chance,
        ... ).name
        'chance'
    """

    name: str
    question: str
    swept: tuple[str, ...]
    grid: Callable[[TrialConfig, Backbone], Grid]
    label: Callable[[TrialConfig], str] | None = None
    crossed: tuple[str, ...] = ()  # settings of which several values cross all points
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of settings without a value
    settings: Mapping[str, Any] = field(default_factory=dict)  # they override its profile
    profile: str = "clean"  # of PROFILES; the user's settings override it
    user_settings: frozenset[str] = frozenset()  # settings of the user, which no profile changes
    typed: frozenset[str] = frozenset()  # those that its file has for all cells
    confirms: Mapping[str, Any] | None = None  # the choice of another sweep, for `sweep.json`
    test_set: str = ""  # the name of the test set that it ranks by models of another sweep
    file: str = ""  # that defines it; empty: the one with `grid`
    kind: str = ""  # the name of its question where `name` is another; empty: `name`
    reference: Reference | None = None  # what is published of it
    beside: Callable[[Settings, Sequence[int]], tuple[Settings, ...]] | None = None
    """Further baselines, from the baseline and the windows of the cells, where the user has given
    several windows."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.-]*", self.name):
            raise BadInput(
                "the name of a sweep must be letters, digits, _, - and dots, because it names a "
                f"folder, got {shown(self.name)}"
            )
        if self.name in RESERVED:
            raise BadInput(
                f"the name of a sweep must not be {self.name}, a folder of every storage that is "
                "no sweep"
            )

    def crossing(self, values: Mapping[str, Sequence[Any]]) -> "Experiment":
        """The experiment with every point, and its baseline's, at every one of these values of
        `crossed` settings; the baseline has the first of them."""
        if not values:
            return self

        def grid(base: TrialConfig, backbone: Backbone) -> Grid:
            own = self.grid(base, backbone)
            products = [dict(zip(values, some, strict=True)) for some in product(*values.values())]
            crossed = (*own.points, own.baseline)
            points = tuple({**point, **some} for some in products for point in crossed)
            return Grid(points=points, baseline={**own.baseline, **products[0]})

        # The file stays the one with the experiment's own grid.
        return replace(self, swept=(*self.swept, *values), grid=grid, file=self.source)

    def called(self, name: str | None) -> "Experiment":
        """The same question in a folder of another name, beside its own; None: its own."""
        return replace(self, name=self.name if name is None else name, kind=self.kind or self.name)

    @property
    def source(self) -> str:
        """The absolute path of the sweep's file; "" for a sweep in a notebook."""
        path = self.file
        with suppress(TypeError):  # `grid` is a callable object
            path = path or inspect.getsourcefile(self.grid) or ""
        return os.path.abspath(path) if os.path.isfile(path) else ""

    def label_of(self, config: TrialConfig) -> str:
        """The name of a cell."""
        settings = config.settings()
        parts = [self.label(config) if self.label else model_and_windows(config)]
        parts += [_crossed(name, settings[name]) for name in self.crossed if name in self.swept]
        beside = os.path.join(os.path.dirname(self.source), "")
        for name in self.swept:
            text = value_text(settings[name])
            if name in FILES and self.source:  # files beside the sweep's own, by their names
                text = ",".join(one.removeprefix(beside) for one in text.split(","))
            # `head rate 1e-5` of training.head_learning_rate
            if text and not (self.label or name in (*NAMED_ANYWAY, *self.crossed)):
                short = name.rpartition(".")[2].replace("_learning_rate", " rate")
                parts.append(f"{short} {text}")
        return ", ".join(parts)


def _crossed(name: str, value: Any) -> str:
    """The value of a setting that crosses all points, in a label."""
    text = value_text(value)
    return VALUE_TEXTS[name].format(EMPTY.get(text, text)) if name in VALUE_TEXTS else text


def value_text(value: Any) -> str:
    """The value of a setting as short as a command line takes it: 1e-5, 0.1, a,b."""
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float) and 0 < value < 1e-3:
        digits, _, power = f"{value:e}".partition("e")
        return f"{float(digits):g}e{int(power)}"  # 1e-5
    return f"{value:g}" if isinstance(value, float) else str(value)


def suited(config: TrialConfig, backbone: Backbone) -> Settings:
    """The default windows of a model, the first of these that it accepts: those of the settings,
    overlapping windows, the longest disjoint windows, the whole document as a window, its longest
    start. Empty where it accepts none; the check of the settings then names the reason."""
    chunking = config.chunking
    longest = backbone.max_window(chunking.max_query_tokens)
    two_thirds = longest * 2 // 3
    longest_start = min(longest, chunking.max_document_tokens)
    choices: tuple[Settings, ...] = (
        {},
        _windows(two_thirds, two_thirds * 3 // 4),
        _windows(longest, longest),
        _windows(chunking.max_document_tokens, chunking.max_document_tokens),
        _windows(longest_start, longest_start) | {"chunking.max_document_tokens": longest_start},
    )
    for choice in choices:
        with suppress(BadInput):
            check_model(config.override(choice), backbone)
            return choice
    return {}


def _windows(window: int, stride: int) -> dict[str, int]:
    return {"chunking.window": window, "chunking.stride": stride}


def aggregation_label(config: TrialConfig) -> str:
    """`SumP 150/75`, or `SumP of P 150/75` where probabilities are summed."""
    name, windows = model_and_windows(config).rsplit(" ", 1)
    return f"{name} of P {windows}" if config.model.chunk_scores else f"{name} {windows}"


def model_and_windows(config: TrialConfig) -> str:
    """`MaxP 150/75`; one number where windows do not overlap or there is one only."""
    model = model_class(config.model.name)
    return f"{model.label} {config.chunking.windows}" if model.trains else model.label
