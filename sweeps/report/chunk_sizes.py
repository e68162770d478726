"""The answer of a sweep over chunk sizes: its sentence, its costs and evidence, and
`chunking.json`, which states it for an index."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rank_core.stats.best import best_set
from rank_core.stats.compare import CellComparison, compare_pairs
from rank_core.stats.matrix import ScoreMatrix, score_matrix
from sweeps.report.analysis import Analysis
from sweeps.report.chunking_file import (
    FORMAT,
    ChunkingFile,
    ChunkingModel,
    Gain,
    Measured,
    MeasuredOn,
)
from sweeps.report.clusters import num_clusters
from sweeps.report.html import Section
from sweeps.report.table import Table, TableCell, table, table_row
from sweeps.store.sweep_file import FIRST_STAGE
from sweeps.systems.best import best_on_dev
from sweeps.systems.chunk_sizes import USUAL, IndexFacts, usual_label
from sweeps.systems.load import in_clusters
from sweeps.terminal.notation import relation, short_signed

BYTES = {"fp32": 4, "fp16": 2, "int8": 1}


@dataclass(frozen=True)
class ChosenSize:
    """The chunk size to use: the best on dev, its gains on test, and the cheapest index that cannot
    be told from the best."""

    cell: str
    facts: IndexFacts
    gains: Sequence[CellComparison]  # over the cut document and the sizes in common use
    cheapest: str  # a row of the table; "" where all can be told from the best


def chosen_size(analysis: Analysis) -> ChosenSize | None:
    """The answer; None without a finished index beside the baseline."""
    sweep = analysis.sweep
    chunked = [cell for cell, facts in sweep.indexes.items() if facts.window]
    chosen = best_on_dev(sweep, chunked)
    found = analysis.best_set
    if not chosen or not found or sweep.baseline not in sweep.indexes:
        return None
    rivals = [sweep.baseline, *_usual_cells(sweep.indexes)]
    matrix = analysis.matrix(sweep.primary)
    gains = compare_pairs(
        matrix,
        [(chosen, rival) for rival in dict.fromkeys(rivals) if rival != chosen],
        correction=sweep.correction,
        alpha=sweep.about.alpha,
        deterministic=[cell for cell in sweep.deterministic if cell in matrix.cells],
    )
    dense = [row for row in found.judged if _index_of(analysis, row)]
    return ChosenSize(
        cell=chosen,
        facts=sweep.indexes[chosen],
        gains=gains,
        cheapest=min(dense, key=lambda row: _cost(analysis, row), default=""),
    )


def _usual_cells(indexes: Mapping[str, IndexFacts]) -> list[str]:
    return [
        cell
        for usual in USUAL
        for cell, facts in indexes.items()
        if facts.is_plain and (facts.window, facts.overlap) == usual
    ]


def _cost(analysis: Analysis, row: str) -> tuple[int, int, bool]:
    """The bytes and tokens of the index of a row, and whether it needs the first stage too."""
    cell = _index_of(analysis, row)
    return (*analysis.sweep.indexes[cell].cost, row != cell)


def answer(analysis: Analysis) -> str:
    """The answer as a paragraph; "" without one."""
    return " ".join(sentences(analysis))


def sentences(analysis: Analysis) -> list[str]:
    """The answer in its sentences; none without one."""
    found = chosen_size(analysis)
    if found is None:
        return []
    sweep, digits = analysis.sweep, analysis.sweep.digits
    matrix = analysis.matrix(sweep.primary)
    mean = float(matrix.of_queries.scores[found.cell].mean())
    gains = ", ".join(_gain(analysis, gain) for gain in found.gains)
    corrected = f" (p corrected over these {len(found.gains)})" * (len(found.gains) > 1)
    several = len({_precision(analysis, facts) for facts in sweep.indexes.values()}) > 1
    computed = f", computed in {_precision(analysis, found.facts)}" * several
    text = (
        f"{_words(found.facts)}{computed}: {sweep.primary} {mean:.{digits}f} "
        f"({sweep.count_text(matrix.num_queries, num_clusters(matrix))}), "
        f"{gains}{corrected}."
    )
    left_out = _left_out(found.facts, sweep.indexes)
    return [text, *[left_out] * bool(left_out), *_cheap(analysis, found)]


def _words(facts: IndexFacts) -> str:
    """`Cut documents into chunks of 254 tokens that overlap by 127 (50%)`."""
    settings, overlap = facts.settings, facts.overlap_tokens
    text = f"Cut documents into chunks of {facts.window} tokens"
    text += f" that overlap by {overlap} ({100 * facts.overlap:g}%)" if overlap else ""
    text += " without an overlap" * (not overlap)
    text += ", ended at sentences" * bool(settings["chunking.snap"])
    return text + ", each with the title before it" * bool(settings["chunking.title"])


def _precision(analysis: Analysis, facts: IndexFacts) -> str:
    """The precision in which the vectors of an index were computed."""
    name = "training.precision"
    shared = analysis.sweep.about.fixed.get(name, "fp32")  # sweeps of 0.3 do not say it
    return str(facts.settings.get(name, shared))


def _gain(analysis: Analysis, gain: CellComparison) -> str:
    sweep, digits = analysis.sweep, analysis.sweep.digits
    facts = sweep.indexes[gain.baseline]
    what = f"over chunks of {sweep.label(gain.baseline)}"
    if facts.window is None:
        what = f"over documents cut at the model's limit of {facts.figures['largest_window']}"
    low, high = (short_signed(end, digits) for end in (gain.ci_low, gain.ci_high))
    p = relation(gain.p_both_adjusted)
    return f"{short_signed(gain.delta, digits)} {what} ([{low}, {high}], p {p})"


def _left_out(facts: IndexFacts, indexes: Mapping[str, IndexFacts]) -> str:
    """The sizes in common use that were not tested, and why."""
    limit = facts.figures["largest_window"]
    tested = {(own.window, own.overlap) for own in indexes.values() if own.is_plain}
    above = [usual_label(*usual) for usual in USUAL if usual[0] > limit]
    others = [usual_label(*u) for u in USUAL if u[0] <= limit and u not in tested]
    parts = []
    if above:
        verb = "is" if len(above) == 1 else "are"
        parts.append(f"{' and '.join(above)} {verb} above the model's limit of {limit} tokens")
    if others:
        parts.append(f"{' and '.join(others)} {'was' if len(others) == 1 else 'were'} not tested")
    return f"Of the sizes in common use {'; '.join(parts)}." if parts else ""


def _cheap(analysis: Analysis, found: ChosenSize) -> list[str]:
    """The cheapest index that cannot be told from the best row, and its size."""
    sweep, best = analysis.sweep, analysis.best_set
    assert best is not None
    highest = f"the best on {sweep.split}, {sweep.label(best.best)}"
    if not found.cheapest:
        return [f"Every index can be told from {highest}."]
    figures = sweep.indexes[_index_of(analysis, found.cheapest)].figures
    size = f"{figures['vectors_per_document']:.1f} vectors per document, "
    size += f"{bytes_text(figures['bytes'])} in fp32"
    text = f"The cheapest index that cannot be told from {highest}, is that of "
    text += f"{sweep.label(found.cheapest)} ({size})."
    if found.cheapest == best.best:
        text = f"Every cheaper index can be told from {highest} ({size})."
    said = [text]
    if FIRST_STAGE in best.members:
        said.append(f"{sweep.first_stage_name} alone cannot be told from the best either.")
    if found.cell not in best.members:
        said.append(f"{sweep.label(found.cell)}, the best on dev, can be told from the best.")
    return said


def _index_of(analysis: Analysis, row: str) -> str:
    """The cell whose index a row uses; "" for the first stage."""
    of = {system.name: system.of for system in analysis.sweep.interpolated}
    cell = of.get(row, row)
    return cell if cell in analysis.sweep.indexes else ""


def bytes_text(number: int) -> str:
    """`3.4 MB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"


def sections(analysis: Analysis) -> list[Section]:
    """What the indexes cost, and the evidence that a reader gets."""
    if not analysis.sweep.indexes:
        return []
    parts = [Section("What an index costs", tables=[cost_table(analysis)])]
    if shown := evidence_table(analysis):
        parts.append(Section("Evidence within a reader's budget", tables=[shown]))
    return parts


def cost_table(analysis: Analysis) -> Table:
    """A row for every index."""
    rows = []
    for cell, facts in analysis.sweep.indexes.items():
        own = facts.figures
        sizes = [bytes_text(own["bytes"] * size // 4) for size in BYTES.values()]
        rows.append(
            [
                analysis.sweep.label(cell),
                f"{own['vectors_per_document']:.1f}",
                *sizes,
                f"{own['tokens'] / 1e6:.2f} M",
                f"{own['ms_per_query']:.1f}",
                f"{own['ms_per_query_p95']:.1f}",
            ]
        )
    heading = "index", "vectors/doc", *BYTES, "tokens", "ms/query", "p95"
    read, alone = tokens_read(analysis.sweep.indexes)
    words = (
        "Bytes of the vectors alone; encoder tokens to build the index; milliseconds of a query, "
        "its vector and an exact search, median and 95th percentile of up to 50 queries one by "
        f"one, on the machine of the trial. The sweep read {read / 1e6:.2f} million tokens for "
        f"indexes of {alone / 1e6:.2f} million together: chunks that several share, or that were "
        "stored, are read once."
    )
    return table(heading, rows, caption=words)


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
            own = {"cell": cell, "seed": 1, "measure": "evidence", "split": sweep.split}
            rows += [{**own, "query_id": q, "value": v} for q, v in values.items() if q in tested]
    return {budget: pd.DataFrame(rows) for budget, rows in sorted(tables.items()) if rows}


def evidence_table(analysis: Analysis) -> Table | None:
    """The mean share of the relevant text within each budget, with what cannot be told from the
    best; None where nothing is known of it."""
    scores = evidence_scores(analysis)
    if not scores:
        return None
    columns, cells, count = [], [*analysis.sweep.indexes], 0
    for own in scores.values():
        matrix = score_matrix(own, measure="evidence", cells=cells)
        matrix = in_clusters(analysis.sweep, matrix)
        best = best_set(matrix, alpha=analysis.sweep.about.alpha, deterministic=cells)
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
    return table(("chunks", *(f"{budget:,}" for budget in scores)), rows, caption=words)


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
        budget: own.groupby("cell", observed=True)["value"].mean().to_dict()
        for budget, own in evidence_scores(analysis).items()
    }
    rows = [
        {
            "cell": cell,
            "label": sweep.label(cell),
            **facts.figures,
            "evidence": {str(budget): own[cell] for budget, own in means.items() if cell in own},
        }
        for cell, facts in sweep.indexes.items()
    ]
    return {"indexes": rows}


def chunking(analysis: Analysis) -> dict[str, Any]:
    """The content of `chunking.json`; empty without an answer."""
    found = chosen_size(analysis)
    if found is None:
        return {}
    sweep, figures = analysis.sweep, found.facts.figures
    backbone, settings = sweep.about.backbone, found.facts.settings
    known = ("content_hash", "tokenizer_hash")
    stated = ChunkingFile(
        format=FORMAT,
        model=ChunkingModel(Path(backbone["name"]).name, *(backbone[name] for name in known)),
        chunk_tokens=found.facts.window or 0,
        overlap_tokens=found.facts.overlap_tokens,
        chunk_characters=figures["characters"],
        overlap_characters=round(found.facts.overlap * figures["characters"]),
        ends_at_sentences=settings["chunking.snap"],
        title_before_chunk=settings["chunking.title"],
        largest_window=figures["largest_window"],
        dimensions=figures["dimensions"],
        similarity=figures["similarity"],
        query_prompt=figures["query_prompt"],
        document_prompt=figures["document_prompt"],
        measured=_measured(analysis, found),
    )
    return asdict(stated)


def _measured(analysis: Analysis, found: ChosenSize) -> Measured:
    """What the choice rests on."""
    sweep, figures = analysis.sweep, found.facts.figures
    matrix, collection = analysis.matrix(sweep.primary), sweep.about.collection
    return Measured(
        collection=MeasuredOn(collection["name"], collection["content_hash"]),
        measure=sweep.primary,
        split=sweep.split,
        precision=_precision(analysis, found.facts),
        queries=matrix.num_queries,
        clusters=num_clusters(matrix),
        mean=float(matrix.of_queries.scores[found.cell].mean()),
        level=1 - sweep.about.alpha,
        over={
            sweep.label(gain.baseline): Gain(
                gain.delta, gain.ci_low, gain.ci_high, gain.p_both_adjusted
            )
            for gain in found.gains
        },
        cheapest=sweep.label(found.cheapest) if found.cheapest else "",
        vectors_per_document=figures["vectors_per_document"],
        bytes=figures["bytes"],
    )
