"""The figures, an appendix folded."""

from sweeps.report.sections.section import Findings, Section


def section(findings: Findings) -> Section:
    """The open figures, each under its heading."""
    return Section("", figures=[figure for figure in findings.figures if not figure.appendix])


def more(findings: Findings) -> Section:
    """The folded figures."""
    return Section("", figures=[figure for figure in findings.figures if figure.appendix])
