"""The page `index.html`, a single file to read, print or mail, and `results.json` with all of its
numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rank_core.stats.positions import PositionCurves
from sweeps.findings.analysis import Analysis
from sweeps.findings.every import COSTS
from sweeps.findings.every import findings as rows_of
from sweeps.findings.finding import Finding
from sweeps.findings.interactions import rows as rows_between
from sweeps.report import chunk_sizes
from sweeps.report.caption import warnings_of
from sweeps.report.finding_table import finding_table
from sweeps.report.headline import AFTER_CHOICE, headline
from sweeps.report.html import Section, render
from sweeps.report.machines import machines_sentence
from sweeps.report.merits import merits
from sweeps.report.next_step import next_step
from sweeps.report.over_sets import SETS, OverSets
from sweeps.report.positions import position_results, position_table
from sweeps.report.query_page import QUERY_PAGE, Moved, moved_text
from sweeps.report.results import json_text, page_table, shared_results
from sweeps.report.selected_blocks import selected_results, selected_table
from sweeps.report.table import Table, table
from sweeps.systems.access_log import Access
from sweeps.systems.load import Sweep
from sweeps.systems.summary import query_set_means, query_sets

if TYPE_CHECKING:  # draws, which `verify` does not need
    from sweeps.report.drawing import Drawing


@dataclass(frozen=True)
class Content:
    """The analysis of a sweep and all that its page shows beside it."""

    analysis: Analysis
    figures: Sequence["Drawing"] = ()
    accesses: Sequence[Access] = ()  # to the test values
    queries: Sequence[Moved] = ()  # what `queries.html` shows
    places: PositionCurves | None = None  # the measure by the place of the evidence
    over: OverSets | None = None  # the systems over all test sets

    @property
    def findings(self) -> list[Finding]:
        """The rows of all questions."""
        return rows_of(self.analysis, self.accesses)


def results_json(content: Content, more: Mapping[str, Any] | None = None) -> str:
    """The numbers of the page, its findings and `more`; NaN is null."""
    sweep = content.analysis.sweep
    results = shared_results(content.analysis) | {
        # The time of an access is no result: it is on the page alone.
        "findings": [asdict(row) for row in rows_of(content.analysis)],
        "query_sets": {"sizes": query_sets(sweep), "means": query_set_means(sweep)},
    }
    if content.places:
        results["positions"] = position_results(content.analysis, content.places)
    if sweep.selected_blocks:
        results["selected_blocks"] = selected_results(sweep)
    results["trials"] = sweep.trials.to_dict("records")
    results["lost_attempts"] = sweep.failures.to_dict("records")
    if serving := sweep.serving:
        tokens = {n: getattr(serving, n) for n in ("read_tokens", "separate_tokens")}
        results["serving"] = {**serving.setting, "systems": serving.rows, **tokens}
    results |= chunk_sizes.results(content.analysis)
    return json_text(results | dict(more or {}))


def page(content: Content) -> str:
    """The whole page of a sweep as HTML text: the headline, then its sections."""
    analysis = content.analysis
    said = headline(analysis)
    # The first figure has the mean of the model alone, and this gain.
    more = [
        text
        for text in said.more[said.mean_alone is not None :]
        if not text.startswith(AFTER_CHOICE)
    ]
    return render(
        "page.html",
        title=analysis.sweep.question,
        answer=said.sentence,
        notes=[
            *more,
            *analysis.sweep.notes,
            *warnings_of(analysis),
            *filter(None, [machines_sentence(analysis)]),
        ],
        facts=[],
        sections=sections(content),
    )


FIGURES = {
    "queries": "Queries",
    "positions": "Queries",
    "selected_blocks": "Queries",
    "pareto": "Cost",
}
"""{figure: the folded section that it is in}; the first figure is unfolded, others are about
reliability."""


def sections(content: Content) -> list[Section]:
    """The sections below the headline, in their order; a new one is an entry here."""
    analysis, sweep = content.analysis, content.analysis.sweep
    moved, shown = moved_text(analysis, content.queries), page_table(analysis)
    if moved and analysis.choice:
        shown = _linked(shown, analysis.choice.label)
    step = next_step(analysis)
    command = [("Next", step.command)] if step and step.command else []
    facts = " · ".join(_facts(sweep, sum(system.num_used for system in analysis.cells)))
    folded: dict[str, list[Drawing]] = {"Reliability": [], "Queries": [], "Cost": []}
    for figure in content.figures:
        if figure.name != "forest":
            folded[FIGURES.get(figure.name, "Reliability")].append(figure)
    found = {True: list[Finding](), False: list[Finding]()}
    for row in content.findings:
        found[row.question in COSTS].append(row)
    return [
        Section(
            merits=merits(analysis, headline(analysis)),
            values=command,
            note=step.why if step and not step.command else "",
        ),
        Section("Systems", tables=[shown], note=facts),
        Section(figures=[one for one in content.figures if one.name == "forest"]),
        *_over_sets(content.over),
        Section(
            "Reliability",
            tables=[finding_table(found[False], sweep.digits)],
            figures=folded["Reliability"],
            is_folded=True,
        ),
        Section(
            "Queries",
            link=(QUERY_PAGE, moved) if moved else None,
            tables=[*_query_sets(analysis), *_places(content), *_selected(sweep)],
            figures=folded["Queries"],
            is_folded=True,
        ),
        Section(
            "Cost",
            tables=[finding_table(found[True], sweep.digits), *chunk_sizes.tables(analysis)],
            figures=folded["Cost"],
            note=chunk_sizes.left_out(analysis) if sweep.indexes else "",
            is_folded=True,
        ),
        _reproduce(analysis),
    ]


def _linked(shown: Table, label: str) -> Table:
    """The table in which the row of a system leads to its queries."""
    rows = (
        replace(row, cells=(replace(row.cells[0], link=QUERY_PAGE), *row.cells[1:]))
        if row.cells[0].text == label
        else row
        for row in shown.rows
    )
    return replace(shown, rows=tuple(rows))


def _over_sets(over: OverSets | None) -> list[Section]:
    """The table over all test sets, and whether gains differ between them."""
    if over is None:
        return []
    found = finding_table(rows_between(over.analysis), over.sweep.digits)
    return [
        Section(
            "All test sets",
            tables=[page_table(over.analysis), replace(found, title="Gains on two sets")],
            note=" ".join(over.left_out),
            link=(f"{SETS}/index.html", "All numbers of this table"),
        )
    ]


def _places(content: Content) -> list[Table]:
    """The table of the measure by the place of the evidence, where that is known."""
    if content.places is None:
        return []
    return [
        replace(position_table(content.analysis, content.places), title="Place of the evidence")
    ]


def _selected(sweep: Sweep) -> list[Table]:
    """The table of the places of selected blocks, where they were kept."""
    return [selected_table(sweep)] if sweep.selected_blocks else []


def _query_sets(analysis: Analysis) -> list[Table]:
    """A table of the mean over all queries and that of every query set, where there are several."""
    means, sizes = query_set_means(analysis.sweep), query_sets(analysis.sweep)
    primary = analysis.sweep.primary
    if not means:
        return []
    rows = [
        (s.cell.label, f"{s.mean(primary):.3f}", *(f"{means[s.cell.cell][n]:.3f}" for n in sizes))
        for s in analysis.cells
        if s.num_used
    ]
    heading = "system", f"all ({sum(sizes.values())})", *(f"{n} ({sizes[n]})" for n in sizes)
    words = "The first column is the mean over all queries, not over the sets."
    title = f"{primary} by query set"
    return [table(heading, rows, title=title, caption=words)]


def _reproduce(analysis: Analysis) -> Section:
    """The command, seeds, contents and versions."""
    sweep = analysis.sweep
    contents = [
        (f"{kind} {described.get('name', '')}".strip(), str(described["content_hash"]))
        for kind, described in (
            ("collection", sweep.about.collection),
            ("backbone", sweep.about.backbone),
        )
        if "content_hash" in described
    ]
    seeds = sweep.about.seeds if analysis.has_seeds else ()
    versions = [(name, str(version)) for name, version in sweep.about.versions.items()]
    return Section(
        "Reproduce",
        code=sweep.about.command,
        values=[*[("seeds", ", ".join(map(str, seeds)))] * bool(seeds), *contents, *versions],
        note="The files beside this page: results.json has all numbers, unrounded; table.md, .tex "
        "and .csv have the table for a paper; plots/ has the figures. The page docs/statistics.md "
        "in ranksweep's repository explains each number.",
        is_folded=True,
    )


def _facts(sweep: Sweep, num_runs: int) -> list[str]:
    """The line under the title: measures, split and queries."""
    queries = sweep.scores["query_id"].nunique()
    if sweep.third_party:
        systems = f"{num_runs} runs of {len(sweep.cells)} systems"
        return [systems, f"{queries} queries of {sweep.split}"]
    facts = [sweep.about.sweep]
    if "name" in sweep.about.collection:
        documents = sweep.about.collection.get("num_documents")
        size = f" ({documents:,} documents)" if isinstance(documents, int) else ""
        facts.append(f"{sweep.about.collection['name']}{size}")
    sets = [f"{name} {count}" for name, count in query_sets(sweep).items()]
    pooled = f" ({', '.join(sets)})" if sets else ""
    facts.append(f"{queries} queries{pooled} of split {sweep.split_text}")
    if "name" in sweep.about.backbone:
        backbone = sweep.about.backbone
        head = f" ({backbone['head']})" if "head" in backbone else ""
        facts.append(f"backbone {backbone['name']}{head}")
    return facts
