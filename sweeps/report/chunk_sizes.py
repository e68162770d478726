"""A sweep over chunk sizes: what its indexes cost, the evidence within a reader's budget, and
`chunking.json`, which states the choice for an index."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from rank_core.stats.best import best_set
from rank_core.stats.compare import CellComparison, compare_pairs
from rank_core.stats.matrix import ScoreMatrix, score_matrix
from rank_core.units import size_text
from sweeps.findings.analysis import Analysis
from sweeps.findings.clusters import num_clusters
from sweeps.report.chunking_file import (
    FORMAT,
    ChunkingFile,
    ChunkingModel,
    Gain,
    Measured,
    MeasuredOn,
    WithFirstStage,
)
from sweeps.report.table import Table, TableCell, table, table_row
from sweeps.systems.choice import Choice
from sweeps.systems.chunk_sizes import USUAL, IndexFacts, usual_label
from sweeps.systems.load import in_clusters
from sweeps.terminal.notation import decisive_p, difference_text, number, percent


def sizes_beside(analysis: Analysis, cell: str) -> list[CellComparison]:
    """A cell against the cut document, the sizes in common use, stored as it is, and its own
    vectors as they are stored in full."""
    sweep = analysis.sweep
    full = full_of(sweep.indexes).get(cell, cell)
    rivals = [sweep.baseline, *_usual_cells(sweep.indexes, sweep.indexes[cell].form), full]
    return _compared(analysis, [(cell, own) for own in dict.fromkeys(rivals) if own != cell])


def _compared(analysis: Analysis, pairs: Sequence[tuple[str, str]]) -> list[CellComparison]:
    tests, matrix = analysis.sweep.tests, analysis.cell_scores.tested[analysis.sweep.primary]
    return compare_pairs(
        matrix,
        pairs,
        correction=tests.correction,
        alpha=tests.alpha,
        deterministic=[cell for cell in analysis.sweep.deterministic if cell in matrix.cells],
    )


def _usual_cells(indexes: Mapping[str, IndexFacts], form: tuple[int, str]) -> list[str]:
    return [
        cell
        for usual in USUAL
        for cell, facts in indexes.items()
        if facts.is_plain and (facts.window, facts.overlap) == usual and facts.form == form
    ]


def full_of(indexes: Mapping[str, IndexFacts]) -> dict[str, str]:
    """{index: the one that stores the same vectors in the most bytes} of those that store them in
    fewer."""
    full: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for cell, facts in indexes.items():
        groups.setdefault(repr(facts.of_its_chunks), []).append(cell)
    for cells in groups.values():
        most = max(cells, key=lambda cell: indexes[cell].figures["bytes"])
        full |= {cell: most for cell in cells if cell != most}
    return full


def losses(analysis: Analysis) -> list[CellComparison]:
    """Each index that stores its vectors in fewer bytes against the one that stores them in full,
    one family."""
    scored = analysis.cell_scores.tested[analysis.sweep.primary].cells
    pairs = full_of(analysis.sweep.indexes).items()
    return _compared(analysis, [pair for pair in pairs if {*pair} <= {*scored}])


def _precision(analysis: Analysis, facts: IndexFacts) -> str:
    """The precision in which the vectors of an index were computed."""
    name = "training.precision"
    shared = analysis.sweep.about.fixed.get(name, "fp32")  # sweeps of 0.3 do not say it
    return str(facts.settings.get(name, shared))


def left_out(analysis: Analysis) -> str:
    """The sizes in common use that were not tested, and why; "" where all were."""
    indexes = analysis.sweep.indexes
    limit = next(iter(indexes.values())).figures["largest_window"]
    tested = {(index.window, index.overlap) for index in indexes.values() if index.is_plain}
    above = [usual_label(*usual) for usual in USUAL if usual[0] > limit]
    others = [usual_label(*u) for u in USUAL if u[0] <= limit and u not in tested]
    parts = []
    if above:
        verb = "is" if len(above) == 1 else "are"
        parts.append(f"{' and '.join(above)} {verb} above the model's limit of {limit} tokens")
    if others:
        parts.append(f"{' and '.join(others)} {'was' if len(others) == 1 else 'were'} not tested")
    return f"Of the sizes in common use {'; '.join(parts)}." if parts else ""


def tables(analysis: Analysis) -> list[Table]:
    """What the indexes cost, and the evidence that a reader gets."""
    if not analysis.sweep.indexes:
        return []
    shown = (stored_table(analysis), cost_table(analysis), evidence_table(analysis))
    return [one for one in shown if one]


def stored_table(analysis: Analysis) -> Table | None:
    """What fewer bytes lose; None where all vectors are stored in one form."""
    sweep, rows = analysis.sweep, []
    for loss in losses(analysis):
        own, full = (sweep.indexes[cell].figures["bytes"] for cell in (loss.system, loss.baseline))
        rows.append(
            [
                sweep.label(loss.system),
                size_text(own),
                percent(own / full),
                number(loss.mean_system, sweep.digits),
                difference_text(loss, sweep.digits),
                decisive_p(loss),
            ]
        )
    if not rows:
        return None
    heading = "index", "bytes", "of full", sweep.primary, "difference", "p"
    words = (
        "Against the same vectors in the most bytes that were tested. Fewer dimensions are the "
        "first ones; int8 has 256 steps between the least and the largest value of a dimension, "
        "binary its sign; the query stays in fp32, and every vector is scored. Intervals hold for "
        "all rows at once."
    )
    return table(heading, rows, title="What vectors in fewer bytes lose", caption=words)


def cost_table(analysis: Analysis) -> Table:
    """A row for every index."""
    rows = []
    for cell, facts in analysis.sweep.indexes.items():
        figures = facts.figures
        rows.append(
            [
                analysis.sweep.label(cell),
                f"{figures['vectors_per_document']:.1f}",
                f"{facts.form[0]:,}",
                facts.stored,
                size_text(figures["bytes"]),
                f"{figures['tokens'] / 1e6:.2f} M",
                f"{figures['ms_per_query']:.1f}",
                f"{figures['ms_per_query_p95']:.1f}",
            ]
        )
    heading = "index", "vectors/doc", "dims", "stored", "bytes", "tokens", "ms/query", "p95"
    read, alone = tokens_read(analysis.sweep.indexes)
    words = (
        "Bytes of the vectors alone, as they are stored; encoder tokens to build the index; "
        "milliseconds of a query, its vector and an exact search in fp32, whatever is stored, "
        "median and 95th percentile of up to 50 queries one by one, on the machine of the trial. "
        f"The sweep read {read / 1e6:.2f} million tokens for "
        f"indexes of {alone / 1e6:.2f} million together: chunks that several share, or that were "
        "stored, are read once."
    )
    return table(heading, rows, title="What an index costs", caption=words)


def tokens_read(indexes: Mapping[str, IndexFacts]) -> tuple[int, int]:
    """The encoder tokens that the sweep read, and those of all indexes."""
    read = sum(int(facts.figures["embedded_tokens"]) for facts in indexes.values())
    return read, sum(int(facts.figures["tokens"]) for facts in indexes.values())


def evidence_scores(analysis: Analysis) -> dict[int, pd.DataFrame]:
    """{budget: the share of each cell and test query as values of a measure}."""
    sweep = analysis.sweep
    tested = set(sweep.scores["query_id"].unique())
    tables: dict[int, list[dict[str, Any]]] = {}
    for cell, facts in sweep.indexes.items():
        for budget, values in facts.evidence.items():
            rows = tables.setdefault(budget, [])
            row = {"cell": cell, "seed": 1, "measure": "evidence", "split": sweep.split}
            rows += [{**row, "query_id": q, "value": v} for q, v in values.items() if q in tested]
    return {budget: pd.DataFrame(rows) for budget, rows in sorted(tables.items()) if rows}


def evidence_table(analysis: Analysis) -> Table | None:
    """The mean share of the relevant text within each budget, with what cannot be told from the
    best; None where nothing is known of it."""
    scores = evidence_scores(analysis)
    if not scores:
        return None
    columns, cells, count = [], [*analysis.sweep.indexes], 0
    for evidence in scores.values():
        matrix = score_matrix(evidence, measure="evidence", cells=cells)
        matrix = in_clusters(analysis.sweep, matrix)
        best = best_set(matrix, alpha=analysis.sweep.tests.alpha, deterministic=cells)
        columns.append((matrix, set(best.judged)))
        count = matrix.num_queries
    rows = [
        table_row(analysis.sweep.label(cell), *(_share(cell, *column) for column in columns))
        for cell in cells
    ]
    words = (
        f"Mean share of the relevant characters ({count} queries of {analysis.sweep.split}) that "
        "the best chunks of the collection hold, read in their order as long as the next one fits "
        "into so many tokens. In bold with =: not distinguishable from the best of its column."
    )
    heading = ("chunks", *(f"{budget:,}" for budget in scores))
    return table(heading, rows, title="Evidence within a reader's budget", caption=words)


def _share(cell: str, matrix: ScoreMatrix, best: Collection[str]) -> TableCell:
    is_best = cell in best
    mark, face = (("=",), "best") if is_best else ((), "")
    return TableCell(f"{matrix.scores[cell].mean():.3f}", letters=mark, face=face)


def results(analysis: Analysis) -> dict[str, Any]:
    """The figures of every index for results.json; empty for other sweeps."""
    sweep = analysis.sweep
    if not sweep.indexes:
        return {}
    means = {
        budget: table.groupby("cell", observed=True)["value"].mean().to_dict()
        for budget, table in evidence_scores(analysis).items()
    }
    rows = [
        {
            "cell": cell,
            "label": sweep.label(cell),
            **facts.figures,
            "stored": facts.stored,
            "evidence": {str(budget): own[cell] for budget, own in means.items() if cell in own},
        }
        for cell, facts in sweep.indexes.items()
    ]
    own = [(loss, loss.in_family) for loss in losses(analysis)]
    stored = [
        {
            "cell": loss.system,
            "full": loss.baseline,
            "difference": loss.delta,
            "low": in_family.ci_low,
            "high": in_family.ci_high,
            "p": loss.p_both_adjusted,
        }
        for loss, in_family in own
    ]
    return {"indexes": rows} | ({"stored": stored} if stored else {})


def chunking(analysis: Analysis) -> dict[str, Any]:
    """The content of `chunking.json`, of the choice; empty where that cuts no chunks."""
    sweep, choice = analysis.sweep, analysis.choice
    facts = sweep.indexes.get(choice.cell) if choice else None
    if choice is None or facts is None or facts.window is None:
        return {}
    figures, backbone, settings = facts.figures, sweep.about.backbone, facts.settings
    known = ("content_hash", "tokenizer_hash")
    stated = ChunkingFile(
        format=FORMAT,
        model=ChunkingModel(Path(backbone["name"]).name, *(backbone[name] for name in known)),
        chunk_tokens=facts.window,
        overlap_tokens=facts.overlap_tokens,
        chunk_characters=figures["characters"],
        overlap_characters=round(facts.overlap * figures["characters"]),
        ends_at_sentences=settings["chunking.snap"],
        title_before_chunk=settings["chunking.title"],
        largest_window=figures["largest_window"],
        dimensions=figures["dimensions"],
        stored=facts.stored,
        similarity=figures["similarity"],
        query_prompt=figures["query_prompt"],
        document_prompt=figures["document_prompt"],
        with_first_stage=_with_first_stage(analysis, choice),
        measured=_measured(analysis, choice, facts),
    )
    return asdict(stated)


def _with_first_stage(analysis: Analysis, choice: Choice) -> WithFirstStage | None:
    """How the choice mixes its index with the first stage; None where it does not."""
    if not choice.is_mixed:
        return None
    row = next(row for row in analysis.interpolated if row.name == choice.system)
    alphas = [alpha for of_seed in row.alphas.values() for alpha in of_seed]
    return WithFirstStage(
        name=analysis.sweep.first_stage_name,
        alpha=alphas[0] if alphas else None,
        mean=row.mean(analysis.sweep.primary),
    )


def _measured(analysis: Analysis, choice: Choice, facts: IndexFacts) -> Measured:
    """What the index of the choice measures, without the first stage."""
    sweep, figures = analysis.sweep, facts.figures
    matrix, collection = analysis.cell_scores.tested[sweep.primary], sweep.about.collection
    return Measured(
        collection=MeasuredOn(collection["name"], collection["content_hash"]),
        measure=sweep.primary,
        split=sweep.split,
        chosen_on=choice.split,
        precision=_precision(analysis, facts),
        queries=matrix.num_queries,
        clusters=num_clusters(matrix),
        mean=float(matrix.of_queries.scores[choice.cell].mean()),
        level=1 - sweep.tests.alpha,
        over={
            sweep.label(gain.baseline): Gain(
                gain.delta, gain.ci_low, gain.ci_high, gain.p_both_adjusted
            )
            for gain in sizes_beside(analysis, choice.cell)
        },
        vectors_per_document=figures["vectors_per_document"],
        bytes=figures["bytes"],
    )
