"""The arguments of public functions: each function declares what it takes, and gets plain values.

    @takes(top=optional(whole(least=0)), trust_code=FLAG)

A number of NumPy, a path, an array, a Series or a table of Arrow is the plain value that it means.
Anything else raises `BadInput` before the function begins, in a sentence with the argument, what
it takes and what it got.
"""

import math
import os
import sys
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    Set,
    ValuesView,
)
from functools import cache, wraps
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import Any, ParamSpec, TypeGuard, TypeVar

from rank_core.errors import BadInput, shown, unknown

P = ParamSpec("P")
R = TypeVar("R")

Kind = Callable[[str, Any], Any]
"""The plain value of (name of the argument, value); raises `BadInput` for a value of no meaning."""

_LONGEST_NAME = 255  # bytes, of a file or a folder
_SHORT = (str, bytes, int, float, complex, list, tuple, dict, set, frozenset, os.PathLike)


def takes(**kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator that makes the arguments of these names plain before each call."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        bind = cache(lambda: signature(function).bind)

        @wraps(function)
        def plainly(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                given = bind()(*args, **kwargs)
            except TypeError:  # too many or unknown arguments, which Python names best
                return function(*args, **kwargs)
            for name, kind in kinds.items():
                if name in given.arguments:
                    given.arguments[name] = kind(name, given.arguments[name])
            return function(*given.args, **given.kwargs)

        return plainly

    return decorate


def refused(name: str, what: str, value: object) -> BadInput:
    """The error for an argument that must be `what`."""
    return BadInput(f"{name} must be {what}, got {got(value)}")


def got(value: object) -> str:
    """A value in a message: itself if it is short by nature, else its type."""
    if value is None or isinstance(value, _SHORT):
        return shown(value)
    if is_frame(value):
        columns = getattr(value, "columns", [])
        return f"a DataFrame with the columns {shown([*map(str, columns)])}"
    return f"a value of type {type(value).__name__}"


def unwrapped(value: Any) -> Any:
    """A scalar of NumPy, PyTorch or Arrow as Python's, a table or an array of Arrow (or Polars) as
    pandas'; other values as they are."""
    if value is None or type(value) in (str, bool, int, float, dict, list, tuple):
        return value
    if isinstance(value, type):
        return value
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    if hasattr(value, "as_py"):
        return value.as_py()
    return value.to_pandas() if hasattr(value, "to_pandas") else value


def is_frame(value: object) -> bool:
    """True for a DataFrame of pandas."""
    pandas: Any = sys.modules.get("pandas")  # a program that has a frame has imported it
    return pandas is not None and isinstance(value, pandas.DataFrame)


def is_series(value: object) -> bool:
    """True for a Series of pandas."""
    pandas: Any = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.Series)


def items_of(value: object) -> list[Any] | None:
    """The items of a list or of what stands for one: a tuple, a range, a generator, an array of one
    axis, a Series, an Index. None for a single value, and for what has no order or has labels."""
    value = unwrapped(value)
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping | Set) and not isinstance(
        value, KeysView
    ):
        return None
    if isinstance(value, Sequence | KeysView | ValuesView | Iterator):
        return [unwrapped(item) for item in value]
    if getattr(value, "ndim", None) == 1 and hasattr(value, "tolist"):
        return list(value.tolist())
    return None


def optional(kind: Kind) -> Kind:
    """None, or a value of a kind."""
    return lambda name, value: None if value is None else kind(name, value)


def either(first: type, kind: Kind) -> Kind:
    """An object of a class, as it is, or a value of a kind."""
    return lambda name, value: value if isinstance(value, first) else kind(name, value)


def instance(kind: type, what: str) -> Kind:
    """An object of a class."""

    def plain(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise refused(name, what, value)
        return value

    return plain


def is_number(value: object) -> TypeGuard[Any]:
    """True for a real number that is not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def flag(name: str, value: Any) -> bool:
    """True or False."""
    plain = unwrapped(value)
    if not isinstance(plain, bool):
        raise refused(name, "True or False", value)
    return plain


def whole(least: int | None = None, most: int | None = None) -> Kind:
    """A whole number between two ends; 3.0 is 3."""
    low, high = (-math.inf if least is None else least), (math.inf if most is None else most)
    law = f"{{name}} >= {least}" if most is None else f"{least} <= {{name}} <= {most}"

    def plain(name: str, value: Any) -> int:
        number = unwrapped(value)
        if not (is_number(number) and math.isfinite(_float(number)) and number == int(number)):
            raise refused(name, "a whole number", value)
        if not low <= number <= high:
            raise BadInput(f"{law.format(name=name)} must hold, got {number}")
        return int(number)

    return plain


def number(law: str = "", holds: Callable[[float], bool] = math.isfinite) -> Kind:
    """A finite number for which a law holds, which is `law.format(name)` in words."""

    def plain(name: str, value: Any) -> float:
        found = unwrapped(value)
        if not is_number(found) or not math.isfinite(_float(found)):
            raise refused(name, "a finite number", value)
        if not holds(_float(found)):
            raise BadInput(f"{law.format(name)} must hold, got {found}")
        return _float(found)

    return plain


probability = number("0 < {} < 1", lambda value: 0 < value < 1)


def _float(number: Real) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def one_text(
    what: str, choices: Collection[str] = (), *, noun: str = "", lower: bool = False
) -> Kind:
    """A text, one of the choices if there are any, which are each a `noun`; with `lower` in any
    case."""

    def plain(name: str, value: Any) -> str:
        text = unwrapped(value)
        if not isinstance(text, str):
            raise refused(name, what, value)
        text = str(text).lower() if lower else str(text)
        if choices and text not in choices:
            raise unknown(noun or name, text, [choice for choice in choices if choice])
        return text

    return plain


text = one_text("a text")


def id_or_number(name: str, value: Any) -> str:
    """An id as a text: 301 is "301"."""
    plain = unwrapped(value)
    return str(plain) if type(plain) is int else text(name, plain)


def by_name(what: str) -> Kind:
    """A mapping with texts as names, such as {setting: value}; its values stay as they are."""

    def plain(name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise refused(name, what, value)
        return {text(f"a name in {name}", key): own for key, own in value.items()}

    return plain


def path(name: str, value: Any) -> str | Path:
    """A text or a path that names a file or a folder; a text may also be a URI."""
    if not isinstance(value, str | os.PathLike):
        raise refused(name, "a path: a text or a pathlib.Path", value)
    found = os.fspath(value)
    if not isinstance(found, str) or not found.strip() or "\0" in found or not _is_path(found):
        raise refused(name, "a path: a text or a pathlib.Path", value)
    return str(value) if isinstance(value, str) else Path(found)


def place(name: str, value: Any) -> str:
    """A path as a text, such as a folder that may also be an id of Hugging Face."""
    return str(path(name, value))


def path_text(name: str, value: Any) -> str:
    """A text, or a path as a text."""
    return str(path(name, value)) if isinstance(value, os.PathLike) else text(name, value)


def _is_path(found: str) -> bool:
    """True for what the file system can be asked for: names that are no UTF-8 have halves of
    surrogate pairs, which only `os.fsencode` takes back."""
    try:
        return max(map(len, os.fsencode(found).split(os.fsencode(os.sep)))) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


def is_unicode(found: str) -> bool:
    """True unless a text has half of a surrogate pair, which no file can hold."""
    try:
        found.encode()
    except UnicodeEncodeError:
        return False
    return True


def frame(name: str, value: Any) -> Any:
    """A data frame, or a table of Arrow as one."""
    found = unwrapped(value)
    if not is_frame(found):
        raise refused(name, "a data frame", value)
    return found


def several(kind: Kind, what: str, *, least: int = 0, unique: bool = False) -> Kind:
    """A list of values of a kind, or what stands for one (`items_of`), as a tuple."""

    def plain(name: str, value: Any) -> tuple[Any, ...]:
        items = items_of(value)
        if items is None:
            raise refused(name, what, value)
        found = tuple(kind(f"{name}[{place}]", item) for place, item in enumerate(items))
        if len(found) < least:
            raise refused(name, what, value)
        if unique and (twice := _twice(found)):
            raise BadInput(f"{name} must name each once, got {shown(twice[0])} twice")
        return found

    return plain


def _twice(found: Iterable[Any]) -> list[Any]:
    seen: set[Any] = set()
    return [one for one in found if one in seen or seen.add(one)]  # type: ignore[func-returns-value]


def names(what: str, *, unique: bool = True, unordered: bool = False) -> Kind:
    """A name or several, as a tuple; None is none. A set has no order, so that it stands for a list
    only where `unordered` says that none is needed."""
    listed = several(text, f"a name or a list of names{what}", unique=unique)

    def plain(name: str, value: Any) -> tuple[str, ...]:
        value = unwrapped(value)
        if value is None:
            return ()
        if isinstance(value, str):
            return (str(value),)
        if unordered and isinstance(value, Set):
            value = sorted(map(str, value)) if all(isinstance(one, str) for one in value) else value
        return tuple(listed(name, value))

    return plain
