"""The page `index.html`: a single file to read, print or mail."""

from collections.abc import Callable, Sequence

from sweeps.report.analysis import Analysis
from sweeps.report.conclusions import conclusions
from sweeps.report.html import render
from sweeps.report.sections import agreement, attempts, figures, reliability, reproduce, results
from sweeps.report.sections.section import Findings, Section
from sweeps.report.summary import query_sets

SECTIONS: tuple[Callable[[Findings], Section | None], ...] = (
    results.section,
    figures.section,
    agreement.section,
    reliability.section,
    attempts.section,
    figures.more,
    reproduce.section,
)
"""The sections below the conclusions, in the order of the page and of results.json; None for a
section that the sweep lacks."""


def sections(findings: Findings) -> list[Section]:
    """Every section of the report; some have numbers alone and are not drawn."""
    parts = [section(findings) for section in SECTIONS]
    return [part for part in parts if part is not None]


def page(analysis: Analysis, sections: Sequence[Section]) -> str:
    """The whole page of a sweep as HTML text: the conclusions, then its sections."""
    answer, *notes = conclusions(analysis)
    return render(
        "page.html",
        title=analysis.sweep.question,
        answer=answer,
        notes=notes,
        facts=_facts(analysis),
        sections=[section for section in sections if section.is_drawn],
    )


def _facts(analysis: Analysis) -> list[str]:
    """The line under the title: measures, split and queries."""
    sweep = analysis.sweep
    if sweep.third_party:
        runs = sum(system.num_used for system in analysis.cells)
        queries = sweep.scores["query_id"].nunique()
        return [f"{runs} runs of {len(sweep.cells)} systems", f"{queries} queries of {sweep.split}"]
    facts = [sweep.name]
    if "name" in sweep.collection:
        documents = sweep.collection.get("num_documents")
        size = f" ({documents:,} documents)" if isinstance(documents, int) else ""
        facts.append(f"{sweep.collection['name']}{size}")
    sets = [f"{name} {count}" for name, count in query_sets(sweep).items()]
    pooled = f" ({', '.join(sets)})" if sets else ""
    facts.append(
        f"{sweep.scores['query_id'].nunique()} queries{pooled} of split {sweep.split_text}"
    )
    if "name" in sweep.backbone:
        facts.append(f"backbone {sweep.backbone['name']}")
    return facts
