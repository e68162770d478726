"""A page without outside files, from the template beside this module."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sweeps.report.table import Table


def render(template: str, **content: Any) -> str:
    """The text of a page; whatever is not marked as safe is escaped."""
    return _environment().get_template(template).render(**content)


def table_part(shown: Table, sentences: Sequence[str] = ()) -> str:
    """A table above sentences, as part of another page, such as a notebook."""
    return render("table_part.html", table=shown, sentences=sentences)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
