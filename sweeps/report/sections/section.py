"""A section of the report, and its input."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sweeps.report.access import Access
from sweeps.report.analysis import Analysis
from sweeps.report.query_page import Moved
from sweeps.report.reliability import Reliability
from sweeps.report.table import Table

if TYPE_CHECKING:  # draws, which `compare` does not need at first
    from sweeps.report.figures.figure import Shown


@dataclass(frozen=True)
class Findings:
    """The analysis of a sweep, its figures and the accesses to its test values."""

    analysis: Analysis
    reliability: Reliability
    figures: list["Shown"]
    accesses: Sequence[Access]  # to the test values
    queries: Sequence[Moved] = ()  # what `queries.html` shows


@dataclass(frozen=True)
class Section:
    """A part of the page, drawn in the order of the fields, and its keys in results.json."""

    title: str
    link: tuple[str, str] | None = None  # (file beside the page, words)
    tables: Sequence[Table] = ()  # each under its title, if it has one
    folded: Mapping[str, Sequence[Table]] = field(default_factory=dict)  # {words to open: tables}
    figures: Sequence["Shown"] = ()  # an appendix is folded
    code: str = ""
    values: Sequence[tuple[str, str]] = ()  # (name, value) in a fixed-width font
    note: str = ""
    is_folded: bool = False  # all of it, under its title
    results: Mapping[str, Any] = field(default_factory=dict)  # {key of results.json: value}

    @property
    def is_drawn(self) -> bool:
        """True if the page draws it."""
        content = (self.tables, self.folded, self.figures, self.code, self.values, self.note)
        return any(content)
