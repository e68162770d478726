"""A finding of the doctor, and its lines in a terminal."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from sweeps.plan.terminal import numbered, visible, wrapped

LEVELS = ("ok", "note", "warning", "error")
_INDENT = 11  # columns before the text of a finding


@dataclass(frozen=True)
class Finding:
    """A fact, its consequence and its remedy; level ok needs the fact alone."""

    level: str  # one of LEVELS
    what: str
    why: str = ""
    remedy: str = ""

    @property
    def text(self) -> str:
        """The finding as a line."""
        text = f"{self.what}: {self.why}" if self.why else self.what
        return f"{text}. Remedy: {self.remedy}" if self.remedy else text


def print_finding(finding: Finding) -> None:
    """Prints a finding, its text behind its level; wrapped on a terminal only."""
    line = visible(f"  {finding.level:<{_INDENT - 2}}{finding.text}")
    print(wrapped(line, _INDENT) if sys.stdout.isatty() else line, flush=True)


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
