"""`queries.html`: the queries that gained and lost most by the choice over the first stage (or the
baseline), with the documents that moved."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rank_core.files import write_json
from rank_core.parsing import parsed_json
from rank_core.records import Collection
from rank_core.stats.compare import TIE
from sweeps.findings.analysis import Analysis
from sweeps.findings.lists import Lists, judgments, list_readers
from sweeps.report.html import render
from sweeps.report.table import table, table_row
from sweeps.terminal.notation import MISSING, number, signed

QUERY_PAGE = "queries.html"
TEXTS = Path("qrels") / "shown_texts.json"
"""Texts of the queries and documents of this page, for later reports without the collection."""
EACH = 5  # queries that gained, and as many that lost
_FIRST = 3  # documents of a list that are shown
_MOST_DOCUMENTS = 10
_WORDS, _WIDTH = 40, 400  # of a text, and its characters at most
_SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Moved:
    """A query, its means over seeds, and {document: (its relevance, None without a judgment; its
    rank in each run of the system; in each run of its reference)}; rank None: not ranked."""

    query_id: str
    system: float
    baseline: float
    documents: Mapping[str, tuple[int | None, Sequence[int | None], Sequence[int | None]]]


def moved_queries(analysis: Analysis) -> list[Moved]:
    """The queries that gained most, then those that lost most; none without a comparison on the
    primary measure or without its runs on this machine."""
    sweep, best = analysis.sweep, analysis.chosen
    matrix = analysis.row_scores.plain.get(sweep.primary)
    files = list_readers(sweep, matrix) if matrix else {}
    if matrix is None or best is None or not {best.system, best.baseline} <= files.keys():
        return []
    value_of, base_of = (
        dict(zip(matrix.query_ids, matrix.scores[cell].mean(axis=0).tolist(), strict=True))
        for cell in (best.system, best.baseline)
    )
    delta = {query_id: value - base_of[query_id] for query_id, value in value_of.items()}
    order = sorted(delta, key=lambda query_id: (delta[query_id], query_id))
    lost = [qid for qid in order[:EACH] if delta[qid] < -TIE]
    order.sort(key=lambda query_id: (-delta[query_id], query_id))
    chosen = [qid for qid in order[:EACH] if delta[qid] > TIE] + lost
    system, base = ([read(chosen) for read in files[cell]] for cell in (best.system, best.baseline))
    qrels = judgments(sweep) or {}
    return [
        Moved(qid, value_of[qid], base_of[qid], _documents(qid, system, base, qrels.get(qid, {})))
        for qid in chosen
    ]


def moved_text(analysis: Analysis, queries: Sequence[Moved]) -> str:
    """The text of the link; "" without such queries."""
    if not queries or not analysis.chosen:
        return ""
    names = map(analysis.sweep.label, (analysis.chosen.system, analysis.chosen.baseline))
    return f"Queries that gained and lost most, {' against '.join(names)}"


def _documents(
    query_id: str, system: Sequence[Lists], base: Sequence[Lists], judged: Mapping[str, int]
) -> dict[str, tuple[int | None, Sequence[int | None], Sequence[int | None]]]:
    """The documents that any run has among its first, at most so many, best mean first."""
    lists = [run.get(query_id, []) for run in (*system, *base)]
    rank_of = [{doc_id: at for at, doc_id in enumerate(ranking, start=1)} for ranking in lists]
    first = {doc_id for ranking in lists for doc_id in ranking[:_FIRST]}
    weight = {
        doc_id: sum(1 / ranks[doc_id] for ranks in rank_of if doc_id in ranks) for doc_id in first
    }
    documents = sorted(first, key=lambda doc_id: (-weight[doc_id], doc_id))[:_MOST_DOCUMENTS]
    return {
        doc_id: (
            judged.get(doc_id),
            [ranks.get(doc_id) for ranks in rank_of[: len(system)]],
            [ranks.get(doc_id) for ranks in rank_of[len(system) :]],
        )
        for doc_id in documents
    }


def remember_texts(folder: Path, queries: Sequence[Moved], collection: Collection) -> None:
    """Write `TEXTS`, which later reports of the sweep read."""
    texts = {
        name: text for split in collection.splits.values() for name, text in split.queries.items()
    }
    documents = collection.documents
    shown = {
        query.query_id: {
            "text": _passage(text, ""),
            "passages": {d: _passage(documents.get(d, ""), text) for d in query.documents},
        }
        for query in queries
        for text in [texts.get(query.query_id, "")]
    }
    (folder / TEXTS).parent.mkdir(exist_ok=True)
    write_json(folder / TEXTS, shown)


def _passage(text: str, query: str) -> str:
    """The part of a text with the most words of a query, the first of several, without what cannot
    be printed."""
    words = "".join(mark if mark.isprintable() else " " for mark in text).split()
    asked = set(re.findall(r"\w+", query.lower()))

    def found(start: int) -> int:
        part = " ".join(words[start : start + _WORDS]).lower()
        return len(asked & set(re.findall(r"\w+", part)))

    start = max(range(0, max(len(words) - _WORDS // 2, 1), _WORDS // 2), key=found)
    part = " ".join(words[start : start + _WORDS])[:_WIDTH]
    return "… " * (start > 0) + part + " …" * (start + _WORDS < len(words))


def read_texts(folder: Path | None) -> dict[str, tuple[str, dict[str, str]]]:
    """{query_id: its text and {doc_id: passage}} that `remember_texts` wrote; none where the file
    is missing or invalid, the page then has ids alone."""
    with suppress(OSError, ValueError, KeyError, AttributeError, TypeError):
        texts = parsed_json((folder / TEXTS).read_bytes()) if folder else {}
        return {
            query_id: (str(query["text"]), {str(d): str(t) for d, t in query["passages"].items()})
            for query_id, query in texts.items()
        }
    return {}


def query_page(analysis: Analysis, queries: Sequence[Moved]) -> str:
    """The page of these queries, one at least, as HTML text."""
    assert analysis.chosen
    sweep, pair = analysis.sweep, (analysis.chosen.system, analysis.chosen.baseline)
    system, baseline = map(sweep.label, pair)
    texts = read_texts(None if sweep.third_party else sweep.folder)
    seeds = analysis.row_scores.plain[sweep.primary].seeds
    ranks = [f"rank, {sweep.label(cell)}{_seeds(seeds[cell])}" for cell in pair]
    words = "passage with most of the query's words"
    heading = ["document", "relevance", *ranks, *[words] * bool(texts)]
    shown = []
    for query in queries:
        values = f"{system} {number(query.system)}, {baseline} {number(query.baseline)}"
        gain = f"{sweep.primary} {signed(query.system - query.baseline)}"
        title, passages = texts.get(query.query_id, ("", {}))
        lines = [
            table_row(
                *(doc_id, MISSING if relevance is None else str(relevance)),
                *(_ranks(own), _ranks(base), *[passages.get(doc_id, "")] * bool(texts)),
                style="relevant" * bool(relevance and relevance > 0),
            )
            for doc_id, (relevance, own, base) in query.documents.items()
        ]
        facts = f"query {query.query_id} · {gain}: {values}"
        entry = {"title": title or query.query_id, "gain": gain, "facts": facts}
        shown.append(entry | {"table": table(heading, lines, "lrrrl"[: len(heading)])})
    title = moved_text(analysis, queries)
    return render("queries.html", title=title, sweep=sweep.about.sweep, shown=shown)


def _ranks(ranks: Sequence[int | None]) -> str:
    """The rank in each run, in the order of the seeds."""
    return " ".join(MISSING if rank is None else str(rank) for rank in ranks)


def _seeds(seeds: Sequence[int]) -> str:
    """The order of the ranks in a column; "" for a single run."""
    return f" (seed {_SPACE.join(map(str, seeds))})" if len(seeds) > 1 else ""
