"""The differences between a report's file in a bundle and the same file made again."""

import csv
import html
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imread

RELATIVE, ABSOLUTE = 1e-6, 1e-12
"""Tolerance of unrounded numbers: another processor may round the last digits differently. Rounded
numbers of tables and pages must be equal."""
DRAWN = 2e-3  # tolerance of a figure's coordinates
PIXEL = 8 / 255
FIGURES = (".svg", ".png")
LONGEST = 60  # characters of a value in a message
_KEYS = ("label", "cell", "system", "measure", "baseline", "seed", "hash", "name")
"""Fields by which an entry of a list in JSON is known."""
_SVG = re.compile(r"<svg.*?</svg>", re.DOTALL)
_NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
_TAG = re.compile(r"<[^>]*>")
_BREAKS = {".html": "</td>|</th>", ".md": r" \| ", ".tex": " & "}
"""Ends of the cells in a table's line."""


@dataclass(frozen=True)
class Difference:
    """A value as a bundle states it, and the recomputed value."""

    file: str
    where: str
    stated: str
    own: str

    def __str__(self) -> str:
        place = ": ".join(filter(None, (self.file, self.where)))
        stated, own = (text if len(text) <= LONGEST else f"{text[: LONGEST - 2]} …"
                       for text in (self.stated, self.own))  # fmt: skip
        return f"{place}: states {stated}, recomputed {own}"


def close(stated: float, own: float) -> bool:
    """True if two unrounded numbers are equal within the tolerance."""
    return math.isclose(stated, own, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def differences(file: str, stated: bytes, own: bytes, *, figures: bool) -> Iterator[Difference]:
    """Every difference between two versions of `file`; without `figures`, those of its text."""
    if stated == own:
        return
    kind = Path(file).suffix
    if kind == ".png":
        if not _same_pixels(stated, own):
            yield Difference(file, "", "another picture", "this one")
        return
    texts = [content.decode(errors="replace") for content in (stated, own)]
    if kind == ".json":
        yield from _json_differences(file, *map(json.loads, texts))
        return
    if figures:
        drawn = [texts] if kind == ".svg" else zip(*map(_SVG.findall, texts), strict=False)
        for pair in drawn:
            yield from _drawn_differences(file, *pair)
    if kind != ".svg":
        yield from _text_differences(file, *(_SVG.sub("", text).splitlines() for text in texts))


def _json_differences(file: str, stated: Any, own: Any, where: str = "") -> Iterator[Difference]:
    """The differences of two JSON values; entries of lists are named, or else numbered."""
    if isinstance(stated, dict) and isinstance(own, dict):
        for key in [*own, *(stated.keys() - own.keys())]:
            inner = f"{where}.{key}" if where else key
            yield from _json_differences(file, stated.get(key), own.get(key), inner)
    elif isinstance(stated, list) and isinstance(own, list) and len(stated) == len(own):
        for number, pair in enumerate(zip(stated, own, strict=True)):
            name = _name(pair[1]) if isinstance(pair[1], dict) else ""
            yield from _json_differences(file, *pair, f"{where}[{name or number}]")
    elif not _same(stated, own):
        yield Difference(file, where, *(json.dumps(entry)[:LONGEST] for entry in (stated, own)))


def _name(entry: Mapping[str, Any]) -> str:
    return ", ".join(str(entry[key]) for key in _KEYS if entry.get(key) not in (None, ""))


def _same(stated: Any, own: Any) -> bool:
    if type(stated) is type(own) is float:
        return close(stated, own)
    return stated == own and type(stated) is type(own)


def _drawn_differences(file: str, stated: str, own: str) -> Iterator[Difference]:
    """The differences of two figures: their words must be equal, their coordinates nearly."""
    if len({_NUMBER.sub("#", text) for text in (stated, own)}) > 1:
        yield from _text_differences(file, stated.splitlines(), own.splitlines())
        return
    for left, right in zip(_NUMBER.findall(stated), _NUMBER.findall(own), strict=True):
        if not math.isclose(float(left), float(right), rel_tol=DRAWN, abs_tol=DRAWN):
            yield Difference(file, "figure", left, right)


def _same_pixels(stated: bytes, own: bytes) -> bool:
    try:
        pixels = [imread(io.BytesIO(content), format="png") for content in (stated, own)]
    except Exception:  # Pillow has many kinds
        return False
    same_size = pixels[0].shape == pixels[1].shape
    return same_size and bool(np.abs(pixels[0] - pixels[1]).max() <= PIXEL)


def _text_differences(file: str, stated: list[str], own: list[str]) -> Iterator[Difference]:
    """The differences of two texts by line, of tables by cell."""
    matcher = SequenceMatcher(None, stated, own, autojunk=False)
    for kind, start, end, own_start, own_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        pairs = zip_longest(stated[start:end], own[own_start:own_end], fillvalue="nothing")
        for number, (left, right) in enumerate(pairs, start=start):
            cells = _cells(file, left), _cells(file, right)
            if len(cells[0]) == len(cells[1]) > 1:
                yield from _cell_differences(file, number, *cells, stated)
            else:
                yield Difference(file, f"line {number + 1}", *_apart(*map(_words, (left, right))))


def _cell_differences(
    file: str, number: int, stated: list[str], own: list[str], lines: list[str]
) -> Iterator[Difference]:
    """The differences in a line's cells, each with its row and column."""
    above = [line for line in lines[:number] if "<th" in line][::-1]
    headings = (_cells(file, line) for line in above or lines)
    heading = next((cells for cells in headings if len(cells) == len(own)), own)
    rounded = not file.endswith(".csv")
    row = own[0] if rounded else ", ".join(text for text in own if text and not _number(text))
    for column, (left, right) in enumerate(zip(stated, own, strict=True)):
        numbers = _number(left), _number(right)
        if left != right and (rounded or None in numbers or not close(*numbers)):  # type: ignore[arg-type]
            yield Difference(file, f"line {number + 1}, {row}, {heading[column]}", left, right)


def _cells(file: str, line: str) -> list[str]:
    kind = Path(file).suffix
    if kind == ".csv":
        return next(csv.reader([line]), [])
    return [_words(part) for part in re.split(_BREAKS[kind], line)] if kind in _BREAKS else [line]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def is_number(text: str) -> bool:
    """True if a text is a number."""
    return _number(text) is not None


def _words(text: str) -> str:
    """A text without HTML tags, unless it is tags alone."""
    return html.unescape(_TAG.sub("", text)).strip(" |") or text


def _apart(stated: str, own: str) -> tuple[str, str]:
    """Two texts from the first word in which they differ to the last."""
    left, right = stated.split(" "), own.split(" ")
    while left and right and left[0] == right[0]:
        left, right = left[1:], right[1:]
    while left and right and left[-1] == right[-1]:
        left, right = left[:-1], right[:-1]
    return " ".join(left) or "nothing", " ".join(right) or "nothing"
