"""The results table as markdown, LaTeX, HTML and CSV. Rounding happens here and nowhere earlier.

Letters: baseline number one is `a`, the next `b`, ...; a baseline is a cell, or a mapping from each
system to its own. Lower case marks a difference when only the queries are random (the customary
test), upper case one that also holds over training runs.
"""

import csv
import dataclasses
import html
import io
from collections.abc import Callable, Collection, Mapping, Sequence

from rank_core.errors import BadInput
from rank_core.stats.baselines import Slot
from rank_core.stats.compare import Comparison
from rank_core.stats.results import ResultCell, ResultRow, caption, slots_in_order
from rank_core.stats.rounded import Shown, average_text, shown_cell

__all__ = [
    "ResultCell",
    "ResultRow",
    "caption",
    "render_csv",
    "render_html",
    "render_latex",
    "render_markdown",
]

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
    "[": "{[}",  # after a line's end these two would be read as its argument
    "*": "{*}",
    "—": "---",
    "−": "$-$",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "↓": r"$\downarrow$",
}


_HTML_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Results</title>
<style>
body { margin: 2rem; color: #222; font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td { border-bottom: 1px solid #ddd; } th { border-bottom: 2px solid #222; }
sup { line-height: 0; } p { max-width: 50rem; color: #666; font-size: .9em; }
</style>
</head>
<body>"""


def render_markdown(
    rows: Sequence[ResultRow],
    *,
    alpha: float = 0.05,
    digits: int = 3,
    baselines: Sequence[Slot] = (),
    caption: str = "",
    tied: Mapping[str, Collection[str]] | None = None,
) -> str:
    """A markdown table; letters stand as superscripts behind the mean.

    `baselines` are the slots of the letters, in their order: a cell or {system: its own baseline}.
    `tied` names, per measure, the cells that no test tells from the best one: italic, the best
    itself is bold.
    """

    def cell(shown: Shown, slots: Sequence[str]) -> list[str]:
        letters = "".join(shown.letters)
        mean = f"*{shown.mean}*" if shown.hollow else shown.mean
        mean = f"**{shown.mean}**" if shown.bold else mean
        mean += f"<sup>{letters}</sup>" if letters else ""
        return [f"{mean}{shown.spread}", *shown.plain]

    header, body = _layout(rows, alpha, digits, baselines, cell, _escape_markdown, tied or {})
    lines = [header, ["---"] * 2 + ["---:"] * (len(header) - 2)]
    for group, row in body:
        lines.append([f"*{_escape_markdown(group)}*"] + [""] * (len(header) - 1) if group else row)
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{text}\n\n{caption}\n" if caption else f"{text}\n"


def render_latex(
    rows: Sequence[ResultRow],
    *,
    alpha: float = 0.05,
    digits: int = 3,
    baselines: Sequence[Slot] = (),
    caption: str = "",
    label: str = "",
    tied: Mapping[str, Collection[str]] | None = None,
) -> str:
    """A booktabs table; absent letters keep their width, so the means of a column stay aligned.

    `tied` is that of `render_markdown`.
    """

    def cell(shown: Shown, slots: Sequence[str]) -> list[str]:
        parts = [_latex_letter(*pair) for pair in zip(shown.letters, slots, strict=True)]
        mean = _escape_latex(shown.mean)
        face = "textbf" if shown.bold else "textit" if shown.hollow else ""
        mean = rf"\{face}{{{mean}}}" if face else mean
        mean += f"$^{{{''.join(parts)}}}$" if any(parts) else ""
        plain = [_escape_latex(text) for text in shown.plain]
        return [f"{mean}{_escape_latex(shown.spread)}", *plain]

    header, body = _layout(rows, alpha, digits, baselines, cell, _escape_latex, tied or {})
    lines = [r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{_escape_latex(caption)}}}"] if caption else []
    lines += [rf"\label{{{label}}}"] if label else []
    lines += [rf"\begin{{tabular}}{{lc{'r' * (len(header) - 2)}}}", r"\toprule"]
    lines += [" & ".join(header) + r" \\", r"\midrule"]
    for number, (group, row) in enumerate(body):
        if group:
            lines += [r"\midrule"] if number else []
            title = rf"\textit{{{_escape_latex(group)}}}"
            lines.append(rf"\multicolumn{{{len(header)}}}{{l}}{{{title}}} \\")
        else:
            lines.append(" & ".join(row) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def render_html(
    rows: Sequence[ResultRow],
    *,
    alpha: float = 0.05,
    digits: int = 3,
    baselines: Sequence[Slot] = (),
    caption: str = "",
    tied: Mapping[str, Collection[str]] | None = None,
) -> str:
    """A page of its own with the table of `render_markdown`, to open or to mail."""

    def cell(shown: Shown, slots: Sequence[str]) -> list[str]:
        mean = f"<i>{shown.mean}</i>" if shown.hollow else shown.mean
        mean = f"<b>{shown.mean}</b>" if shown.bold else mean
        letters = "".join(shown.letters)
        mean += f"<sup>{letters}</sup>" if letters else ""
        return [f"{mean}{shown.spread}", *map(html.escape, shown.plain)]

    header, body = _layout(rows, alpha, digits, baselines, cell, html.escape, tied or {})
    lines = [_HTML_HEAD, "<table>", "<thead>", _html_row(header, "th"), "</thead>", "<tbody>"]
    for group, row in body:
        if group:
            title = html.escape(group)
            lines.append(f'<tr><td colspan="{len(header)}"><i>{title}</i></td></tr>')
        else:
            lines.append(_html_row(row, "td"))
    lines += ["</tbody>", "</table>"]
    lines += [f"<p>{html.escape(caption)}</p>"] if caption else []
    return "\n".join([*lines, "</body>", "</html>", ""])


def render_csv(rows: Sequence[ResultRow]) -> str:
    """One line per system, measure and comparison, nothing rounded; a line without comparison for
    a system that has none."""
    fields = [field.name for field in dataclasses.fields(Comparison)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    own = "label group cell is_baseline seeds_used seeds_launched measure mean sd_seeds".split()
    average = ["average_gain", "average_gain_low", "average_gain_high"]
    writer.writerow([*own, *(name for name in fields if name != "measure"), *average])
    for row in rows:
        head = [row.label, row.group, row.cell, row.is_baseline, row.seeds_used, row.seeds_launched]
        for cell in row.cells:
            for comparison in cell.comparisons or (None,):
                values = [
                    "" if comparison is None else getattr(comparison, name)
                    for name in fields
                    if name != "measure"
                ]
                own_values = [*head, cell.measure, cell.mean, cell.sd_seeds]
                writer.writerow([*own_values, *values, *_average_values(row)])
    return out.getvalue()


def _html_row(texts: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{text}</{tag}>" for text in texts) + "</tr>"


def _average_values(row: ResultRow) -> list[float | str]:
    one = row.average_gain
    return ["", "", ""] if one is None else [one.gain, one.low, one.high]


def _layout(
    rows: Sequence[ResultRow],
    alpha: float,
    digits: int,
    baselines: Sequence[Slot],
    cell: Callable[[Shown, Sequence[str]], list[str]],
    escape: Callable[[str], str],
    tied: Mapping[str, Collection[str]],
) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The header and the body: (group, []) where a group starts, ("", texts) for a system."""
    measures = _measures(rows)
    slots = slots_in_order(rows, baselines)
    columns = [
        [
            shown_cell(
                row,
                rows,
                i,
                alpha=alpha,
                digits=digits,
                slots=slots,
                hollow=row.cell in tied.get(measure, ()),
            )
            for row in rows
        ]
        for i, measure in enumerate(measures)
    ]
    # The widest letter of every baseline in a column: what an absent letter must make room for.
    widest = [
        [max((shown.letters[n] for shown in column), key=len) for n in range(len(slots))]
        for column in columns
    ]
    header = ["system", "seeds"]
    for measure in measures:
        header += [measure, "gain", "W/T/L", f"{100 * (1 - alpha):g} % CI of Δ", "p"]
    averaged = any(row.average_gain is not None for row in rows)
    header += ["avg. gain"] if averaged else []
    body: list[tuple[str, list[str]]] = []
    previous = ""
    for number, row in enumerate(rows):
        if row.group and row.group != previous:
            body.append((row.group, []))
        previous = row.group
        texts = [escape(row.label), f"{row.seeds_used}/{row.seeds_launched}"]
        for i, column in enumerate(columns):
            texts += cell(column[number], widest[i])
        texts += [escape(average_text(row.average_gain))] if averaged else []
        body.append(("", texts))
    return [escape(text) for text in header], body


def _measures(rows: Sequence[ResultRow]) -> list[str]:
    if not rows:
        raise BadInput("a results table needs at least one row")
    measures = [cell.measure for cell in rows[0].cells]
    for row in rows:
        if [cell.measure for cell in row.cells] != measures:
            raise BadInput(
                f"every row needs the measures {', '.join(measures)} in this order, "
                f"got {', '.join(cell.measure for cell in row.cells)} for {row.label}"
            )
    return measures


def _latex_letter(letter: str, slot: str) -> str:
    """The letter, then empty space for what the widest entry of its slot has and it has not."""
    parts = [rf"\mathrm{{{mark}}}" if mark != "↓" else r"\downarrow" for mark in slot]
    shown = [rf"\mathrm{{{mark}}}" if mark != "↓" else r"\downarrow" for mark in letter]
    rest = "".join(parts[len(shown) :])
    return "".join(shown) + (rf"\hphantom{{{rest}}}" if rest else "")


def _escape_markdown(text: str) -> str:
    for mark in "\\|*_<":
        text = text.replace(mark, "\\" + mark)
    return text


def _escape_latex(text: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in text)
