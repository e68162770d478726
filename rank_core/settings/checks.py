"""Declarations of settings and the checks of their values."""

import math
from collections.abc import Callable
from dataclasses import field, fields
from functools import partial
from typing import Any

from rank_core.errors import BadInput, unknown
from rank_core.own_code import is_reference

BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
TYPE_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    tuple[str, ...]: "a list of texts",
}


RULES: dict[str, tuple[str, Callable[[float], bool]]] = {
    ">0": ("{} > 0 must hold and be finite", lambda x: 0 < x < math.inf),
    ">=0": ("{} >= 0 must hold and be finite", lambda x: 0 <= x < math.inf),
    "[0, 1)": ("0 <= {} < 1 must hold", lambda x: 0 <= x < 1),
    "[0, 1]": ("0 <= {} <= 1 must hold", lambda x: 0 <= x <= 1),
    "(0, 1]": ("0 < {} <= 1 must hold", lambda x: 0 < x <= 1),
}
"""{rule of a number: its text, its check}."""


def setting(
    default: Any,
    text: str,
    *,
    hf: str = "",
    rule: str | tuple[str, ...] = "",
    own: bool = False,
    added: bool = False,
) -> Any:
    """A setting with its description for docs/settings.md; `hf` holds its names in Hugging Face
    trainers, separated by spaces, `rule` its choices or an entry of `RULES`. With `own` it may name
    a user's code, `module:name`."""
    about = {"text": text, "hf": hf, "rule": rule, "own": own, "added": added}
    return field(default=default, metadata=about)


added = partial(setting, added=True)
"""A setting added after the first release: at its default it is excluded from the cell's name, so
that earlier trials keep theirs."""


def require(condition: bool, text: str) -> None:
    """Raises `BadInput` with `text` where the condition does not hold."""
    if not condition:
        raise BadInput(text)


def check_rules(section: str, settings: Any) -> None:
    """Raises `BadInput` for a setting of a section that breaks its rule."""
    for declared in fields(settings):
        rule, value = declared.metadata["rule"], getattr(settings, declared.name)
        own = declared.metadata.get("own") and is_reference(value)
        if rule and not own:
            check_rule(f"{section}.{declared.name}", value, rule)


def check_rule(name: str, value: Any, rule: str | tuple[str, ...]) -> None:
    """Raises `BadInput` for a value that breaks a rule of `setting`."""
    if isinstance(rule, tuple):
        if value not in rule:
            raise unknown(name, value, rule)
        return
    text, holds = RULES[rule]
    require(holds(value), f"{text.format(name)}, got {name}={value}")
