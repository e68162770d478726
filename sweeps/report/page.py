"""The page `index.html`: a single file to read, print or mail."""

from collections.abc import Callable, Sequence

from sweeps.report.conclusions import conclusions
from sweeps.report.html import render
from sweeps.report.load import Sweep
from sweeps.report.next_step import next_step
from sweeps.report.sections import agreement, attempts, reliability, results
from sweeps.report.sections.reliability import opened, reliability_sentences
from sweeps.report.sections.section import Findings, Section
from sweeps.report.summary import query_sets


def _figures(findings: Findings) -> Section:
    """The open figures, each under its heading."""
    return Section("", figures=[figure for figure in findings.figures if not figure.appendix])


def _more_figures(findings: Findings) -> Section:
    """The folded figures."""
    return Section("", figures=[figure for figure in findings.figures if figure.appendix])


def _reproduce(findings: Findings) -> Section:
    """The command, seeds, contents and versions."""
    sweep = findings.analysis.sweep
    contents = [
        (f"{kind} {described.get('name', '')}".strip(), str(described["content_hash"]))
        for kind, described in (("collection", sweep.collection), ("backbone", sweep.backbone))
        if "content_hash" in described
    ]
    seeds = [("seeds", ", ".join(map(str, sweep.seeds)))] if sweep.seeds else []
    versions = [(name, str(version)) for name, version in sweep.versions.items()]
    return Section(
        "How to reproduce",
        code=sweep.command,
        values=[*seeds, *contents, *versions],
        note="Beside this page: all numbers, unrounded, in results.json; the table of a paper in "
        "table.md, .tex and .csv; figures in plots/. The page docs/statistics.md in ranksweep's "
        "repository explains each number.",
        is_folded=True,
    )


SECTIONS: tuple[Callable[[Findings], Section | None], ...] = (
    results.section,
    _figures,
    agreement.section,
    reliability.section,
    attempts.section,
    _more_figures,
    _reproduce,
)
"""The sections below the conclusions, in the order of the page and of results.json; None for a
section that the sweep lacks."""


def sections(findings: Findings) -> list[Section]:
    """Every section of the report; some have numbers alone and are not drawn."""
    parts = [section(findings) for section in SECTIONS]
    return [part for part in parts if part is not None]


def sentences(findings: Findings) -> list[str]:
    """The verdict and what qualifies it: at most eight."""
    return [*conclusions(findings.analysis), *reliability_sentences(findings)]


def page(findings: Findings, sections: Sequence[Section]) -> str:
    """The whole page of a sweep as HTML text: the conclusions, then its sections."""
    analysis = findings.analysis
    answer, *notes = sentences(findings)
    step = next_step(analysis)
    return render(
        "page.html",
        title=analysis.sweep.question,
        answer=answer,
        notes=[*notes, *opened(findings), *(step.lines if step else [])],
        facts=_facts(analysis.sweep, sum(system.num_used for system in analysis.cells)),
        sections=[section for section in sections if section.is_drawn],
    )


def _facts(sweep: Sweep, num_runs: int) -> list[str]:
    """The line under the title: measures, split and queries."""
    queries = sweep.scores["query_id"].nunique()
    if sweep.third_party:
        systems = f"{num_runs} runs of {len(sweep.cells)} systems"
        return [systems, f"{queries} queries of {sweep.split}"]
    facts = [sweep.name]
    if "name" in sweep.collection:
        documents = sweep.collection.get("num_documents")
        size = f" ({documents:,} documents)" if isinstance(documents, int) else ""
        facts.append(f"{sweep.collection['name']}{size}")
    sets = [f"{name} {count}" for name, count in query_sets(sweep).items()]
    pooled = f" ({', '.join(sets)})" if sets else ""
    facts.append(f"{queries} queries{pooled} of split {sweep.split_text}")
    if "name" in sweep.backbone:
        facts.append(f"backbone {sweep.backbone['name']}")
    return facts
