"""JSON and TOML as values: the one place that parses texts of others, which may be nested deeper
than Python's stack or hold numbers longer than it converts."""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

from rank_core.errors import BadInput

DEEPEST = 100
"""The levels of lists and objects in a text; what walks over its value needs stack as well."""
_DEEP = f"it has more than {DEEPEST} levels"
_BITS = 63  # of a whole number of TOML, without its sign


class Unparsed(BadInput):
    """A text that is not of its format; `reason` says why, without its place."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(f"{rule}: {reason}")
        self.reason = reason


def parsed_json(
    content: str | bytes, place: object = "the text", kind: str = "JSON", **options: Any
) -> Any:
    """The value of a text in JSON; `options` are those of `json.loads`. An `Unparsed` names the
    place, the `kind` of text that must be there, and the reason."""
    rule = f"{place} must be {kind}"
    try:
        value = json.loads(content, **options)
    except BadInput:  # of a hook
        raise
    except (ValueError, RecursionError) as error:
        raise Unparsed(rule, _reason(error)) from None
    if len(content) > DEEPEST and sum(1 for _ in _levels(value)) > DEEPEST:
        raise Unparsed(rule, _DEEP)
    return value


def parsed_toml(content: bytes, place: object) -> dict[str, Any]:
    """The table of a file in TOML, with or without a byte order mark. An `Unparsed` names the
    place and the reason."""
    rule = f"{place} must be valid TOML"
    try:
        table = tomllib.loads(content.decode("utf-8-sig"))  # Windows editors
    except (ValueError, RecursionError) as error:
        raise Unparsed(rule, _reason(error)) from None
    levels = [*_levels(table)]
    if len(levels) > DEEPEST:
        raise Unparsed(rule, _DEEP)
    values = (value for level in levels for inner in level for value in inner)
    if any(isinstance(value, int) and value.bit_length() > _BITS for value in values):
        raise Unparsed(rule, "a whole number has more than 64 bits")
    return table


def _levels(value: Any) -> Iterator[list[list[Any]]]:
    """The contents of the lists and objects of a value, level by level, as far as the first one
    that is too deep."""
    level = [[value]]
    for _ in range(DEEPEST + 1):
        own = [item for inner in level for item in inner if isinstance(item, dict | list)]
        if not own:
            return
        level = [[*item.values()] if isinstance(item, dict) else item for item in own]
        yield level


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return _DEEP
    return str(error).partition("; use sys.")[0]  # of a number with too many digits
