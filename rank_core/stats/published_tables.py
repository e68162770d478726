"""Published results tables as data: cells as printed, and what is said to follow from them.

A file is one JSON object: `name`, `title`, `source`, `columns`, `rows` and `checks`. A row is a
list of cells as printed: ".416", or ".416a" with letters of significance, or null where there is
none. A check has a `claim` in words, a `kind` with its own fields, and `expect`: "match", which is
the default, or "mismatch" for a claim that is known not to hold. Kinds:

- `gain`: the gain of `row` over `base` in percent, averaged over `columns`; with `over` that of
  `row` over `over` as a share of `base`. `printed` is the number as printed, or only its sign.
- `mean`: the mean of `columns`, weighted by `weights` if given, against the cell in
  `printed_column`, for `rows` or for every row; rows in `except` are expected the other way round.
- `same`: the cells of `row` in `columns` are those of the same row in `table`, letters included.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rank_core.errors import BadInput, unknown

FOLDER = Path(__file__).parent / "published"
KEYS = {"name": str, "title": str, "source": str, "columns": list, "rows": dict, "checks": list}
_NAMES = {str: "a text", list: "a list", dict: "an object"}
_CELL = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([a-zA-Z]*)")


@dataclass(frozen=True)
class Rounded:
    """A printed number: its value, half a unit of its last digit, and its letters."""

    value: float
    half: float
    letters: str = ""

    @property
    def low(self) -> float:
        """The smallest number that is printed like this."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """The largest number that is printed like this."""
        return self.value + self.half


@dataclass(frozen=True)
class PublishedTable:
    """A table as printed; `cells[row][column]` is missing where the table has none."""

    name: str
    title: str
    source: str
    columns: tuple[str, ...]
    cells: Mapping[str, Mapping[str, Rounded]]
    checks: tuple[Mapping[str, Any], ...]
    note: str = ""

    def cell(self, row: str, column: str) -> Rounded:
        """One cell, or a `BadInput` that names what the table has."""
        if row not in self.cells:
            raise unknown(f"row of {self.name}", row, self.cells)
        if column not in self.columns:
            raise unknown(f"column of {self.name}", column, self.columns)
        if column not in self.cells[row]:
            raise BadInput(f"{self.name}: a check needs a number in {column} of {row}, found none")
        return self.cells[row][column]


def rounded(text: str) -> Rounded:
    """`.416a` as .416 +- .0005 with the letter a."""
    found = _CELL.fullmatch(text)
    if not found:
        raise BadInput(
            f"a cell must be a number with optional letters, such as .416a, got {text!r}"
        )
    decimals = len(found[1].partition(".")[2])
    return Rounded(float(found[1]), 0.5 * 10**-decimals, found[2])


def read_table(path: Path) -> PublishedTable:
    """The table of one JSON file; a `BadInput` names the file and the rule it breaks."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise BadInput(f"{path} must be a file with a published table") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: text must be UTF-8") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path}: must hold one JSON object, got {type(found).__name__}")
    for key, kind in KEYS.items():
        if not isinstance(found.get(key), kind):
            raise BadInput(
                f"{path}: a table needs {', '.join(KEYS)}; {key} must be {_NAMES[kind]}, "
                f"got {found.get(key)!r}"
            )
    if not all(isinstance(check, dict) for check in found["checks"]):
        raise BadInput(f"{path}: every check must be a JSON object")
    columns = tuple(map(str, found["columns"]))
    if len(set(columns)) < len(columns):
        raise BadInput(f"{path}: columns must be named once, got {', '.join(columns)}")
    cells = {row: _row(path, row, texts, columns) for row, texts in found["rows"].items()}
    return PublishedTable(
        name=found["name"],
        title=found["title"],
        source=found["source"],
        columns=columns,
        cells=cells,
        checks=tuple(found["checks"]),
        note=found.get("note", ""),
    )


def shipped_tables() -> dict[str, PublishedTable]:
    """{name: table} of the tables that come with the package."""
    tables = [read_table(path) for path in sorted(FOLDER.glob("*.json"))]
    return {table.name: table for table in tables}


def _row(path: Path, row: str, texts: Any, columns: tuple[str, ...]) -> dict[str, Rounded]:
    if not isinstance(texts, list) or len(texts) != len(columns):
        raise BadInput(f"{path}: {row} must have {len(columns)} cells, found {texts!r}")
    cells = {}
    for column, text in zip(columns, texts, strict=True):
        if text is None:
            continue
        if not isinstance(text, str):  # a JSON number has lost its trailing zeros
            raise BadInput(f'{path}: {row}: a cell must be a text such as ".410", got {text!r}')
        try:
            cells[column] = rounded(text)
        except BadInput as error:
            raise BadInput(f"{path}: {row}: {error}") from None
    return cells
