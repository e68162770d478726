"""Declarations of settings and the checks of their values."""

import math
from dataclasses import field
from typing import Any

from rank_core.errors import BadInput, unknown


def added(default: Any) -> Any:
    """A setting that was added later: at its default it is no part of a cell's name, so that trials
    which finished before it existed keep theirs."""
    return field(default=default, metadata={"added": True})


def require(condition: bool, text: str) -> None:
    """Raises `BadInput` with `text` where the condition does not hold."""
    if not condition:
        raise BadInput(text)


def choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuses a value that is not one of the choices."""
    if value not in choices:
        raise unknown(name, value, choices)


def positive(section: str, settings: object, names: str) -> None:
    """Each of the named settings must be above 0 and finite."""
    for name in names.split():
        value = getattr(settings, name)
        require(
            0 < value < math.inf,
            f"{section}.{name} > 0 must hold and be finite, got {section}.{name}={value}",
        )


def not_negative(section: str, settings: object, names: str) -> None:
    """Each of the named settings must be at least 0 and finite."""
    for name in names.split():
        value = getattr(settings, name)
        require(
            0 <= value < math.inf,
            f"{section}.{name} >= 0 must hold and be finite, got {section}.{name}={value}",
        )
