"""The page `index.html`, a single file to read, print or mail, and `results.json` with all of its
numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rank_core.stats.positions import PositionCurves
from sweeps.report import chunk_sizes
from sweeps.report.agreement import Agreement, shared_documents
from sweeps.report.analysis import Analysis
from sweeps.report.caption import copies_sentence, not_distinguishable, without_variance
from sweeps.report.conclusions import (
    answer,
    below_first_stage,
    conclusions,
    confirmation,
    correction,
    fates,
    of_search,
    scope,
)
from sweeps.report.headline import headline
from sweeps.report.html import Section, render
from sweeps.report.interactions import interaction_sentences
from sweeps.report.machines import machines_sentence
from sweeps.report.merits import merits
from sweeps.report.next_step import next_step
from sweeps.report.positions import position_results, position_table
from sweeps.report.query_page import QUERY_PAGE, Moved, moved_text
from sweeps.report.reliability import (
    Reliability,
    best_gain,
    pairing_sentence,
    power,
    reliability_results,
    reliability_sentences,
    seed_variance,
    stability,
)
from sweeps.report.results import json_text, page_table, shared_results
from sweeps.report.table import Table, table
from sweeps.report.unjudged import unjudged_sentences
from sweeps.systems.access import Access, access_sentence
from sweeps.systems.load import Sweep
from sweeps.systems.summary import query_set_means, query_sets

if TYPE_CHECKING:  # draws, which `verify` does not need
    from sweeps.report.drawing import Drawing


@dataclass(frozen=True)
class Findings:
    """The analysis of a sweep and all that its page shows beside it."""

    analysis: Analysis
    reliability: Reliability
    figures: Sequence["Drawing"] = ()
    accesses: Sequence[Access] = ()  # to the test values
    queries: Sequence[Moved] = ()  # what `queries.html` shows
    agreement: Sequence[Agreement] = ()
    places: PositionCurves | None = None  # the measure by the place of the evidence


def sentences(findings: Findings) -> list[str]:
    """The verdict and what qualifies it: at most nine."""
    said = reliability_sentences(findings.analysis, findings.reliability)
    return [*conclusions(findings.analysis), *said]


def results_json(findings: Findings, more: Mapping[str, Any] | None = None) -> str:
    """The numbers of the page, their variance components, its sentences and `more`; NaN is null."""
    sweep = findings.analysis.sweep
    results = shared_results(findings.analysis) | {
        "conclusions": sentences(findings),
        "query_sets": {"sizes": query_sets(sweep), "means": query_set_means(sweep)},
    }
    if findings.agreement:
        results["agreement"] = [asdict(row) for row in findings.agreement]
    if findings.places:
        results["positions"] = position_results(findings.analysis, findings.places)
    results["reliability"] = reliability_results(findings.reliability)
    results["trials"] = sweep.trials.to_dict("records")
    results["lost_attempts"] = sweep.failures.to_dict("records")
    if serving := sweep.serving:
        tokens = {n: getattr(serving, n) for n in ("read_tokens", "separate_tokens")}
        results["serving"] = {**serving.setting, "systems": serving.rows, **tokens}
    results |= chunk_sizes.results(findings.analysis)
    return json_text(results | dict(more or {}))


def page(findings: Findings) -> str:
    """The whole page of a sweep as HTML text: the headline, then its sections."""
    analysis = findings.analysis
    said = headline(analysis)
    return render(
        "page.html",
        title=analysis.sweep.question,
        answer=said.text,
        notes=[*filter(None, [machines_sentence(analysis)])],
        facts=[],
        sections=sections(findings),
    )


def sections(findings: Findings) -> list[Section]:
    """The sections below the headline, in their order; a new one is an entry here."""
    analysis, sweep = findings.analysis, findings.analysis.sweep
    found = merits(analysis, headline(analysis))
    at = int(bool(found))  # the first figure is that of the gains, where there are some
    moved = moved_text(analysis, findings.queries)
    sets, shown = _query_sets(analysis), page_table(analysis)
    if moved and analysis.choice:
        shown = _linked(shown, analysis.choice.label)
    step = next_step(analysis)
    command = [("Next", step.command)] if step and step.command else []
    words = step.why if step and not step.command else ""
    facts = " · ".join(_facts(sweep, sum(system.num_used for system in analysis.cells)))
    link = (QUERY_PAGE, moved) if moved else None
    parts = [
        Section(merits=found, values=command, note=words, figures=findings.figures[:at]),
        Section("Systems", tables=[shown], note=facts),
        *chunk_sizes.sections(analysis),
        Section(f"{sweep.primary} by query set", tables=sets, is_folded=True) if sets else None,
        _places(findings),
        Section("How sure is this?", groups=certainty_groups(findings), is_folded=True),
        Section(link=link, figures=findings.figures[at:]),
        _reproduce(sweep),
    ]
    return [part for part in parts if part]


def certainty_groups(findings: Findings) -> list[tuple[str, list[str]]]:
    """What qualifies the headline: sentences under five headings, without the empty ones."""
    analysis, judged = findings.analysis, findings.reliability
    sweep, step = analysis.sweep, next_step(analysis)
    variance = seed_variance(analysis, judged)
    own = [chunk_sizes.left_out(analysis)] if sweep.indexes else []
    if sweep.serving:
        own = [sweep.serving.cost]
    groups = {
        "Comparisons": [
            *own, not_distinguishable(analysis),
            answer(analysis), below_first_stage(analysis),
            *interaction_sentences(analysis), scope(analysis), without_variance(analysis),
            copies_sentence(analysis) * bool(analysis.primary),
        ],
        "Choice and correction": [
            of_search(analysis), confirmation(analysis),
            correction(analysis),
            # The time of an access is no result: it is on the page alone.
            best_gain(analysis, judged.limits, judged), access_sentence(findings.accesses),
        ],
        "Seeds": [
            *fates(analysis), variance,
            pairing_sentence(sweep, judged.pairing, paired=analysis.paired),
            stability(analysis, judged),
            shared_documents(findings.agreement),
        ],
        "Unjudged documents": unjudged_sentences(analysis),
        "Power and next step": [
            *(power(analysis, judged) if variance else []),
            step.why if step and step.command else "",
        ],
    }  # fmt: skip
    told = {heading: [*filter(None, said)] for heading, said in groups.items()}
    return [(heading, said) for heading, said in told.items() if said]


def _linked(shown: Table, label: str) -> Table:
    """The table in which the row of a system leads to its queries."""
    rows = (
        replace(row, cells=(replace(row.cells[0], link=QUERY_PAGE), *row.cells[1:]))
        if row.cells[0].text == label
        else row
        for row in shown.rows
    )
    return replace(shown, rows=tuple(rows))


def _places(findings: Findings) -> Section | None:
    """The table of the measure by the place of the evidence, where that is known."""
    if findings.places is None:
        return None
    shown = position_table(findings.analysis, findings.places)
    return Section("Place of the evidence", tables=[shown], is_folded=True)


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
    return [table(heading, rows, caption=words)]


def _reproduce(sweep: Sweep) -> Section:
    """The command, seeds, contents and versions."""
    contents = [
        (f"{kind} {described.get('name', '')}".strip(), str(described["content_hash"]))
        for kind, described in (
            ("collection", sweep.about.collection),
            ("backbone", sweep.about.backbone),
        )
        if "content_hash" in described
    ]
    seeds = [("seeds", ", ".join(map(str, sweep.about.seeds)))] if sweep.about.seeds else []
    versions = [(name, str(version)) for name, version in sweep.about.versions.items()]
    return Section(
        "How to reproduce",
        code=sweep.about.command,
        values=[*seeds, *contents, *versions],
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
