"""Frozen text: what varies between machines and days is made equal here, and here alone."""

import difflib
import html
import math
import re
from pathlib import Path

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
