"""How every figure of the report looks, and how it becomes the same SVG text each time."""

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

BLUE, ORANGE, GREY, INK = "#0072b2", "#d55e00", "#767676", "#222222"
"""Colours of Okabe and Ito, which colour-blind readers tell apart."""

WIDTH = 7.4  # inches; the page shows a figure at its own size and scrolls it on a telephone

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
    FigureCanvasSVG(figure)
    return figure


def width_for(labels: list[str]) -> float:
    """Inches for a figure with these row labels: long names must not press the axes together."""
    return WIDTH + 0.07 * max(0, max(map(len, labels), default=0) - 16)


def svg(figure: Figure, *, name: str, description: str) -> str:
    """An `<svg>` element for a page: no date, no outside reference, ids that start with `name`."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Two figures on one page must not share an id, or one would draw the other's clip paths.
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    return text.replace(
        "<svg ", f'<svg role="img" aria-label="{html.escape(description)}" ', 1
    ).strip()
