"""Frozen text: what varies between machines and days is made equal here, and here alone."""

import difflib
import hashlib
import html
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Texts = dict[str, str]
"""{file name: what it holds}."""
EXPECTED = Path(__file__).parent / "expected"
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\de-\d+")
ROUNDED = 7
"""Numbers with as many decimals are unrounded. Their last digits differ between processors; all
other numbers are text."""
_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\+00:00| UTC)?"), "TIME"),
    (re.compile(r"[\d,]+ bytes"), "SIZE bytes"),
    (re.compile(r'("(?:ranksweep|matplotlib)": ")[^"]+'), r"\1VERSION"),
    (re.compile(r"\S+/ranksweep(?= [a-z])|\S*python\S* -m sweeps(?= (?!run))"), "ranksweep"),
)


def settled(text: str, folder: Path) -> str:
    """The text without the test's folder, times, sizes of files and the version, with nine digits
    of the numbers that nothing rounded."""
    for found, word in ((str(folder), "DIR"), (folder.name, "DIR")):
        text = text.replace(found, word)
    for pattern, word in _VARIES:
        text = pattern.sub(word, text)
    return NUMBER.sub(lambda found: _digits(found[0]), text)


def _is_unrounded(number: str) -> bool:
    return "e" in number or len(number.partition(".")[2]) >= ROUNDED


def _digits(number: str) -> str:
    return f"{float(number):.9g}" if _is_unrounded(number) else number


def digest(text: str, folder: Path) -> str:
    """A JSON file as a line for each key, the entries of a list together: a single value itself; of
    several numbers their count, the sum of number times place, and the same of their logarithms,
    in which small numbers count; of all else the count and a hash."""
    values: dict[str, list[Any]] = defaultdict(list)
    for key, value in _leaves(json.loads(text), ""):
        values[key].append(value)
    return "".join(f"{key}: {_digest_of(values[key], folder)}\n" for key in values)


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """(key, value) of all that holds no further values, in the order of the file."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _leaves(inner, f"{key}[]")
    else:
        yield key, value


def _digest_of(values: list[Any], folder: Path) -> str:
    if len(values) == 1:
        return settled(json.dumps(values[0], ensure_ascii=False), folder)
    parts = []
    if numbers := [value for value in values if type(value) in (int, float)]:
        logs = [math.copysign(math.log10(abs(x) + 1e-9) + 9, x) for x in numbers]
        sums = (sum(place * x for place, x in enumerate(row, 1)) for row in (numbers, logs))
        parts.append(f"{len(numbers)} numbers " + " ".join(f"{total:.7f}" for total in sums))
    if others := [value for value in values if type(value) not in (int, float)]:
        written = settled(json.dumps(others, ensure_ascii=False), folder)
        parts.append(f"{len(others)} values {hashlib.sha256(written.encode()).hexdigest()[:12]}")
    return ", ".join(parts)


def words_of_page(page: str) -> str:
    """The words of a page, a line for each sentence; a cell of a table is followed by `|`."""
    page = re.sub(r"(?s)<(style|script|svg)\b.*?</\1>", "", page)
    page = re.sub(r"</t[dh]>", " | ", page)
    page = re.sub(r"\s+", " ", page)
    page = re.sub(
        r"</?(p|h\d|li|tr|figcaption|summary|pre|dt|dd|table|caption)\b[^>]*>", "\n", page
    )
    page = html.unescape(re.sub(r"<[^>]*>", "", page))
    page = re.sub(r"(?<=\.) +(?=[A-Z])", "\n", page)
    lines = (line.strip() for line in page.split("\n"))
    return "\n".join([*filter(None, lines), ""])


def kept(known: Texts, texts: Texts) -> Texts:
    """The texts in which lines stay as they are known if only last digits differ."""
    kept = dict(texts)
    for name, before in known.items():
        old, new = before.split("\n"), texts.get(name, "").split("\n")
        if name in texts and len(old) == len(new):
            kept[name] = "\n".join(map(_as_before, old, new))
    return kept


def frozen(case: str) -> Texts:
    """The frozen files of a case."""
    return {path.name: path.read_text("utf-8") for path in sorted((EXPECTED / case).glob("*"))}


def differences(case: str, texts: Texts) -> str:
    """The differences of a case's files from the frozen ones, as a unified diff; "" for none."""
    known, lines = frozen(case), list[str]()
    now = kept(known, texts)
    for name in sorted({*known, *now}):
        both = (of.get(name, "").splitlines() for of in (known, now))
        names = f"frozen {case}/{name}", f"now {case}/{name}"
        lines += difflib.unified_diff(*both, *names, lineterm="", n=1)
    return "\n".join(lines)


def renew(case: str, texts: Texts) -> None:
    """Freezes these texts instead."""
    folder, known = EXPECTED / case, frozen(case)
    now = kept(known, texts)
    folder.mkdir(parents=True, exist_ok=True)
    for name in known.keys() - now.keys():
        (folder / name).unlink()
    for name, text in now.items():
        (folder / name).write_text(text, "utf-8")


def _as_before(before: str, now: str) -> str:
    """The line as it was if only the last digits of unrounded numbers differ."""
    if NUMBER.sub("", before) != NUMBER.sub("", now):
        return now
    pairs = zip(NUMBER.findall(before), NUMBER.findall(now), strict=True)
    return before if all(a == b or _near(a, b) for a, b in pairs) else now


def _near(before: str, now: str) -> bool:
    near = math.isclose(float(before), float(now), rel_tol=1e-7, abs_tol=1e-9)
    return near and (_is_unrounded(before) or _is_unrounded(now))
