"""The figures, an appendix folded."""

from sweeps.report.sections.section import Findings, Section


def section(found: Findings) -> Section:
    """The open figures, each under its heading."""
    return Section("", figures=[one for one in found.figures if not one.appendix])


def more(found: Findings) -> Section:
    """The folded figures."""
    return Section("", figures=[one for one in found.figures if one.appendix])
