"""Agreement of runs and the page of queries, from the runs that trials left."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rank_core.data.trec import write_qrels, write_run
from rank_core.errors import BadInput
from rank_core.records import Collection, Split
from sweeps.commands.report import main
from sweeps.findings.analysis import Analysis, analyse
from sweeps.findings.lists import rows, sampled
from sweeps.report.build import write_report
from sweeps.report.query_page import moved_queries
from sweeps.systems.load import load_sweep
from tests.sweeps.report.ranked_sweep import as_remote, write_ranked_sweep
from tests.sweeps.systems.test_load import FIVE, read_values, write_sweep, write_values

HOSTILE = "<script>alert(1)</script>"
pytestmark = pytest.mark.usefixtures("no_figures")


def made(tmp_path: Path, list_of: Callable[[int, int, str], str], **changes: Any) -> Analysis:
    """Two systems with two seeds over four queries, each trial with a run: `list_of` a cell's
    position, its seed and a query is its documents, a letter each."""
    changes = {"kinds": FIVE[:2], "seeds": (1, 2), "num_queries": 4} | changes
    folder = write_sweep(tmp_path, **changes)
    sweep = load_sweep(folder)
    for place, cell in enumerate(sweep.cells):
        for seed in sweep.about.seeds:
            run = {
                query_id: {f"d{doc}": -1.0 * rank for rank, doc in enumerate(docs)}
                for query_id in sorted(set(sweep.scores["query_id"]))
                if (docs := list_of(place, seed, query_id))
            }
            write_run(folder / "trials" / f"{cell.cell}-seed{seed}" / "test.run.gz", run, "made")
    (folder / "qrels").mkdir()
    write_qrels(folder / "qrels" / "test.qrels", {"q0": {"da": 1, "dx": 0}, "q1": {}})
    return analyse(load_sweep(folder))


@pytest.mark.parametrize(
    ("letters", "shared"), [("abcdefghij", []), ("ab", []), ("abcdefghijkl", [10.0])]
)
def test_a_shared_top_is_counted_where_lists_may_differ(
    tmp_path: Path, letters: str, shared: list[float]
) -> None:
    """Of ten documents any two lists share all."""
    found = rows(made(tmp_path, lambda place, seed, query_id: letters))
    assert [row.value for row in found] == shared


def test_the_shared_top_by_hand(tmp_path: Path) -> None:
    """Two of the first ten of one run stand behind the first ten of the other."""
    orders = {1: "abcdefghijkl", 2: "abcdefghklij"}
    [found] = rows(made(tmp_path, lambda place, seed, query_id: orders[seed]))
    assert found.value == 8


def test_of_many_queries_the_same_sample_is_compared() -> None:
    every = [f"q{i:04}" for i in range(5000)]
    chosen = sampled(every)
    assert len(chosen) < len(every) and chosen == sorted(chosen) == sorted(sampled(every[::-1]))


def test_a_sweep_without_runs_here_says_nothing_of_them(tmp_path: Path) -> None:
    folder = write_report(write_sweep(tmp_path, kinds=FIVE[:2], num_queries=20)).folder
    assert "documents that two runs share" not in (folder / "index.html").read_text()
    assert not (folder / "queries.html").exists()
    results = json.loads((folder / "results.json").read_text())
    assert not [row for row in results["findings"] if row["question"] == "lists"]


def test_a_run_that_is_none_is_refused(tmp_path: Path) -> None:
    analysis = made(tmp_path, lambda place, seed, query_id: "ab")
    paths = [*tmp_path.glob("trials/*/test.run.gz")]
    for content in (b"", b"no gzip", paths[0].read_bytes()[:-20]):
        for path in paths:
            path.write_bytes(content)
        with pytest.raises(BadInput, match=r"test\.run\.gz must be a run as its trial wrote it"):
            rows(analysis)


def test_queries_that_gained_and_lost_most_are_shown_with_their_documents(tmp_path: Path) -> None:
    analysis = made(
        tmp_path, lambda place, seed, query_id: "ab" if place else "bca", num_queries=20
    )
    matrix = analysis.cell_scores.plain["nDCG@10"]
    names = (one.system, one.baseline) if (one := analysis.primary[0]) else ("", "")
    own, base = (matrix.scores[name].mean(axis=0) for name in names)
    order = [matrix.query_ids[at] for at in (own - base).argsort(kind="stable")]
    moved = moved_queries(analysis)
    gained = [one.query_id for one in moved if one.system > one.baseline]
    delta = dict(zip(matrix.query_ids, (own - base).tolist(), strict=True))
    best = sorted(matrix.query_ids, key=lambda one: (-delta[one], one))  # equal ones by id
    assert gained == best[: len(gained)] and 0 < len(gained) <= 5
    assert [one.query_id for one in moved[len(gained) :]] == order[: len(moved) - len(gained)]
    assert moved[0].documents["da"] == (
        1 if moved[0].query_id == "q0" else None, [1, 1], [3, 3]
    )  # fmt: skip
    assert moved[0].documents["dc"][1:] == ([None, None], [2, 2])


def test_queries_that_lost_are_shown_as_those_that_gained_are(tmp_path: Path) -> None:
    """Of 14 queries six gain .06, .05, .. and seven lose .07, .06, ..; one stays equal."""
    analysis = made(tmp_path, lambda place, seed, query_id: "ab", num_queries=14)
    gains = dict(zip((f"q{n}" for n in range(14)), [*range(6, -8, -1)], strict=True))
    table = read_values(tmp_path)
    better = table["cell"] == analysis.sweep.cells[1].cell
    gained = table["query_id"].map(gains).where(table["split"] != "dev", 1)
    table["value"] = 0.5 + 0.01 * gained * better
    write_values(tmp_path, table)
    analysis = analyse(load_sweep(tmp_path))
    moved = moved_queries(analysis)
    up, down = ["q0", "q1", "q2", "q3", "q4"], ["q13", "q12", "q11", "q10", "q9"]
    assert [one.query_id for one in moved] == up + down
    assert [round(one.system - one.baseline, 9) for one in moved] == [
        0.06, 0.05, 0.04, 0.03, 0.02, -0.07, -0.06, -0.05, -0.04, -0.03,
    ]  # fmt: skip
    page = (write_report(tmp_path).folder / "queries.html").read_text()
    said = re.findall(r"query (q\d+) · nDCG@10 (\S+?):", page)
    assert said == [(q, f"{gains[q] / 100:+.3f}".replace("-", "−")) for q in up + down]


def test_the_part_of_a_document_that_has_most_of_the_querys_words_is_shown(tmp_path: Path) -> None:
    analysis = made(tmp_path, lambda place, seed, query_id: "ab", num_queries=6)
    fill = [f"w{n}" for n in range(200)]
    far = [*fill[:100], "Rayleigh", "scattering", "of", "blue", "light.", *fill[105:]]
    documents = {
        "da": " ".join(["light", *far[1:]]),  # one word at the start, four from word 100 on
        "db": "Rayleigh scattering " + " ".join(fill),  # at the start
    }
    texts = dict.fromkeys(
        analysis.cell_scores.plain["nDCG@10"].query_ids, "Rayleigh scattering, blue light"
    )
    split = Split(queries=texts, qrels={}, candidates={})
    write_report(tmp_path, collection=Collection("made", "0", documents, {"test": split}))
    shown = json.loads((tmp_path / "qrels" / "shown_texts.json").read_text())
    for own in shown.values():
        assert own["text"] == "Rayleigh scattering, blue light"
        assert own["passages"]["da"] == f"… {' '.join(far[80:120])} …"
        assert own["passages"]["db"] == f"Rayleigh scattering {' '.join(fill[:38])} …"
    page = (tmp_path / "report" / "queries.html").read_text()
    assert f"{' '.join(far[80:120])} …" in page
    assert "w79" not in page and "w121" not in page


def test_hostile_texts_are_shown_and_not_run(tmp_path: Path) -> None:
    analysis = made(tmp_path, lambda place, seed, query_id: "ab", num_queries=6)
    texts = {query_id: f"{HOSTILE} {query_id}\ud800\x00" for query_id in
             analysis.cell_scores.plain["nDCG@10"].query_ids}  # fmt: skip
    split = Split(queries=texts, qrels={}, candidates={})
    documents = {"da": f"{HOSTILE} & \u202e " + "word " * 500}
    collection = Collection("made", "0", documents, {"test": split})
    first = write_report(tmp_path, collection=collection).folder / "queries.html"
    page = first.read_text()
    assert '<tr class="relevant">' in page, "q0 has a relevant document"
    assert '<div class="queries">' in page and ".queries tr { display: grid" in page, "on a phone"
    assert HOSTILE not in page and "&lt;script&gt;alert(1)" in page
    assert "\u202e" not in page and page.count("word") < 10 * 40
    summary = (tmp_path / "report" / "index.html").read_text()
    assert "runs share" not in summary and 'href="queries.html"' in summary
    before = first.read_bytes()
    assert (write_report(tmp_path).folder / "queries.html").read_bytes() == before  # without it


def test_texts_that_are_damaged_leave_the_ids(tmp_path: Path) -> None:
    made(tmp_path, lambda place, seed, query_id: "ab", num_queries=6)
    for content in (b"[]", b"{", b'{"q1": 1, "q2": {"text": 2}}', b"\xff"):
        (tmp_path / "qrels" / "shown_texts.json").write_bytes(content)
        assert "da" in (write_report(tmp_path).folder / "queries.html").read_text()


@pytest.mark.slow  # about 5 s
def test_a_report_of_a_uri_has_the_agreement_of_its_runs(tmp_path: Path) -> None:
    remote = as_remote(write_ranked_sweep(tmp_path / "sweep"))
    assert main([remote.uri, "--out", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["name"] for row in results["findings"] if row["question"] == "lists"]
