"""The types of a file that anyone may have written, by the fields of a dataclass."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from rank_core.errors import shown

_WORDS: Mapping[Any, tuple[str, str]] = {
    str: ("a text", "texts"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "booleans"),
    NoneType: ("null", "nulls"),
}


def misfit(kind: Any, table: Any) -> str:
    """Why a table of JSON is not a `kind`, a dataclass: a field that is unknown, missing or of
    another type; "" for one that fits."""
    if not isinstance(table, dict):
        return f"must be a table, got {shown(table)}"
    hints = _hints(kind)
    needed = {one.name for one in fields(kind) if one.default is one.default_factory is MISSING}
    if unknown := table.keys() - hints.keys():
        return f"has an unknown field {shown(min(unknown))}"
    if missing := needed - table.keys():
        return f"lacks the field {min(missing)}"
    for name, value in table.items():
        inner = next(iter(get_args(hints[name])), None)
        if is_dataclass(inner) and isinstance(value, list):
            for number, item in enumerate(value, start=1):
                if why := misfit(inner, item):
                    return f"{name}, number {number}: {why}"
        elif not _fits(hints[name], value):
            return f"{name} must be {_words(hints[name])}, got {shown(value)}"
    return ""


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(hint: Any, value: Any) -> bool:
    origin, of = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(one, value) for one in of)
    if origin in (tuple, Sequence):
        return isinstance(value, list) and all(_fits(of[0], item) for item in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(_fits(of[1], item) for item in value.values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return type(value) is int
    return isinstance(value, hint)


def _words(hint: Any) -> str:
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(_words, of))
    if origin in (tuple, Sequence):
        return f"a list of {_WORDS[of[0]][1] if of[0] in _WORDS else 'tables'}"
    if origin is Mapping:
        return f"a table of {_WORDS[of[1]][1]}" if of[1] in _WORDS else "a table"
    return _WORDS[hint][0] if hint in _WORDS else "a table"
