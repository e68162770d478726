"""The place of the evidence in a report: where a sweep knows it, and nowhere else."""

import json
from pathlib import Path

from rank_core.data.trec import read_qrels
from sweeps.report.build import write_report
from sweeps.store.queries import QueryFacts
from tests.sweeps.report.ranked_sweep import CELLS, write_ranked_sweep


def test_a_report_has_the_measure_by_the_place_of_the_evidence(tmp_path: Path) -> None:
    folder = write_ranked_sweep(tmp_path / "sweep", num_queries=60)
    before = write_report(folder)
    assert "positions" not in json.loads((before.folder / "results.json").read_text())
    assert not (before.folder / "plots" / "positions.svg").exists()

    query_ids = [*read_qrels(folder / "qrels" / "test.qrels")][:50]  # of others it is not known
    facts = QueryFacts(
        dict.fromkeys(query_ids, "text"),
        position={query_id: str(30 * place) for place, query_id in enumerate(query_ids)},
    )
    (folder / "queries").mkdir(exist_ok=True)
    (folder / "queries" / "test.jsonl").write_text(facts.lines())
    report = write_report(folder)
    found = json.loads((report.folder / "results.json").read_text())["positions"]
    assert [(b["first"], b["last"], b["num_queries"]) for b in found["bins"]] == [
        (0, 720, 25),
        (750, 1470, 25),
    ]
    assert [*found["systems"]] == [cell for cell, _, _ in CELLS]
    for curve in found["systems"].values():
        smallest, largest = min(curve["means"]), max(curve["means"])
        assert curve["index"]["value"] == 1 - smallest / largest
        assert all(
            low < mean < high
            for low, mean, high in zip(curve["low"], curve["means"], curve["high"], strict=True)
        )
    [(name, gap)] = found["differences"].items()
    base, other = (found["systems"][cell]["index"] for cell, _, _ in CELLS)
    assert name == CELLS[1][0] and gap["value"] == other["value"] - base["value"]
    page = (report.folder / "index.html").read_text()
    assert "Position Sensitivity Index" in page and "750-1470 (25)" in page
    assert (report.folder / "plots" / "positions.svg").exists()
