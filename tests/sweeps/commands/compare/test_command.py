"""Any TREC runs through the same tests: parity with the statistics, and nothing hidden."""

import csv
import gzip
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rank_core.errors import BadInput
from sweeps.commands.compare.command import main, systems_of
from sweeps.commands.design import main as design
from sweeps.commands.measure import main as measure
from sweeps.report.comparison import compare_runs
from sweeps.report.comparison_files import comparison_text, write_files
from sweeps.store.test_options import TestOptions

NUM_QUERIES, NUM_DOCUMENTS = 40, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three systems with three runs each; `maxp` is better, `sump` worse than `firstp`."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(1)
    hard_Q1 = rng.normal(0, 0.8, (NUM_QUERIES, 1))
    lines = [f"q{q} 0 d{d} {1 + (d == 0)}\n" for q in range(NUM_QUERIES) for d in range(3)]
    (folder / "qrels.txt").write_text("".join(lines))
    for name, skill in (("firstp", 0.7), ("maxp", 2.0), ("sump", 0.0)):
        for number in (1, 2, 3):
            relevant_D = np.arange(NUM_DOCUMENTS) < 3
            score_QD = np.where(relevant_D, skill + hard_Q1, 0)
            score_QD = score_QD + rng.normal(0, 1, score_QD.shape)
            write(folder / f"{name}.{number}.run", score_QD)
    return folder


def write(path: Path, score_QD: np.ndarray) -> None:
    path.write_text(
        "".join(
            f"q{q} Q0 d{d} 1 {score_QD[q, d]:.4f} tag\n"
            for q in range(len(score_QD))
            for d in range(score_QD.shape[1])
        )
    )


def words(folder: Path) -> list[str]:
    systems = [f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp", "sump")]
    return [*systems, "--qrels", f"{folder}/qrels.txt"]


def three(folder: Path, **settings):
    return compare_runs(systems_of(words(folder)[:3]), folder / "qrels.txt", **settings)


def test_the_means_and_the_p_over_queries_are_those_computed_by_hand(folder: Path) -> None:
    def reciprocal_ranks(path: Path) -> dict[str, float]:
        ranked: dict[str, list[tuple[float, str]]] = {}
        for line in path.read_text().splitlines():
            query_id, _, doc_id, _, score, _ = line.split()
            ranked.setdefault(query_id, []).append((-float(score), doc_id))
        return {
            query_id: 1 / (1 + min(i for i, (_, d) in enumerate(sorted(one)) if d in "d0 d1 d2"))
            for query_id, one in ranked.items()
        }

    found = three(folder, measures=["RR"])
    by_run = {
        name: [reciprocal_ranks(Path(run.first.where)) for run in found.runs if run.system == name]
        for name in found.seeds
    }
    mean_Q = {
        name: np.mean([[one[q] for q in sorted(one)] for one in runs], axis=0)
        for name, runs in by_run.items()
    }
    for one in found.analysis.comparisons:
        expected = stats.ttest_rel(mean_Q[one.system], mean_Q["firstp"])
        assert one.mean_system == pytest.approx(mean_Q[one.system].mean(), rel=1e-12)
        assert one.p_queries == pytest.approx(expected.pvalue, rel=1e-9)


def test_queries_without_a_result_count_0_and_unjudged_ones_are_left_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (folder / "maxp.1.run").read_text().splitlines(keepends=True)
    short = tmp_path / "short.run.gz"
    kept = [line for line in lines if not line.startswith(("q0 ", "q1 "))]
    short.write_bytes(gzip.compress("".join([*kept, "other Q0 d1 1 1.0 tag\n"]).encode()))
    systems = systems_of([str(folder / "maxp.1.run"), str(short)])
    assert list(systems) == ["maxp.1", "short"]
    found = compare_runs(systems, folder / "qrels.txt")
    [judged] = found.query_sets
    assert len(judged.qrels) == NUM_QUERIES and found.analysis.comparisons[0].losses == 2
    assert "short.run.gz: 2 judged queries" in comparison_text(found)  # Python says them all
    qrels = str(folder / "qrels.txt")
    assert main([str(folder / "maxp.1.run"), str(short), "--qrels", qrels]) == 0
    shown = capsys.readouterr().out
    assert "short.run.gz: 2 judged queries" in shown  # the first note is always said
    assert "--verbose prints 1 more note on the runs." in shown
    text = comparison_text(found, verbose=True)
    assert "short.run.gz: 2 judged queries without a result, counted as 0." in text
    assert "short.run.gz: 1 ranked query without a judgment, excluded." in text
    assert "No run has" not in text  # the other system has them
    (tmp_path / "all.qrels").write_text(f"{(folder / 'qrels.txt').read_text()}third 0 d1 1\n")
    text = comparison_text(compare_runs(systems, tmp_path / "all.qrels"), verbose=True)
    assert f"No run has 1 of the {NUM_QUERIES + 1} judged queries" in " ".join(text.split())
    write_files(found, tmp_path / "out")
    for name in ("index.html", "table.md", "table.tex"):
        assert (tmp_path / "out" / name).read_text().count("counted as 0") == 1


def test_a_pattern_takes_numbers_in_their_order(folder: Path, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        run = (folder / f"maxp.{number}.run").read_bytes()
        (tmp_path / f"a.seed{5 * number - 3}.run").write_bytes(run)
        (tmp_path / f"b.s{5 * number - 3:02}.run").write_bytes(run)
    found = compare_runs(
        systems_of([f"{name}={tmp_path}/{name}.*.run" for name in "ab"]),
        folder / "qrels.txt",
        TestOptions(paired_seeds=True),
    )
    pairs = "a.seed2.run with b.s02.run; a.seed7.run with b.s07.run; a.seed12.run with b.s12.run"
    assert f"Seeds paired: {pairs}." in found.sweep.notes


@pytest.mark.usefixtures("no_figures")
def test_a_system_declared_deterministic_gets_its_p(folder: Path, tmp_path: Path, capsys) -> None:
    arguments = [f"{folder}/sump.1.run", f"maxp={folder}/maxp.*.run"]
    arguments += ["--qrels", str(folder / "qrels.txt"), "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "training runs of sump.1 as" in " ".join(capsys.readouterr().out.split())
    assert main([*arguments, "--deterministic", "sump.1", "--verbose"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--deterministic" not in shown
    (first, _) = csv.DictReader((tmp_path / "comparisons.csv").open())
    assert 0 < float(first["p_queries"]) < float(first["p_both"]) < 0.05
    text = (tmp_path / "table.md").read_text()
    assert "(sump.1: deterministic)" in text and "†" not in text
    with pytest.raises(BadInput, match="unknown deterministic system"):
        main([*arguments, "--deterministic", "bm25"])
    with pytest.raises(BadInput, match="must have one run, got 3 for maxp"):
        main([*arguments, "--deterministic", "maxp"])


@pytest.mark.usefixtures("no_figures")
def test_each_baseline_has_its_letter(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["--baseline", "firstp", "--baseline", "sump"]
    assert main([*words(folder), "--out", str(tmp_path), *both]) == 0
    assert "baselines a firstp, b sump" in " ".join(capsys.readouterr().out.split())
    rows = list(csv.DictReader((tmp_path / "comparisons.csv").open()))
    assert [(row["system"], row["baseline"]) for row in rows if row["measure"] == "RR@10"] == [
        ("maxp", "firstp"),
        ("sump", "firstp"),
        ("firstp", "sump"),
        ("maxp", "sump"),
    ]
    assert "<sup>AB</sup>" in (tmp_path / "table.md").read_text()


@pytest.mark.usefixtures("no_figures")
def test_all_pairs_have_a_test_that_knows_all_of_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*words(folder), "--out", str(tmp_path), "--all-pairs"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "All pairs, nDCG@10" in shown and "Holm over all 3 pairs" in " ".join(shown.split())
    headings = [line for line in shown.splitlines() if line.startswith(("system", "pair"))]
    assert [("p queries" in line, "p Tukey" in line) for line in headings] == [
        (True, False), (True, False), (False, True), (False, True),
    ]  # fmt: skip
    rows = list(csv.DictReader((tmp_path / "pairs.csv").open()))
    assert len(rows) == 6 and {row["family_size"] for row in rows} == {"3"}
    assert all(float(row["p_queries"]) <= float(row["p_both"]) for row in rows)
    assert all(0 < float(row["p_queries_tukey"]) <= 1 for row in rows)
    main(arguments[:-1])
    assert not (tmp_path / "pairs.csv").exists() and (tmp_path / "index.html").exists()


def test_one_run_per_system_has_conditional_letters_and_says_so(folder: Path) -> None:
    systems = systems_of([str(folder / f"{name}.1.run") for name in ("firstp", "maxp")])
    assert list(systems) == ["firstp.1", "maxp.1"]
    found = compare_runs(systems, folder / "qrels.txt")
    assert all(math.isnan(one.p_both) for one in found.analysis.comparisons)
    text = " ".join(comparison_text(found, verbose=True).split())
    assert text.count("†: one") == 1 and "training runs of firstp.1 and maxp.1" in text
    assert " a " in text and not re.search(r"\d A ", text)


def test_no_values_of_a_sweep_or_of_a_source_are_replaced(folder: Path, tmp_path: Path) -> None:
    assert main([*words(folder), "--out", f"{tmp_path}/out"]) == 0
    table = tmp_path / "out" / "per_query.parquet"
    before = table.read_bytes()
    for source in ("out", "out/per_query.parquet"):
        again = [f"X={tmp_path}/{source}:firstp", f"Y={tmp_path}/{source}:maxp"]
        with pytest.raises(BadInput, match=r"per_query\.parquet:.* is read, and would be replaced"):
            main([*again, "--out", f"{tmp_path}/out/../out"])
    for name, what in (("sweep.json", "sweep"), ("result.json", "trial")):
        (table.parent / name).write_text("{}")
        with pytest.raises(BadInput, match=f"out holds {name} of a {what}"):
            main([*words(folder), "--out", f"{tmp_path}/out"])
        (table.parent / name).unlink()
    assert table.read_bytes() == before and main([*words(folder), "--out", f"{tmp_path}/out"]) == 0


def test_the_tables_are_written_unrounded_and_the_terminal_keeps_its_width(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "tables"
    assert main([*words(folder), "--out", str(out)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in shown if str(out) not in line) <= 80
    texts = {"comparisons.csv", "index.html", "queries.html", "results.json"}
    texts |= {"comparison.json", "table.csv", "table.md", "table.tex"}
    assert {path.name for path in out.iterdir()} == {*texts, "per_query.parquet", "plots"}
    expected = three(folder).analysis.comparisons
    rows = list(csv.DictReader((out / "comparisons.csv").open()))
    assert [float(row["p_both"]) for row in rows] == [one.p_both for one in expected]
    results = json.loads((out / "results.json").read_text())
    assert results["comparisons"][0]["p_both"] == expected[0].p_both
    assert list(results["systems"]) == ["firstp", "maxp", "sump"]
    kept = results["cells"][1]["measures"]["nDCG@10"]
    assert kept["mean"] == pytest.approx(expected[0].mean_system, rel=1e-14)
    # Each run ranks d0 to d11, of which two share nine or fewer of the first ten.
    [shared] = [row["value"] for row in results["findings"] if row["question"] == "lists"]
    assert 8 < shared < 10
    page = (out / "index.html").read_text()
    assert all(word not in page for word in ("launched", "All 9 trials", "split"))
    assert "rank, firstp (seed 1\xa02\xa03)" in (out / "queries.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["{0}/maxp.1.run"], "maxp.1"),
        (["a={0}/maxp.1.run", "a={0}/maxp.2.run"], "'a' twice"),
        (["a={0}/maxp.1.run,", "{0}/maxp.2.run"], "NAME="),
        (["a={0}/none.*.run", "{0}/maxp.2.run"], "none.*.run"),
        (["a={0}/maxp.1.run,{0}/maxp.1.run", "b={0}/maxp.3.run"], "maxp.1.run"),
        (["a={0}/maxp.1.run,{1}/copy.run", "b={0}/sump.1.run"], "copy.run"),
        (["a={1}/one.csv,{1}/copy.csv", "b={0}/sump.1.run"], "copy.csv"),
        (["a={0}/maxp.*.run", "b={0}/maxp.3.run"], "a and b"),
        (
            ["--measures", "AP", "a={0}/maxp.*.run"],
            "two systems or more, got none: --measures takes",
        ),
        (["{0}/maxp.*.run", "--baseline", "maxp.1", "--baseline", "maxp.1"], "--baseline"),
        (["{0}/maxp.1.run", "{0}/maxp.2.run", "--baseline", "maxp"], "baseline"),
        (["{0}/maxp.*.run", "--measures", "nDGC@10"], "nDGC@10"),
        (["{0}/maxp.*.run", "--measures", "AP", "alpha_nDCG@10"], "alpha_nDCG@10"),
        (["{0}/maxp.*.run", "--measures", "dl=RR"], "dl=RR"),
        (["{0}/maxp.*.run", "--alpha", "5"], "alpha"),
        (["{0}/maxp.*.run", "--qrels", "{0}/maxp.1.run"], "NAME=FILE"),
        (["{1}/queries.run", "{0}/maxp.1.run"], "queries.run"),
        (["{1}/documents.run", "{0}/maxp.1.run"], "documents.run is judged"),
        (["PT={1}/systems.csv"], "systems.csv:bm25"),
    ],
)
def test_what_cannot_be_compared_is_refused(folder, tmp_path, arguments, named, capsys) -> None:
    run = (folder / "maxp.1.run").read_text()
    (tmp_path / "copy.run").write_text(run)
    for name in ("one.csv", "copy.csv"):
        (tmp_path / name).write_text("qid,measure,value\nq1,nDCG@10,0.1\nq2,nDCG@10,0.2\n")
    (tmp_path / "queries.run").write_text("x1 Q0 d1 1 1.0 tag\n")
    (tmp_path / "documents.run").write_text(run.replace("Q0 d", "Q0 Xd"))
    rows = "".join(f"{s},q{q},nDCG@10,0.{q}\n" for s in ("bm25", "maxp", "firstp") for q in (1, 2))
    (tmp_path / "systems.csv").write_text(f"name,qid,measure,value\n{rows}")
    with pytest.raises(BadInput) as error:
        main(["--qrels", f"{folder}/qrels.txt", *(a.format(folder, tmp_path) for a in arguments)])
    assert named in str(error.value) and not capsys.readouterr().out


@pytest.mark.parametrize("line", ["q{} Q0 d1 1 0.5 tag", "q{} 0 d1 0", "q1 0 d1 1"])
def test_judgments_without_two_queries_and_a_relevant_document_are_refused(
    folder: Path, tmp_path: Path, line: str
) -> None:
    lines = dict.fromkeys(line.format(query) for query in range(5))
    (tmp_path / "bad.qrels").write_text("\n".join([*lines, ""]))
    with pytest.raises(BadInput, match=r"bad\.qrels"):
        main([f"{folder}/maxp.*.run", "--qrels", f"{tmp_path}/bad.qrels"])


def test_trainings_that_end_at_one_ranking_are_a_note_that_names_them(
    folder: Path, tmp_path: Path, capsys
) -> None:
    """Other scores, one ranking; a copy of a run is refused."""
    lines = (folder / "maxp.1.run").read_text().splitlines()
    scaled = [line.split() for line in lines]
    for fields in scaled:
        fields[4] = str(2 * float(fields[4]))
    (tmp_path / "maxp.9.run").write_text("".join(f"{' '.join(own)}\n" for own in scaled))
    own = f"maxp={folder}/maxp.1.run,{folder}/maxp.2.run,{tmp_path}/maxp.9.run"
    arguments = [f"firstp={folder}/firstp.*.run", own, "--qrels", f"{folder}/qrels.txt"]
    assert main(arguments) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "maxp.1.run and maxp.9.run have identical values for all queries" in shown
    assert design([*arguments[:2], *arguments[2:], "--delta", ".1"]) == 0
    copied = f"maxp={folder}/maxp.1.run,{tmp_path}/copy.run"
    (tmp_path / "copy.run").write_bytes((folder / "maxp.1.run").read_bytes())
    with pytest.raises(BadInput, match="has the content of"):
        main([arguments[0], copied, *arguments[2:]])


@pytest.mark.parametrize(
    ("name", "is_declared"),
    [("BM25", True), ("bm25.k1=0.9.b=0.4.top1000", True), ("tf-idf", True), ("bm25+rm3", True),
     ("bm25+bert-mp", False), ("bm25-t5", False), ("splade-bm25", False), ("run1", False)],
)  # fmt: skip
def test_the_next_step_declares_no_trained_system(
    folder: Path, tmp_path: Path, capsys, name: str, is_declared: bool
) -> None:
    (tmp_path / f"{name}.run").write_bytes((folder / "maxp.1.run").read_bytes())
    (tmp_path / "BM25_.run").write_bytes((folder / "firstp.1.run").read_bytes())
    runs = [str(tmp_path / "BM25_.run"), str(tmp_path / f"{name}.run")]
    assert main([*runs, "--qrels", f"{folder}/qrels.txt"]) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Next: ")]
    assert bool(commands) == is_declared
    for command in commands:
        assert "--deterministic BM25_" in command and f"--deterministic {name}" in command


def test_judgments_of_what_one_run_showed_are_said(folder: Path, tmp_path: Path, capsys) -> None:
    """With queries that count 0 for all."""
    lists = "".join(
        f"q{q} Q0 d{d} {d} {30 - d} t\n" for q in range(NUM_QUERIES) for d in range(1, 21)
    )
    (tmp_path / "shown.run").write_text(lists)
    clicks = "".join(f"q{q} 0 d{d} {int(q > 2)}\n" for q in range(NUM_QUERIES) for d in (1, 4))
    (tmp_path / "clicks.qrels").write_text(clicks)
    judged = ["--qrels", f"{tmp_path}/clicks.qrels"]
    assert main([f"{tmp_path}/shown.run", f"{folder}/maxp.1.run", *judged, "--verbose"]) == 0
    assert measure([f"{tmp_path}/shown.run", *judged]) == 0
    compared, measured = capsys.readouterr().out.split("shown.run: 40 judged queries")
    for text in (" ".join(compared.split()), " ".join(measured.split())):
        assert "Every judgment is among the first 4 documents of the run" in text
        assert "3 of 40 judged queries have no relevant document and count 0" in text
