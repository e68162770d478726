"""A table for every medium: terminal, Markdown, LaTeX, CSV; the page draws the same object."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from sweeps.terminal.escape import csv_cell, latex_label, latex_text, markdown_cell, markdown_text
from sweeps.terminal.text import LEAST_WIDTH, WIDTH, columns, terminal_columns

COLUMN = 225.0
"""Points of a column of a two-column page; ACM, IEEE and LaTeX's own have 229 to 252."""
_WIDEST = 100
"""Columns of a paragraph in a wide terminal: longer lines are hard to read."""
_LETTER, _GAP = 4.7, 6.0  # points of a wide letter in \footnotesize, between two columns


@dataclass(frozen=True)
class TableCell:
    """A cell of a table, rounded, with marks that every medium draws in its own way."""

    text: str
    letters: tuple[str, ...] = ()  # superscripts, one per baseline, "" without a difference
    note: str = ""  # drawn paler than the text: a deviation, an interval
    face: str = ""  # "best" of a column, "lost" for an unfinished trial
    link: str = ""  # a file beside the page
    hint: str = ""  # shown by the page under the pointer
    bar: tuple[float, ...] = ()  # begin and width, in percent, of a bar that the page draws


@dataclass(frozen=True)
class TableRow:
    """A line; equal `group`s are adjacent, under their name."""

    cells: tuple[TableCell, ...]
    group: str = ""
    style: str = ""  # "baseline", "lost" or "relevant"


@dataclass(frozen=True)
class Table:
    """Headings, lines, and how the columns align: `l`, `c` or `r` for each."""

    heading: tuple[str, ...]
    rows: tuple[TableRow, ...]
    align: str
    title: str = ""
    caption: str = ""
    notes: tuple[str, ...] = ()  # below the caption; comments in LaTeX

    @property
    def widest_notes(self) -> list[str]:
        """The longest note of each column; "" for one that aligns left."""
        columns = zip(self.align, *(row.cells for row in self.rows), strict=True)
        return [
            max((cell.note for cell in cells), key=len) if align == "r" else ""
            for align, *cells in columns
        ]


def table_row(*cells: str | TableCell, group: str = "", style: str = "") -> TableRow:
    """A line of texts and cells."""
    row_cells = tuple(TableCell(cell) if isinstance(cell, str) else cell for cell in cells)
    return TableRow(row_cells, group=group, style=style)


def table(
    heading: Sequence[str],
    rows: Iterable[Sequence[str | TableCell] | TableRow],
    align: str = "",
    *,
    title: str = "",
    caption: str = "",
    notes: Sequence[str] = (),
) -> Table:
    """A table of rows or of lists of cells; all columns but the first align right by default."""
    lines = tuple(line if isinstance(line, TableRow) else table_row(*line) for line in rows)
    align = align or "l".ljust(len(heading), "r")
    return Table(tuple(heading), lines, align, title, caption, tuple(notes))


def terminal_lines(shown: Table, names: Sequence[int] = (0,)) -> list[str]:
    """The lines of a terminal, without title, groups and caption; the columns `names` are wrapped
    where the table is wider than it."""
    lines = [list(shown.heading)]
    for row in shown.rows:
        parts = [(cell.text, "".join(cell.letters), cell.note) for cell in row.cells]
        lines.append([" ".join(part for part in cell if part) for cell in parts])
    return columns(lines, shown.align, most=terminal_columns(), names=names)


def wrapped(text: str, width: int = 0) -> list[str]:
    """The lines of a paragraph in a terminal, or of another `width`; names and paths are not
    broken."""
    width = width or min(max(LEAST_WIDTH, terminal_columns()), _WIDEST)
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def markdown(shown: Table) -> str:
    """The table in Markdown; letters are superscripts, the best is bold."""

    def draw(cell: TableCell) -> str:
        mark = "**" * (cell.face == "best")
        letters = markdown_cell("".join(cell.letters))
        text = f"{mark}{markdown_cell(cell.text)}{mark}"
        text += f"<sup>{letters}</sup>" if letters else ""
        return f"{text} {markdown_cell(cell.note)}" if cell.note else text

    lines = [[markdown_cell(text) for text in shown.heading]]
    lines.append(["---:" if align == "r" else "---" for align in shown.align])
    for starts, row in _with_groups(shown.rows):
        if starts:
            lines.append([f"*{markdown_cell(row.group)}*"] + [""] * (len(shown.heading) - 1))
        lines.append([draw(cell) for cell in row.cells])
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    paragraphs = [*shown.caption.split("\n\n"), " ".join(shown.notes)]
    return "\n\n".join([text, *map(markdown_text, filter(None, paragraphs))]) + "\n"


def latex(shown: Table, label: str = "") -> str:
    """A booktabs table, over both columns of a two-column page if it is wider than one; absent
    letters keep their width, so the means of a column stay aligned."""
    # The widest letter of every baseline in a column: the width of an absent letter.
    letters = [
        [cell.letters for cell in column]
        for column in zip(*(r.cells for r in shown.rows), strict=True)
    ]
    widest = [tuple(max(slot, key=len) for slot in zip(*column, strict=True)) for column in letters]
    lines = [f"% {line}" for note in shown.notes for line in wrapped(note, WIDTH)]
    kind = "table*" if _latex_width(shown) > COLUMN else "table"
    lines += [rf"\begin{{{kind}}}", r"\centering"]
    # Document classes leave no room between a caption and a table below it.
    lines += [rf"\caption{{{latex_text(shown.caption)}}}", r"\smallskip"] * bool(shown.caption)
    lines += [rf"\label{{{latex_label(label)}}}"] if label else []
    lines += [r"\footnotesize", r"\setlength{\tabcolsep}{3pt}"]
    lines += [rf"\begin{{tabular}}{{@{{}}{shown.align}@{{}}}}", r"\toprule"]
    lines += [" & ".join(latex_text(text) for text in shown.heading) + r" \\", r"\midrule"]
    for number, (starts, row) in enumerate(_with_groups(shown.rows)):
        if starts:
            lines += [r"\midrule"] if number else []
            title = rf"\textit{{{latex_text(row.group)}}}"
            lines.append(rf"\multicolumn{{{len(shown.heading)}}}{{l}}{{{title}}} \\")
        cells = map(_latex_cell, row.cells, widest)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", rf"\end{{{kind}}}", ""])


def _latex_width(shown: Table) -> float:
    """The points that a table takes, at most: a wide letter everywhere."""
    cells = [[c.text + "".join(c.letters) + c.note for c in row.cells] for row in shown.rows]
    widest = [max(map(len, column)) for column in zip(shown.heading, *cells, strict=True)]
    return _LETTER * sum(widest) + _GAP * (len(widest) - 1)


def csv_text(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The values, unrounded; an undefined value is an empty field."""
    values = pd.DataFrame(
        [[*map(csv_cell, row)] for row in rows], columns=list(heading), dtype=object
    )
    text: str = values.to_csv(index=False, lineterminator="\n")
    return text


def _with_groups(rows: Sequence[TableRow]) -> list[tuple[bool, TableRow]]:
    groups = ["", *(line.group for line in rows)]
    return [(line.group not in ("", groups[at]), line) for at, line in enumerate(rows)]


def _latex_cell(cell: TableCell, widest: Sequence[str]) -> str:
    text = latex_text(cell.text)
    text = rf"\textbf{{{text}}}" if cell.face == "best" else text
    parts = [_latex_letter(*pair) for pair in zip(cell.letters, widest, strict=True)]
    text += f"$^{{{''.join(parts)}}}$" if any(parts) else ""
    return f"{text} {latex_text(cell.note)}" if cell.note else text


def _latex_letter(letter: str, widest: str) -> str:
    """The letter, then empty space up to the width of its baseline's widest entry."""
    full, shown = (
        [rf"\mathrm{{{mark}}}" if mark != "↓" else r"\downarrow" for mark in text]
        for text in (widest, letter)
    )
    rest = "".join(full[len(shown) :])
    return "".join(shown) + (rf"\hphantom{{{rest}}}" if rest else "")
