"""A finding of the doctor, and its lines in a terminal."""

import os
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from sweeps.plan.terminal import numbered

LEVELS = ("ok", "note", "warning", "error")
_INDENT = 11  # columns before the text of a finding
_NARROWEST = 40


@dataclass(frozen=True)
class Finding:
    """A fact, its consequence and its remedy; level ok needs the fact alone."""

    level: str  # one of LEVELS
    what: str
    why: str = ""
    remedy: str = ""

    def __post_init__(self) -> None:
        assert self.level in LEVELS

    @property
    def text(self) -> str:
        """The finding as a line."""
        text = f"{self.what}: {self.why}" if self.why else self.what
        return f"{text}. Remedy: {self.remedy}" if self.remedy else text


def line_width() -> int | None:
    """Columns to wrap at: COLUMNS, or the terminal's; None for a pipe, one line per finding."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns):
        return max(_NARROWEST, int(columns))
    return max(_NARROWEST, os.get_terminal_size().columns) if sys.stdout.isatty() else None


def finding_text(finding: Finding, width: int | None) -> str:
    """A finding, its text aligned behind its level."""
    head = f"  {finding.level:<{_INDENT - 2}}"
    if width is None:
        return head + finding.text
    return textwrap.fill(
        finding.text,
        width,
        initial_indent=head,
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def verdict(findings: Iterable[Finding]) -> str:
    """The last line: the number of findings of each level."""
    levels = [finding.level for finding in findings]
    counts = [
        numbered(levels.count(level), level) for level in reversed(LEVELS[1:]) if level in levels
    ]
    return ", ".join(counts) if counts else "no problem found"


def exit_code(findings: Iterable[Finding]) -> int:
    """2 if there are errors."""
    return 2 if any(finding.level == "error" for finding in findings) else 0
