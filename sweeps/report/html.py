"""Pages without outside files, from the templates beside this module."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sweeps.report.table import Table

if TYPE_CHECKING:  # draws, which `compare` does not need at first
    from sweeps.report.drawing import Drawing


@dataclass(frozen=True)
class Merit:
    """A number with its name, and below it what it is measured by: an interval, or a ratio."""

    name: str
    value: str
    unit: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page, in the order of page.html."""

    title: str = ""
    merits: Sequence[Merit] = ()  # beside the figure; they open a page
    link: tuple[str, str] | None = None  # (file beside the page, words)
    tables: Sequence[Table] = ()  # each under its title, if it has one
    figures: Sequence["Drawing"] = ()
    groups: Sequence[tuple[str, Sequence[str]]] = ()  # (heading, sentences)
    code: str = ""
    values: Sequence[tuple[str, str]] = ()  # (name, value) in a fixed-width font
    note: str = ""
    is_folded: bool = False  # all of it, under its title


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render(template: str, **content: Any) -> str:
    """The text of a page; whatever is not marked as safe is escaped."""
    return _TEMPLATES.get_template(template).render(**content)


def table_part(shown: Table, sentences: Sequence[str] = ()) -> str:
    """A table above sentences, as part of another page, such as a notebook."""
    return render("table_part.html", table=shown, sentences=sentences)
