"""Declarations of settings and the checks of their values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, partial
from os import PathLike
from typing import Any, get_type_hints

from rank_core.arguments import is_number, items_of, place, refused, unwrapped
from rank_core.errors import BadInput, shown, unknown
from rank_core.own_code import is_reference

BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
TYPE_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    tuple[str, ...]: "a list of strings",
}


@dataclass(frozen=True)
class Interval:
    """The numbers that a setting may have: from `low` to `high`, an end excluded where it is
    open."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, number: float) -> bool:
        above = self.low < number if self.open_low else self.low <= number
        return above and (number < self.high if self.open_high else number <= self.high)

    def law(self, name: str) -> str:
        """`0 <= name < 1 must hold`."""
        if self.high == math.inf:
            sign = ">" if self.open_low else ">="
            return f"{name} {sign} {self.low:,} must hold and be finite"
        low, high = "<" if self.open_low else "<=", "<" if self.open_high else "<="
        return f"{self.low:,} {low} {name} {high} {self.high:,} must hold"


RULES: dict[str, Interval] = {
    ">0": Interval(0, math.inf, open_low=True, open_high=True),
    ">=0": Interval(0, math.inf, open_high=True),
    "[0, 1)": Interval(0, 1, open_high=True),
    "[0, 1]": Interval(0, 1),
    "(0, 1]": Interval(0, 1, open_low=True),
    # Counts that decide memory or time, far above any use.
    "[0, 10,000]": Interval(0, 10_000),
    "[1, 1,000]": Interval(1, 1_000),
    "[1, 100,000]": Interval(1, 100_000),
    "[0, 1,000,000]": Interval(0, 1_000_000),
}
"""{rule of a number: the numbers that keep it}."""


def setting(
    default: Any,
    text: str,
    *,
    hf: str = "",
    rule: str | tuple[str, ...] = "",
    accepts_code: bool = False,
    added: bool = False,
) -> Any:
    """A setting with its description for docs/settings.md; `hf` holds its names in Hugging Face
    trainers, separated by spaces, `rule` its choices or an entry of `RULES`. With `accepts_code` it
    may name a user's code, `module:name`."""
    about = {"text": text, "hf": hf, "rule": rule, "accepts_code": accepts_code, "added": added}
    return field(default=default, metadata=about)


added = partial(setting, added=True)
"""A setting added after the first release: at its default it is excluded from the cell's name, so
that earlier trials keep theirs."""


def require(condition: bool, text: str) -> None:
    """Raises `BadInput` with `text` where the condition does not hold."""
    if not condition:
        raise BadInput(text)


LARGEST: Mapping[Any, float] = {int: 1e15, float: 1e300}
"""The bound of every number's magnitude: JSON, tables and tensors can hold it and differences."""


def typed(name: str, kind: Any, value: Any) -> Any:
    """The value of a setting, converted to its type as JSON needs: a list to a tuple, a path to a
    text, 16.0 to 16, 1 to 1.0. Raises `BadInput` for any other type and for numbers beyond
    `LARGEST`."""
    given, value = value, unwrapped(value)
    if kind == tuple[str, ...]:
        items = items_of(value)
        if items is not None and all(isinstance(item, str) for item in items):
            return tuple(items)
    elif kind in (int, float) and is_number(value):
        limit: Any = LARGEST[kind]
        if not -limit < value < limit and value == value:
            raise BadInput(f"|{name}| < {limit:.0e} must hold, got {shown(value)}")
        if value == value and (kind is float or float(value).is_integer()):
            return kind(value)
    elif kind is str and isinstance(value, PathLike):
        return place(name, value)
    elif kind in (str, bool) and isinstance(value, kind):
        return kind(value)
    raise wrong_type(name, kind, given)


def wrong_type(name: str, kind: Any, value: Any) -> BadInput:
    """The error for a value that is not of its setting's type."""
    return refused(name, TYPE_NAMES[kind], value)


@cache
def _types(section: Any) -> dict[str, tuple[Any, bool]]:
    """{setting: its type, and whether that is a section}."""
    return {name: (kind, is_dataclass(kind)) for name, kind in get_type_hints(section).items()}


@cache
def _rules(section: Any) -> list[tuple[str, Any, bool]]:
    """(setting, its rule, whether it may name a user's code) of those with a rule."""
    known = [(field.name, field.metadata) for field in fields(section) if field.metadata["rule"]]
    return [(name, about["rule"], bool(about.get("accepts_code"))) for name, about in known]


def check_types(section: str, settings: Any) -> None:
    """Makes the values of a section plain (`typed`), as constructors take any. Raises `BadInput`
    for a setting of another type."""
    section_type: Any = type(settings)
    for name, (kind, is_section) in _types(section_type).items():
        value = getattr(settings, name)
        if is_section:
            if not isinstance(value, kind):
                raise refused(name, f"a {kind.__name__}", value)
        elif kind not in (str, bool) or type(value) is not kind:
            called = f"{section}.{name}".removeprefix(".")
            object.__setattr__(settings, name, typed(called, kind, value))


def check_rules(section: str, settings: Any) -> None:
    """Raises `BadInput` for a setting of a section that breaks its rule."""
    section_type: Any = type(settings)
    for name, rule, accepts_code in _rules(section_type):
        value = getattr(settings, name)
        if not (accepts_code and is_reference(value)):
            check_rule(f"{section}.{name}", value, rule)


def check_rule(name: str, value: Any, rule: str | tuple[str, ...]) -> None:
    """Raises `BadInput` for a value that breaks a rule of `setting`."""
    if isinstance(rule, tuple):
        if value not in rule:
            raise unknown(name, value, rule)
        return
    if value not in RULES[rule]:
        raise BadInput(f"{RULES[rule].law(name)}, got {name}={value}")
