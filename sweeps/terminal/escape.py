"""Names of anyone as text, never as markup: one function a format. Pages escape by
their templates (`report/html.py`), the terminal by `rank_core.lines.visible`."""

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_LATEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "—": "---", "−": "$-$", "±": r"$\pm$"}
    | {"Δ": r"$\Delta$", "↓": r"$\downarrow$", "†": r"$\dagger$"}
    # After a line's end LaTeX would read these two as its argument.
    | {"[": "{[}", "*": "{*}"}
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]+")
# `<` stays where it cannot start a tag, as in `<.001`, and brackets where they are no link.
_MARKDOWN = re.compile(r"[\\`]|<(?=[A-Za-z/!?])|&(?=#|\w+;)|\](?=[(\[:])")
_EMPHASIS = re.compile(r"[|*_]|~(?=~)")
_BLOCK = re.compile(r"^(#|>|[-+*](?=[ -])|\d+(?=[.)] )|~~~)")
_FORMULA = re.compile(r"[=+\-@\t\r]")
_PLAIN = re.compile(r"[A-Za-z][\w./-]*", re.ASCII)
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}  # not texts in YAML


def latex_text(text: str) -> str:
    """The text in LaTeX, on one line."""
    return _CONTROL.sub(" ", text).translate(_LATEX)


def latex_label(label: str) -> str:
    r"""The label for `\label`, which takes no escapes."""
    return re.sub(r"[^\w:.+/@-]", "-", label)


def markdown_text(text: str) -> str:
    """The text as a paragraph of Markdown, on one line: no tag, link, entity, code or heading."""
    return _BLOCK.sub(
        lambda mark: f"{mark[0]}\\" if mark[0].isdecimal() else f"\\{mark[0]}", _inline(text)
    )


def markdown_cell(text: str) -> str:
    """The text as a cell of a table in Markdown, which it neither ends nor emphasises."""
    return _EMPHASIS.sub(r"\\\g<0>", _inline(text))


def _inline(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", _CONTROL.sub(" ", text))


def markdown_code(text: str, language: str = "") -> str:
    """A block of code in Markdown that nothing in the text ends."""
    longest = max(map(len, re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def yaml_value(value: Any) -> str:
    """The value on one line of YAML; a text stands without quotes where it reads as itself."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False)  # JSON is YAML, but for some signs
    return _CONTROL.sub(lambda signs: "".join(f"\\u{ord(one):04x}" for one in signs[0]), text)


def csv_cell(value: Any) -> Any:
    """The value for a CSV file: a text that a spreadsheet would compute begins with `'`; a number
    stays one."""
    if not isinstance(value, str) or not _FORMULA.match(value) or len(value) < 2:
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def from_csv(text: str) -> str:
    """The text of a cell that `csv_cell` wrote."""
    return text[1:] if text[:1] == "'" and csv_cell(text[1:]) == text else text


def csv_frame(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The table with every text, also of its heading, as `csv_cell` has it."""
    import pandas as pd  # help needs none

    texts = frame.select_dtypes(exclude="number")
    safe = {
        name: pd.Series([*map(csv_cell, texts[name])], index=frame.index, dtype=object)
        for name in texts
    }
    return frame.assign(**safe).rename(columns=csv_cell)
