"""Declarations of settings and the checks of their values."""

import math
from dataclasses import field
from typing import Any

from rank_core.errors import BadInput, unknown

BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
TYPE_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    tuple[str, ...]: "a list of texts",
}


def setting(default: Any, text: str, *, hf: str = "") -> Any:
    """A setting with its description for docs/settings.md; `hf` holds its names in Hugging Face
    trainers, separated by spaces."""
    return field(default=default, metadata={"text": text, "hf": hf})


def added(default: Any, text: str, *, hf: str = "") -> Any:
    """A setting added after the first release. At its default it is excluded from the cell's name,
    so that earlier trials keep theirs."""
    return field(default=default, metadata={"text": text, "hf": hf, "added": True})


def require(condition: bool, text: str) -> None:
    """Raises `BadInput` with `text` where the condition does not hold."""
    if not condition:
        raise BadInput(text)


def choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises `BadInput` unless the value is one of the choices."""
    if value not in choices:
        raise unknown(name, value, choices)


def positive(section: str, settings: object, names: str) -> None:
    """Raises `BadInput` unless each of the named settings is above 0 and finite."""
    for name in names.split():
        value = getattr(settings, name)
        require(
            0 < value < math.inf,
            f"{section}.{name} > 0 must hold and be finite, got {section}.{name}={value}",
        )


def not_negative(section: str, settings: object, names: str) -> None:
    """Raises `BadInput` unless each of the named settings is at least 0 and finite."""
    for name in names.split():
        value = getattr(settings, name)
        require(
            0 <= value < math.inf,
            f"{section}.{name} >= 0 must hold and be finite, got {section}.{name}={value}",
        )
