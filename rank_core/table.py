"""The results table as markdown, LaTeX and CSV. Rounding happens here and nowhere earlier.

Letters: baseline number one is `a`, the next `b`, ...; a baseline is a cell, or a mapping from each
system to its own. Lower case marks a difference when only the queries are random (the customary
test), upper case one that also holds over training runs.
"""

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from rank_core.errors import BadInput
from rank_core.stats.baselines import Slot, by_slot
from rank_core.stats.compare import Comparison
from rank_core.stats.results import ResultCell, ResultRow, caption, slots_in_order

__all__ = ["ResultCell", "ResultRow", "caption", "render_csv", "render_latex", "render_markdown"]

MISSING = "—"

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


@dataclass(frozen=True)
class _Shown:
    """What a reader sees of one measure: the mean, its letter per baseline, and plain columns."""

    mean: str
    bold: bool
    hollow: bool  # not told from the best of its column
    letters: tuple[str, ...]  # one per baseline, "" without a difference
    sd_seeds: str
    plain: tuple[str, ...]  # gain, W/T/L, interval, p


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

    def cell(shown: _Shown, slots: Sequence[str]) -> list[str]:
        letters = "".join(shown.letters)
        mean = f"*{shown.mean}*" if shown.hollow else shown.mean
        mean = f"**{shown.mean}**" if shown.bold else mean
        mean += f"<sup>{letters}</sup>" if letters else ""
        return [f"{mean} ± {shown.sd_seeds}", *shown.plain]

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

    def cell(shown: _Shown, slots: Sequence[str]) -> list[str]:
        parts = [_latex_letter(*pair) for pair in zip(shown.letters, slots, strict=True)]
        mean = _escape_latex(shown.mean)
        face = "textbf" if shown.bold else "textit" if shown.hollow else ""
        mean = rf"\{face}{{{mean}}}" if face else mean
        mean += f"$^{{{''.join(parts)}}}$" if any(parts) else ""
        plain = [_escape_latex(text) for text in shown.plain]
        return [rf"{mean} $\pm$ {_escape_latex(shown.sd_seeds)}", *plain]

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


def render_csv(rows: Sequence[ResultRow]) -> str:
    """One line per system, measure and comparison, nothing rounded; a line without comparison for
    a system that has none."""
    fields = [field.name for field in dataclasses.fields(Comparison)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    own = "label group cell is_baseline seeds_used seeds_launched measure mean sd_seeds".split()
    writer.writerow([*own, *(name for name in fields if name != "measure")])
    for row in rows:
        head = [row.label, row.group, row.cell, row.is_baseline, row.seeds_used, row.seeds_launched]
        for cell in row.cells:
            for comparison in cell.comparisons or (None,):
                values = [
                    "" if comparison is None else getattr(comparison, name)
                    for name in fields
                    if name != "measure"
                ]
                writer.writerow([*head, cell.measure, cell.mean, cell.sd_seeds, *values])
    return out.getvalue()


def _layout(
    rows: Sequence[ResultRow],
    alpha: float,
    digits: int,
    baselines: Sequence[Slot],
    cell: Callable[[_Shown, Sequence[str]], list[str]],
    escape: Callable[[str], str],
    tied: Mapping[str, Collection[str]],
) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The header and the body: (group, []) where a group starts, ("", texts) for a system."""
    measures = _measures(rows)
    slots = slots_in_order(rows, baselines)
    columns = [
        [
            _shown(
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
    body: list[tuple[str, list[str]]] = []
    previous = ""
    for number, row in enumerate(rows):
        if row.group and row.group != previous:
            body.append((row.group, []))
        previous = row.group
        texts = [escape(row.label), f"{row.seeds_used}/{row.seeds_launched}"]
        for i, column in enumerate(columns):
            texts += cell(column[number], widest[i])
        body.append(("", texts))
    return [escape(text) for text in header], body


def _shown(
    row: ResultRow,
    rows: Sequence[ResultRow],
    column: int,
    *,
    alpha: float,
    digits: int,
    slots: Sequence[Slot],
    hollow: bool,
) -> _Shown:
    cell = row.cells[column]
    means = [round(one.cells[column].mean, digits) for one in rows]
    best = max((mean for mean in means if not math.isnan(mean)), default=math.nan)
    found = by_slot(row.cell, cell.comparisons, slots)
    plain = ("", "", "", "")
    if cell.comparison is not None:
        c = cell.comparison
        interval = f"[{_number(c.ci_low, digits)}, {_number(c.ci_high, digits)}]"
        plain = (
            MISSING if math.isnan(c.relative_gain) else f"{_signed(100 * c.relative_gain)} %",
            f"{c.wins}/{c.ties}/{c.losses}",
            MISSING if math.isnan(c.ci_low) else interval,
            _p(c.p_both_adjusted),
        )
    return _Shown(
        mean=_number(cell.mean, digits),
        bold=round(cell.mean, digits) == best,
        hollow=hollow,
        letters=tuple(_letter(one, slot, alpha) for slot, one in enumerate(found)),
        sd_seeds=_number(cell.sd_seeds, digits),
        plain=plain,
    )


def _letter(comparison: Comparison | None, slot: int, alpha: float) -> str:
    """`A`, `a` or nothing, with an arrow for a loss; a NaN p-value marks nothing."""
    if comparison is None:
        return ""
    letter = ascii_lowercase[slot] if comparison.p_queries_adjusted < alpha else ""
    if comparison.p_both_adjusted < alpha:
        letter = ascii_lowercase[slot].upper()
    return f"{letter}↓" if letter and comparison.delta < 0 else letter


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


def _number(value: float, digits: int) -> str:
    """The rounded number with a true minus sign; adding 0 turns a rounded -0 into 0."""
    if math.isnan(value):
        return MISSING
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _p(p: float) -> str:
    if math.isnan(p):
        return MISSING
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


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
