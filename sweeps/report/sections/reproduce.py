"""The command, contents and versions that reproduce the sweep."""

from sweeps.report.load import Sweep
from sweeps.report.sections.section import Findings, Section


def section(findings: Findings) -> Section:
    """The command, seeds, contents and versions."""
    sweep = findings.analysis.sweep
    return Section(
        "How to reproduce",
        code=sweep.command,
        values=_origins(sweep),
        note="Beside this page: all numbers, unrounded, in results.json; the table of a paper in "
        "table.md, .tex and .csv; figures in plots/. The page docs/statistics.md in ranksweep's "
        "repository explains each number.",
        is_folded=True,
    )


def _origins(sweep: Sweep) -> list[tuple[str, str]]:
    contents = [
        (f"{kind} {described.get('name', '')}".strip(), str(described["content_hash"]))
        for kind, described in (("collection", sweep.collection), ("backbone", sweep.backbone))
        if "content_hash" in described
    ]
    return [
        *([("seeds", ", ".join(map(str, sweep.seeds)))] if sweep.seeds else []),
        *contents,
        *((name, str(version)) for name, version in sweep.versions.items()),
    ]
