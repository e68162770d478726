"""How every figure of the report looks, and how it becomes the same SVG text each time."""

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

BLUE, ORANGE, GREY, INK = "#0072b2", "#d55e00", "#767676", "#222222"
"""Colours of Okabe and Ito, which colour-blind readers tell apart."""

WIDTH = 7.4  # inches; the page shows a figure at its own size and scrolls it on a telephone

_SVG_DPI, _PNG_DPI = 72, 160  # an SVG counts in points; a PNG should stand a slide

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, so the outlines are the same everywhere
    "font.size": 9,
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

    @property
    def inline(self) -> str:
        """An `<svg>` element: no date, no outside reference, ids that start with `name`."""
        text = self.svg[self.svg.index("<svg") :]
        text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        # Two figures on one page must not share an id, or one would draw the other's clip paths.
        text = re.sub(r'\bid="', f'id="{self.name}-', text)
        text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{self.name}-", text)
        label = html.escape(self.description)
        return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1).strip()


@dataclass(frozen=True)
class Shown:
    """A figure under its heading; an appendix is folded until a reader opens it."""

    heading: str
    drawing: Drawing
    caption: str
    appendix: bool = False


@contextmanager
def style() -> Iterator[None]:
    """The look of the report's figures, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches that no window or global state knows about."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.set_layout_engine("constrained", w_pad=0.07, h_pad=0.06)
    FigureCanvasSVG(figure)
    return figure


def width_for(labels: list[str]) -> float:
    """Inches for a figure with these row labels: long names must not press the axes together."""
    return WIDTH + 0.07 * max(0, max(map(len, labels), default=0) - 16)


def draw(figure: Figure, *, name: str, description: str) -> Drawing:
    """The figure as text and as pixels; to be called inside `style()`."""
    figure.set_dpi(_SVG_DPI)
    figure.draw_without_rendering()
    # The layout is solved by now; solving it again for each file would take as long as drawing.
    figure.set_layout_engine("none")
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None})
    pixels = io.BytesIO()
    figure.set_dpi(_PNG_DPI)
    FigureCanvasAgg(figure).print_png(pixels, metadata={"Software": None})
    return Drawing(name, description, text.getvalue(), pixels.getvalue())
