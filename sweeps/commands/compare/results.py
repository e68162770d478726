"""A comparison of runs as data and as tables: everything is rendered from one object."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rank_core.stats.table import caption, render_csv, render_html, render_latex, render_markdown
from sweeps.commands.compare.comparison import RunComparison
from sweeps.commands.compare.pairs import Pair, pairs_csv
from sweeps.commands.compare.text import reservations, where
from sweeps.report.results import comparisons_csv, json_text

SCHEMA_VERSION = 1


def write_files(
    found: RunComparison, folder: Path, pairs: Sequence[Pair] = (), *, margin: float = 0.01
) -> None:
    """Write the table in four formats, `comparisons.csv`, `results.json`, and `pairs.csv` if there
    are pairs."""
    text = caption(
        found.rows,
        split=Path(where(found)).name if len(found.qrels) == 1 else where(found),
        alpha=found.alpha,
        baselines=found.baselines,
        ties=found.measured.tied,
        deterministic=found.deterministic,
        third_party=True,
    )
    text = " ".join([text, *reservations(found, margin=margin), *found.measured.notes])
    aim: dict[str, Any] = {"alpha": found.alpha, "baselines": found.baselines, "caption": text}
    contents = {
        "table.md": render_markdown(found.rows, **aim),
        "table.tex": render_latex(found.rows, label="tab:comparison", **aim),
        "table.html": render_html(found.rows, **aim),
        "table.csv": render_csv(found.rows),
        "comparisons.csv": comparisons_csv(found.comparisons),
        "results.json": results_json(found, pairs, caption=text),
    }
    contents |= {"pairs.csv": pairs_csv(list(pairs))} if pairs else {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_text(content, encoding="utf-8")


def results_json(found: RunComparison, pairs: Sequence[Pair] = (), *, caption: str) -> str:
    """Everything the tables show, unrounded, and what it was measured on."""
    return json_text(
        {
            "schema_version": SCHEMA_VERSION,
            "systems": found.systems,
            "query_sets": {
                name: {"qrels": path, "num_queries": found.measured.num_queries[name]}
                for name, path in found.qrels.items()
            },
            "collections": found.collections,
            "columns": found.measures,
            "baselines": found.baselines,
            "alpha": found.alpha,
            "deterministic": found.deterministic,
            "tied_scores": found.measured.tied,
            "rows": [dataclasses.asdict(row) for row in found.rows],
            "pairs": [dataclasses.asdict(pair) for pair in pairs],
            "caption": caption,
        }
    )
