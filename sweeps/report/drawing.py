"""The style of the report's figures, and their reproducible SVG text."""

import html
import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from sweeps.terminal.text import shortened

BLUE, ORANGE, GREY, INK = "#0072b2", "#d55e00", "#767676", "#222222"
"""Colours of Okabe and Ito, distinct to colour-blind readers."""
LINE, PAPER, BAND = "#e6e6e6", "#ffffff", "#dcebf5"
ALERT = "#b34700"  # of text, for which ORANGE is too pale
DARK = "#1b1b1b"  # on a coloured ground: it stays dark where the page does not

_LABEL = 28
"""Letters of a row's name."""
WIDTH = 4.8  # inches; readable when scaled down to a telephone

_HINT = "hint: "
"""The beginning of the id of a mark whose rest becomes its title."""

_SVG_DPI, _PNG_DPI = 72, 160  # an SVG is in points; a PNG is large enough for a slide

_FOLLOWS = {INK: "ink", GREY: "soft", LINE: "line", PAPER: "paper", ALERT: "lost", BLUE: "mark",
            BAND: "band"}  # fmt: skip
"""Colours of the page, which change in dark mode."""

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same outlines everywhere
    "font.size": 9.5,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "hatch.color": "#c4c4c4",
    "hatch.linewidth": 0.8,
    "svg.fonttype": "path",
    "svg.hashsalt": "ranksweep",
    "mathtext.default": "regular",
}


@dataclass(frozen=True)
class Drawing:
    """A finished figure, as files and as an element of a page."""

    name: str
    description: str
    svg: str
    png: bytes
    figure: Figure
    heading: str = ""
    caption: str = ""

    @property
    def inline(self) -> str:
        """An `<svg>` element: no date, no outside reference, ids that start with `name`."""
        text = self.svg[self.svg.index("<svg") :]
        text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        # Two figures on one page must not share an id, or one would draw the other's clip paths.
        text = re.sub(r'\bid="', f'id="{self.name}-', text)
        text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{self.name}-", text)
        for colour, name in _FOLLOWS.items():
            text = text.replace(colour, f"var(--{name}, {colour})")
        points = float(re.findall(r'width="([\d.]+)pt"', text)[0])
        size = f'style="width: {points * 4 / 3:.0f}px; min-width: {points:.0f}px"'
        label = html.escape(self.description)
        return text.replace("<svg ", f'<svg role="img" aria-label="{label}" {size} ', 1).strip()


@contextmanager
def style() -> Iterator[None]:
    """The style of the report's figures, whatever the user's matplotlibrc says: decorate what draws
    them."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        # Names in a script that the font lacks: the tables beside a figure have them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


class ReportFigure(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        width, height = (round(96 * inches) for inches in self.get_size_inches())
        return _png(self), {"width": width, "height": height}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches, without a window or global state."""
    figure = ReportFigure(figsize=(width, height), layout="constrained")
    figure.set_layout_engine("constrained", w_pad=0.07, h_pad=0.06)
    FigureCanvasSVG(figure)
    return figure


def figure_of_rows(
    labels: list[str], height: float, *, width: float | None = None
) -> tuple[Figure, Axes]:
    """A figure with a named row for each label; long names are shortened, and must not squeeze the
    axes, unless the `width` is given."""
    longest = max(map(len, labels), default=0)
    wide = WIDTH + 0.07 * min(max(0, longest - 14), _LABEL - 14)
    figure = new_figure(width or wide, height)
    axes = figure.add_subplot()
    axes.set_yticks(range(len(labels)), [shortened(label, _LABEL) for label in labels])
    axes.tick_params(axis="y", length=0)
    grid(axes, "x")
    return figure, axes


def grid(axes: Axes, axis: Literal["x", "y", "both"] = "both") -> None:
    """Pale lines behind the data."""
    axes.grid(axis=axis, color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)


def near(rows: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The range of all values without those of a row that would press the others into less than a
    third of it."""
    kept = [known for row in rows if (known := [value for value in row if not math.isnan(value)])]

    def span(some: Sequence[Sequence[float]]) -> float:
        return max(map(max, some)) - min(map(min, some))

    while len(kept) > 3:
        rest = min((kept[:at] + kept[at + 1 :] for at in range(len(kept))), key=span)
        if span(rest) > 0.3 * span(kept):
            break
        kept = rest
    return (min(map(min, kept)), max(map(max, kept))) if kept else (0.0, 1.0)


def edge_note(
    axes: Axes,
    row: float,
    values: Sequence[tuple[str, float]],
    ends: tuple[float, float],
    colour: str = ALERT,
) -> None:
    """The values (text, number) outside the axis, as numbers at its edges."""
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1}
    for side, edge, form, far in (
        ("left", ends[0], "◂ {}", [text for text, value in values if value < ends[0]]),
        ("right", ends[1], "{} ▸", [text for text, value in values if value > ends[1]]),
    ):
        if far:
            text = form.format(", ".join(far))
            axes.text(edge, row, text, color=colour, fontsize=9, ha=side, va="center", bbox=box)


def legend(figure: Figure, columns: int = 2) -> None:
    """The legend of all labelled marks, above the axes; in one column where names are too long for
    several."""
    for ncols in dict.fromkeys((columns, 1)):
        box = figure.legend(loc="outside upper left", ncols=ncols, frameon=False, fontsize=9)
        if ncols == 1 or box.get_window_extent().width <= figure.bbox.width:
            return
        box.remove()


def hint(artist: Artist, text: str) -> None:
    """The text that a browser shows while the pointer is over a mark."""
    artist.set_gid(_HINT + text)


def draw(figure: Figure, name: str, description: str, **shown: Any) -> Drawing:
    """The figure as SVG and PNG, in `style()`; `shown`: heading, caption and place on a page."""
    figure.set_dpi(_SVG_DPI)
    figure.draw_without_rendering()
    # The layout is done; to repeat it for each file would take as long as drawing.
    figure.set_layout_engine("none")
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
    svg = re.sub(f'<g id="{_HINT}([^"]*)">', r"<g><title>\1</title>", text.getvalue())
    return Drawing(name, description, svg, _png(figure), figure, **shown)


def _png(figure: Figure) -> bytes:
    pixels = io.BytesIO()
    figure.set_dpi(_PNG_DPI)
    FigureCanvasAgg(figure).print_png(pixels, metadata={"Software": None})
    return pixels.getvalue()
