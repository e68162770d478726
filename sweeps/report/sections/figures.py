"""The figures: those for everyone in the open, the others folded."""

from sweeps.report.sections.section import Findings, Section


def section(found: Findings) -> Section:
    """The figures for everyone, each under a heading of its own."""
    return Section("", figures=[one for one in found.figures if not one.appendix])


def more(found: Findings) -> Section:
    """The figures a reader opens."""
    return Section("", figures=[one for one in found.figures if one.appendix])
