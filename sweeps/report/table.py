"""A table for every medium: terminal, Markdown, LaTeX, CSV; the page draws the same object."""

import csv
import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweeps.plan.terminal import WIDTH, columns

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # after a line's end LaTeX would read these two as its argument
    "*": "{*}",
    "—": "---",
    "−": "$-$",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "↓": r"$\downarrow$",
    "†": r"$\dagger$",
}


@dataclass(frozen=True)
class Cell:
    """A cell of a table, rounded, with marks that every medium draws in its own way."""

    text: str
    letters: tuple[str, ...] = ()  # superscripts, one per baseline, "" without a difference
    note: str = ""  # drawn paler than the text: a deviation, an interval
    face: str = ""  # "best" and "tied" of a column, "lost" for an unfinished trial


@dataclass(frozen=True)
class Row:
    """A line; equal `group`s are adjacent, under their name."""

    cells: tuple[Cell, ...]
    group: str = ""
    style: str = ""  # "baseline" or "lost"


@dataclass(frozen=True)
class Table:
    """Headings, lines, and how the columns align: `l`, `c` or `r` for each."""

    heading: tuple[str, ...]
    rows: tuple[Row, ...]
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


def table_row(*cells: str | Cell, group: str = "", style: str = "") -> Row:
    """A line of texts and cells."""
    row_cells = tuple(Cell(cell) if isinstance(cell, str) else cell for cell in cells)
    return Row(row_cells, group=group, style=style)


def table(
    heading: Sequence[str],
    rows: Iterable[Sequence[str | Cell] | Row],
    align: str = "",
    *,
    title: str = "",
    caption: str = "",
    notes: Sequence[str] = (),
) -> Table:
    """A table of rows or of lists of cells; all columns but the first align right by default."""
    lines = tuple(line if isinstance(line, Row) else table_row(*line) for line in rows)
    align = align or "l".ljust(len(heading), "r")
    return Table(tuple(heading), lines, align, title, caption, tuple(notes))


def without_note(cell: Cell) -> Cell:
    """The value and its letters."""
    return Cell(cell.text, cell.letters, face=cell.face)


def terminal_lines(shown: Table) -> list[str]:
    """The lines of a terminal, without title, groups and caption."""
    lines = [list(shown.heading)]
    for row in shown.rows:
        parts = [(cell.text, "".join(cell.letters), cell.note) for cell in row.cells]
        lines.append([" ".join(part for part in cell if part) for cell in parts])
    return columns(lines, shown.align)


def wrapped(text: str) -> list[str]:
    """The lines of a paragraph; names and paths are not broken."""
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def markdown(shown: Table) -> str:
    """The table in Markdown; letters are superscripts, the best is bold, its equals italic."""
    marks = {"best": "**", "tied": "*"}

    def draw(cell: Cell) -> str:
        mark = marks.get(cell.face, "")
        letters = "".join(cell.letters)
        text = f"{mark}{_escape_markdown(cell.text)}{mark}"
        text += f"<sup>{letters}</sup>" if letters else ""
        return f"{text} {cell.note}" if cell.note else text

    lines = [[_escape_markdown(text) for text in shown.heading]]
    lines.append(["---:" if align == "r" else "---" for align in shown.align])
    for starts, row in _with_groups(shown.rows):
        if starts:
            lines.append([f"*{_escape_markdown(row.group)}*"] + [""] * (len(shown.heading) - 1))
        lines.append([draw(cell) for cell in row.cells])
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    paragraphs = [shown.caption, " ".join(shown.notes)]
    return "\n\n".join([text, *filter(None, paragraphs)]) + "\n"


def latex(shown: Table, label: str = "") -> str:
    """A booktabs table; absent letters keep their width, so the means of a column stay aligned."""
    # The widest letter of every baseline in a column: the width of an absent letter.
    columns = zip(*(row.cells for row in shown.rows), strict=True)
    widest = [
        tuple(max(slot, key=len) for slot in zip(*(c.letters for c in column), strict=True))
        for column in columns
    ]
    lines = [f"% {line}" for note in shown.notes for line in wrapped(note)]
    lines += [r"\begin{table}", r"\centering"]
    # Document classes leave no room between a caption and a table below it.
    lines += [rf"\caption{{{_escape_latex(shown.caption)}}}", r"\smallskip"] * bool(shown.caption)
    lines += [rf"\label{{{label}}}"] if label else []
    lines += [r"\footnotesize", r"\setlength{\tabcolsep}{3pt}"]
    lines += [rf"\begin{{tabular}}{{@{{}}{shown.align}@{{}}}}", r"\toprule"]
    lines += [" & ".join(map(_escape_latex, shown.heading)) + r" \\", r"\midrule"]
    for number, (starts, row) in enumerate(_with_groups(shown.rows)):
        if starts:
            lines += [r"\midrule"] if number else []
            title = rf"\textit{{{_escape_latex(row.group)}}}"
            lines.append(rf"\multicolumn{{{len(shown.heading)}}}{{l}}{{{title}}} \\")
        cells = map(_latex_cell, row.cells, widest)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def csv_text(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The values, unrounded; an undefined value is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heading)
    for values in rows:
        writer.writerow(["" if value is None or _is_nan(value) else value for value in values])
    return out.getvalue()


def _with_groups(rows: Sequence[Row]) -> list[tuple[bool, Row]]:
    groups = ["", *(line.group for line in rows)]
    return [(line.group not in ("", groups[at]), line) for at, line in enumerate(rows)]


def _latex_cell(cell: Cell, widest: Sequence[str]) -> str:
    text = _escape_latex(cell.text)
    face = {"best": "textbf", "tied": "textit"}.get(cell.face)
    text = rf"\{face}{{{text}}}" if face else text
    parts = [_latex_letter(*pair) for pair in zip(cell.letters, widest, strict=True)]
    text += f"$^{{{''.join(parts)}}}$" if any(parts) else ""
    return f"{text} {_escape_latex(cell.note)}" if cell.note else text


def _latex_letter(letter: str, widest: str) -> str:
    """The letter, then empty space up to the width of its baseline's widest entry."""
    full, shown = (
        [rf"\mathrm{{{mark}}}" if mark != "↓" else r"\downarrow" for mark in text]
        for text in (widest, letter)
    )
    rest = "".join(full[len(shown) :])
    return "".join(shown) + (rf"\hphantom{{{rest}}}" if rest else "")


def _escape_markdown(text: str) -> str:
    """`<` stays where it cannot start a tag, as in `<.001`."""
    return re.sub(r"[\\|*_]|<(?=[A-Za-z/!])", r"\\\g<0>", text)


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in text)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
