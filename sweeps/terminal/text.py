"""Lines, tables, durations and counts for the terminal."""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from rank_core.lines import beside, put, visible

WIDTH = 80
"""Columns of a terminal, and of output to a file."""
LEAST_WIDTH = 60
"""Columns that a text needs; a narrower terminal breaks its lines."""


def say(text: str, end: str = "\n") -> None:
    """Print text at once; lines are wrapped on a terminal only."""
    text = visible(text)
    text = wrapped(text) if sys.stdout.isatty() and "\n" not in text else text
    put(text, end=end)


def print_error(text: str) -> None:
    """Print an error, wrapped on a terminal only: a log has it on one line."""
    line = visible(f"error: {text}")
    beside(wrapped(line, len("error: ")) if sys.stderr.isatty() else line)


def warn(text: str) -> None:
    """Print a warning, beside the output."""
    beside(f"warning: {text}")


def terminal_columns() -> int:
    """The terminal's width."""
    return shutil.get_terminal_size((WIDTH, 24)).columns


_LEAST, _LONG = 10, 24  # columns of a name that is wrapped, of a word that is not broken


def columns(
    rows: Sequence[Sequence[str]], align: str, *, most: int = 0, names: Sequence[int] = (0,)
) -> list[str]:
    """The lines of a table whose first row is its heading; `align` has `l` or `r` for each column,
    as wide as its widest text. Where the table is wider than `most`, the columns `names` are
    wrapped, the widest first; nothing of a text is lost."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    words = [
        max(map(len, " ".join(column).split()), default=0) for column in zip(*rows, strict=True)
    ]
    least = [max(_LEAST, min(word, _LONG)) for word in words]  # a word is broken last
    while most and sum(widths) + 2 * (len(widths) - 1) > most:
        widest = max(names, key=lambda column: widths[column] - least[column])
        if widths[widest] <= least[widest]:
            break
        widths[widest] -= 1
    parts = [
        [_broken(text, width) for text, width in zip(row, widths, strict=True)] for row in rows
    ]
    lines = [
        [
            "  ".join(
                text.ljust(width) if side == "l" else text.rjust(width)
                for text, width, side in zip(line, widths, align, strict=True)
            ).rstrip()
            for line in zip_longest(*row, fillvalue="")
        ]
        for row in parts
    ]
    rule = "-" * max(len(line) for row in lines for line in row)
    return [*lines[0], rule, *(line for row in lines[1:] for line in row)]


def _broken(text: str, width: int) -> list[str]:
    """The lines of a cell of a table: one, where the text fits."""
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def wrapped(line: str, indent: int | None = None) -> str:
    """A paragraph of the terminal's width; further lines are indented to its text or by
    `indent`."""
    if indent is None:
        indent = 12 if line[10:12] == "  " else 0
    return textwrap.fill(
        line,
        max(LEAST_WIDTH, terminal_columns()),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shortened(label: str, columns: int) -> str:
    """The label in at most `columns` characters. Of `MaxP 96, head rate 1e-4, dropout 0.1` the
    names of the settings are shortened, then the model; values never are, even if the label is then
    too long. Other labels are shortened in the middle: they differ at the end. What a row is mixed
    with (`+BM25`) stays."""
    label, plus, mixed = label.partition(" +")
    return _short(label, columns - len(plus + mixed)) + plus + mixed


def _short(label: str, columns: int) -> str:
    """A label that is mixed with nothing."""
    model, *settings = label.split(", ")
    parts = [text.rpartition(" ") for text in settings]
    for letters in range(max((len(name) for name, _, _ in parts), default=0), 0, -1):
        named = (f"{name[:letters].strip()} {value}" for name, _, value in parts)
        short = ", ".join([model, *map(str.strip, named)])
        if len(short) <= columns:
            return short
    values = "".join(f" {value}" for _, _, value in parts)
    windows = len(model.rpartition(" ")[2]) if settings else 0
    room = max(columns - len(values), windows + 2 if settings else 0)
    if len(model) > room:
        tail = max((room - 1) * 3 // 5, windows)
        model = f"{model[: room - 1 - tail]}…{model[len(model) - tail :]}"
    return model + values


def numbered(number: float, noun: str) -> str:
    """`1 trial`, `2 trials`, `0.5 GPU`."""
    return f"{number:,.10g} {noun}" + ("s" if number > 1 or number == 0 else "")


def num_queries(number: int) -> str:
    """`1 query`, `2 queries`."""
    return f"{number:,} {'query' if number == 1 else 'queries'}"


def in_words(number: int) -> str:
    """`two`; above ten `12`."""
    words = "no one two three four five six seven eight nine ten".split()
    return words[number] if number < len(words) else f"{number:,}"


def clock(seconds: float) -> str:
    """`0:40`, `1h05`."""
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600}h{whole % 3600 // 60:02}"


def count(number: float) -> str:
    """`950 K`, `12.3 M`, `4.1 G`."""
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number / 1e3:,.0f} K"


def duration(seconds: float) -> str:
    """`40 s`, `3 min 20 s`, `2 h`, `3 d 4 h`: the two largest units."""
    whole = round(seconds)
    if whole < 3600:
        parts = (whole // 60, "min"), (whole % 60, "s")
    elif whole < 86400:
        parts = (whole // 3600, "h"), (whole % 3600 // 60, "min")
    else:
        parts = (whole // 86400, "d"), (whole % 86400 // 3600, "h")
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def milliseconds(ms: float) -> str:
    """`0.45`, `10.1`, `1,280`: three digits, and no exponent."""
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def about(seconds: float) -> str:
    """A duration rounded for a forecast: `40 s`, `4 min`, `2 h 5 min`."""
    return duration(seconds if seconds < 90 else 60 * round(seconds / 60))
