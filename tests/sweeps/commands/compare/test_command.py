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
from sweeps.commands.compare.output import comparison_text, write_files
from sweeps.commands.compare.runs import compare_runs
from sweeps.report.figures.forest import forest_plot
from sweeps.report.figures.strip import strip_plot
from sweeps.report.sections.results import page_table

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


def three(folder: Path, **settings):
    systems = systems_of([f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp", "sump")])
    return compare_runs(systems, folder / "qrels.txt", **settings)


def test_several_runs_of_a_system_are_its_seeds(folder: Path) -> None:
    found = three(folder)
    assert {row.label: row.seeds_used for row in found.analysis.rows} == dict.fromkeys(
        found.systems, 3
    )
    assert found.sweep.measures == ("nDCG@10", "RR@10") and found.sweep.slots == ("firstp",)
    assert [one.system for one in found.analysis.comparisons] == ["maxp", "sump"] * 2
    better, worse = found.analysis.comparisons[:2]
    assert better.delta > 0 > worse.delta and better.p_both_adjusted < 0.05
    assert all(0 < one.p_queries <= one.p_both < 1 for one in found.analysis.comparisons)


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
        name: [reciprocal_ranks(Path(run[""].where)) for run in runs.values()]
        for name, runs in found.systems.items()
    }
    mean_Q = {
        name: np.mean([[one[q] for q in sorted(one)] for one in runs], axis=0)
        for name, runs in by_run.items()
    }
    for one in found.analysis.comparisons:
        expected = stats.ttest_rel(mean_Q[one.system], mean_Q["firstp"])
        assert one.mean_system == pytest.approx(mean_Q[one.system].mean(), rel=1e-12)
        assert one.p_queries == pytest.approx(expected.pvalue, rel=1e-9)


def test_the_order_of_systems_and_runs_changes_no_number(folder: Path) -> None:
    turned = {
        name: [run[""] for run in reversed(runs.values())]
        for name, runs in reversed(three(folder).systems.items())
    }
    again = compare_runs(turned, folder / "qrels.txt", baselines=["firstp"])
    numbers = {(one.measure, one.system): one for one in three(folder).analysis.comparisons}
    for one in again.analysis.comparisons:
        before = numbers[one.measure, one.system]
        assert one.p_both == pytest.approx(before.p_both, rel=1e-9)
        assert one.delta == pytest.approx(before.delta, rel=1e-9)


@pytest.mark.parametrize("form", ["Bed003-{}", "PLAIN-{}", "te{:04}"])
def test_the_ids_of_queries_change_no_number_of_any_measure(folder: Path, tmp_path, form) -> None:
    def renamed(line: str) -> str:
        query_id, _, rest = line.partition(" ")
        return f"{form.format(int(query_id.removeprefix('q')))} {rest}"

    for path in folder.iterdir():
        lines = path.read_text().splitlines(keepends=True)
        (tmp_path / path.name).write_text("".join(map(renamed, lines)))
    measures = ["ERR@5", "nDCG(dcg='exp-log2')@5", "AP"]
    for before, after in zip(
        three(folder, measures=measures).analysis.comparisons,
        three(tmp_path, measures=measures).analysis.comparisons,
        strict=True,
    ):
        assert after.num_queries == before.num_queries == NUM_QUERIES
        assert after.mean_system == pytest.approx(before.mean_system, rel=1e-12) and after.delta
        assert after.p_both == pytest.approx(before.p_both, rel=1e-9)


@pytest.mark.parametrize(
    ("measures", "said"),
    [
        (["nDCG@0"], "'nDCG@0' cannot be computed: its cutoff must be 1 or more"),
        (["AP", "alpha_nDCG@10"], "'alpha_nDCG@10' cannot be computed"),
    ],
)
def test_what_cannot_be_computed_is_refused(folder: Path, capsys, measures, said) -> None:
    runs = [f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp")]
    with pytest.raises(BadInput) as error:
        main([*runs, "--qrels", str(folder / "qrels.txt"), "--measures", *measures])
    assert said in str(error.value) and not capsys.readouterr().out


def test_a_measure_has_one_name(folder: Path) -> None:
    found = three(folder, measures=["NDCG@10", "map", "MAP", "AP(rel=1)"])
    assert found.sweep.measures == ("nDCG@10", "AP")


def test_another_baseline_changes_the_sign_only(folder: Path) -> None:
    first = next(one for one in three(folder).analysis.comparisons if one.system == "maxp")
    second = next(
        one
        for one in three(folder, baselines=["maxp"]).analysis.comparisons
        if one.system == "firstp"
    )
    assert second.delta == -first.delta
    assert second.p_both == pytest.approx(first.p_both, rel=1e-9)


def test_the_text_names_the_system_with_too_few_runs(folder: Path) -> None:
    several = f"maxp={folder}/maxp.*.run"
    single = systems_of([f"firstp={folder}/firstp.1.run", several])
    text = " ".join(comparison_text(compare_runs(single, folder / "qrels.txt")).split())
    assert "one seed of firstp" in text and "p both:" not in text
    two = systems_of([f"firstp={folder}/firstp.[12].run", several])
    found = compare_runs(two, folder / "qrels.txt")
    text = " ".join(comparison_text(found).split())
    assert "Two seeds of a system" in text and "one seed" not in text
    assert "Next: add a third training run each." in text
    whole = comparison_text(three(folder))
    assert "three are needed" not in whole


def test_one_run_per_system_has_conditional_letters_and_says_so_plainly(folder: Path) -> None:
    systems = systems_of([str(folder / f"{name}.1.run") for name in ("firstp", "maxp")])
    assert list(systems) == ["firstp.1", "maxp.1"]
    found = compare_runs(systems, folder / "qrels.txt")
    assert all(math.isnan(one.p_both) for one in found.analysis.comparisons)
    text = " ".join(comparison_text(found).split())
    assert "one seed per system" in text and text.count("†: one training run") == 1
    assert "For these training runs alone: maxp.1 is significantly better" in text
    assert "training runs of firstp.1 and maxp.1 as NAME=" in text
    assert "deterministic= in Python" in text
    assert " a " in text and not re.search(r"\d A ", text)
    mixed = [f"firstp={folder}/firstp.*.run", str(folder / "maxp.1.run")]
    text = comparison_text(compare_runs(systems_of(mixed), folder / "qrels.txt"))
    assert "training runs of maxp.1 as NAME=" in " ".join(text.split())
    found = compare_runs(systems_of([*mixed, f"sump={folder}/sump.*.run"]), folder / "qrels.txt")
    assert "Both are corrected (Holm)" in " ".join(comparison_text(found).split())
    assert "Holm over 1-2 comparisons" in found.analysis.caption


def test_a_system_and_its_copy_under_another_name_have_p_one(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("maxp.*.run"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    systems = systems_of([f"{name.name}={name}/maxp.*.run" for name in (folder, tmp_path)])
    found = compare_runs(systems, folder / "qrels.txt")
    assert {(one.delta, one.p_queries, one.p_both) for one in found.analysis.comparisons} == {
        (0, 1, 1)
    }


def test_copies_of_one_run_are_refused_and_not_rewarded(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "maxp.again.run"
    copy.write_bytes((folder / "maxp.1.run").read_bytes())
    systems = {"maxp": (folder / "maxp.1.run", copy), "sump": (folder / "sump.1.run",)}
    with pytest.raises(BadInput, match=r"maxp\.again\.run has the content of .*maxp\.1\.run"):
        compare_runs(systems, folder / "qrels.txt")


def test_the_ranks_of_ties_are_ours_in_every_measure(folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.run", np.zeros((NUM_QUERIES, NUM_DOCUMENTS)))
    systems = systems_of([str(tmp_path / "a.run"), str(tmp_path / "b.run")])
    found = compare_runs(systems, folder / "qrels.txt", measures=["RR", "RR@10", "nDCG@10"])
    assert {one.mean_system for one in found.analysis.comparisons[:2]} == {1.0}  # d0 is relevant
    tied = 2 * NUM_QUERIES * (NUM_DOCUMENTS - 1)
    assert f"{tied} documents tie with another" in comparison_text(found)


def test_queries_without_a_result_count_0_and_unjudged_ones_are_left_out(
    folder: Path, tmp_path: Path
) -> None:
    lines = (folder / "maxp.1.run").read_text().splitlines(keepends=True)
    short = tmp_path / "short.run.gz"
    kept = [line for line in lines if not line.startswith(("q0 ", "q1 "))]
    short.write_bytes(gzip.compress("".join([*kept, "other Q0 d1 1 1.0 tag\n"]).encode()))
    systems = systems_of([str(folder / "maxp.1.run"), str(short)])
    assert list(systems) == ["maxp.1", "short"]
    found = compare_runs(systems, folder / "qrels.txt")
    assert (
        found.measured.num_queries["qrels.txt"] == NUM_QUERIES
        and found.analysis.comparisons[0].losses == 2
    )
    text = comparison_text(found)
    assert "short.run.gz: 2 judged queries without a result, counted as 0." in text
    assert "short.run.gz: 1 ranked query without a judgment, excluded." in text
    assert "No run has" not in text  # the other system has them
    write_files(found, tmp_path / "out")
    for name in ("index.html", "table.md", "table.tex"):
        assert (tmp_path / "out" / name).read_text().count("counted as 0") == 1


def test_a_note_that_holds_for_every_run_is_one_line(folder: Path, tmp_path: Path) -> None:
    qrels = (folder / "qrels.txt").read_text().splitlines(keepends=True)
    (tmp_path / "few.qrels").write_text("".join(qrels[:-3]))
    [note] = compare_runs(
        systems_of([f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp")]),
        tmp_path / "few.qrels",
    ).measured.notes
    assert note == "all 6 runs: 1 ranked query without a judgment, excluded."


def test_a_pattern_takes_numbers_in_their_order(folder: Path, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        run = (folder / f"maxp.{number}.run").read_bytes()
        (tmp_path / f"a.seed{5 * number - 3}.run").write_bytes(run)
        (tmp_path / f"b.s{5 * number - 3:02}.run").write_bytes(run)
    found = compare_runs(
        systems_of([f"{name}={tmp_path}/{name}.*.run" for name in "ab"]),
        folder / "qrels.txt",
        paired_seeds=True,
    )
    pairs = "a.seed2.run with b.s02.run; a.seed7.run with b.s07.run; a.seed12.run with b.s12.run"
    assert f"Seeds paired: {pairs}." in found.measured.notes


def test_queries_that_no_run_has_are_named_as_another_splits(folder: Path, tmp_path: Path) -> None:
    qrels = tmp_path / "all.qrels"
    qrels.write_text((folder / "qrels.txt").read_text() + "other 0 d1 1\nthird 0 d1 1\n")
    found = compare_runs(
        systems_of([str(folder / "maxp.1.run"), str(folder / "maxp.2.run")]), qrels
    )
    text = " ".join(comparison_text(found).split())
    assert f"No run has 2 of the {NUM_QUERIES + 2} judged queries" in text and "test.qrels" in text


def test_the_tables_are_written_unrounded_and_the_terminal_keeps_its_width(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "tables"
    arguments = [f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp", "sump")]
    assert main([*arguments, "--qrels", str(folder / "qrels.txt"), "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "comparisons.csv",
        "index.html",
        "per_query.parquet",
        "plots",
        "queries.html",
        "results.json",
        "table.csv",
        "table.md",
        "table.tex",
    ]
    shown = capsys.readouterr().out
    body = [line for line in shown.splitlines() if str(folder) not in line and str(out) not in line]
    assert max(map(len, body)) <= 80
    rows = list(csv.DictReader((out / "comparisons.csv").open()))
    expected = three(folder).analysis.comparisons
    assert [float(row["p_both"]) for row in rows] == [one.p_both for one in expected]
    markdown = (out / "table.md").read_text()
    assert "paired t-test over queries" in markdown and "launched" not in markdown
    assert "| runs |" in markdown and "3/3" not in markdown
    assert "Both are corrected (Holm)" in " ".join(shown.split())
    again = compare_runs(systems_of([str(out)]))  # the measures in the same order
    assert again.sweep.measures == ("nDCG@10", "RR@10")
    assert r"\toprule" in (out / "table.tex").read_text()
    results = json.loads((out / "results.json").read_text())
    assert results["sweep"]["measures"] == ["nDCG@10", "RR@10"]
    assert results["sweep"]["slots"] == ["firstp"]
    kept = results["cells"][1]["measures"]["nDCG@10"]
    assert kept["mean"] == pytest.approx(expected[0].mean_system, rel=1e-14)
    assert results["comparisons"][0]["p_both"] == expected[0].p_both
    deviation = np.std(list(kept["per_seed"].values()), ddof=1)
    note = f'class="letter">A</span> <span class="deviation">± {deviation:.3f}'
    page = (out / "index.html").read_text()
    assert note in page and "<h1>Which systems are better than firstp?</h1>" in page
    assert "Agreement of runs" in page and "judged@10" in page
    kept = {one["cell"]: one for one in results["agreement"]}
    assert list(kept) == ["firstp", "maxp", "sump"] and kept["maxp"]["num_runs"] == 3
    # Each run ranks d0 to d11 of which d0 to d2 are judged, three of the first ten or fewer.
    assert 0 < kept["maxp"]["rbo_seeds"] < 1 and 0.2 < kept["maxp"]["judged"] <= 0.3
    assert "in ranksweep&#39;s repository" in page  # statistics.md is not installed
    assert '<a href="index.html">comparison</a>' in (out / "queries.html").read_text()
    assert "rank, firstp (seed 1\xa02\xa03)" in (out / "queries.html").read_text()
    assert {path.name for path in (out / "plots").iterdir()} >= {
        "forest.png",
        "forest.svg",
        "queries.svg",
        "strip.svg",
    }
    assert all(word not in page for word in ("launched", "All 9 trials", "split"))


@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        (["{0}/maxp.1.run"], "two systems or more, got maxp.1"),
        (["{0}/maxp.1.run", "{0}/maxp.1.run"], "named once, got 'maxp.1' twice"),
        (["a={0}/maxp.1.run", "a={0}/maxp.2.run"], "named once, got 'a' twice: give several runs"),
        (["={0}/maxp.1.run", "{0}/maxp.2.run"], "a system is a run or NAME=run1,run2,run3"),
        (["a={0}/maxp.1.run,", "{0}/maxp.2.run"], "a system is a run or NAME=run1,run2,run3"),
        (["a={0}/none.*.run", "{0}/maxp.2.run"], r"no file matches .*none\.\*\.run"),
        (["a={0}/maxp.*.run", "b={0}/maxp.3.run"], r"a and b both contain .*maxp\.3\.run"),
        (["--measures", "AP", "a={0}/maxp.*.run"], r"--measures took a=.*/maxp\.\*\.run"),
        (["{0}/none.run", "{0}/maxp.2.run"], r"none\.run does not exist"),
        (["{0}/maxp.1.run", "{0}/maxp.2.run", "--baseline", "maxp"], "did you mean maxp"),
        (["{0}/maxp.*.run", "--measures", "nDGC@10"], "measure 'nDGC@10'"),
        (["{0}/maxp.*.run", "--alpha", "5"], "0 < alpha < 1"),
        (["{0}/maxp.*.run", "--qrels", "{0}/maxp.1.run"], "several query sets are .* NAME=FILE"),
        (["{0}/maxp.*.run", "--baseline", "maxp.1="], "a baseline is NAME or SYSTEM=NAME"),
        (["{0}/maxp.*.run", "--measures", "dl=RR"], "unknown collection of a measure 'dl'"),
    ],
)
def test_what_cannot_be_compared_is_refused(folder: Path, arguments: list[str], law: str) -> None:
    filled = [one.format(folder) for one in arguments]
    with pytest.raises(BadInput, match=law):
        main(["--qrels", str(folder / "qrels.txt"), *filled])


def test_a_file_that_holds_no_judgments_is_refused(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"`query_id 0 doc_id relevance`"):
        main([f"{folder}/maxp.*.run", "--qrels", f"{folder}/maxp.1.run"])


def test_runs_of_another_collection_are_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.run"
    other.write_text("x1 Q0 d1 1 1.0 tag\n")
    with pytest.raises(BadInput, match=r"judges none of its 1"):
        main([str(other), str(folder / "maxp.1.run"), "--qrels", str(folder / "qrels.txt")])


def test_runs_whose_documents_are_not_judged_are_refused(folder: Path, tmp_path: Path) -> None:
    text = (folder / "maxp.1.run").read_text()
    (tmp_path / "other.run").write_text(text.replace("Q0 d", "Q0 Xd"))
    with pytest.raises(BadInput, match=r"other\.run is judged in qrels\.txt"):
        main([f"{tmp_path}/other.run", f"{folder}/maxp.1.run", "--qrels", f"{folder}/qrels.txt"])


def test_a_system_of_one_run_does_not_change_the_p_of_others(folder: Path) -> None:
    runs = {"firstp": f"{folder}/firstp.*.run", "maxp": f"{folder}/maxp.*.run"}
    pairs = [f"{name}={files}" for name, files in runs.items()]
    alone, with_single = (
        compare_runs(systems_of(given), folder / "qrels.txt").analysis.primary[0]
        for given in (pairs, [*pairs, f"sump={folder}/sump.1.run"])
    )
    assert with_single.p_both_adjusted == alone.p_both_adjusted == alone.p_both


def test_a_single_judged_query_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("q1 0 d1 1\n")
    with pytest.raises(BadInput, match="two judged queries or more, found 1"):
        main([f"{folder}/maxp.1.run", f"{folder}/sump.1.run", "--qrels", f"{tmp_path}/one.txt"])


def test_a_pattern_without_a_name_is_one_system_per_file(folder: Path) -> None:
    assert list(systems_of([f"{folder}/maxp.?.run"])) == ["maxp.1", "maxp.2", "maxp.3"]


def test_a_system_declared_deterministic_gets_its_p(folder: Path, tmp_path: Path, capsys) -> None:
    arguments = [f"{folder}/sump.1.run", f"maxp={folder}/maxp.*.run"]
    arguments += ["--qrels", str(folder / "qrels.txt"), "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "training runs of sump.1 as" in " ".join(capsys.readouterr().out.split())
    assert main([*arguments, "--deterministic", "sump.1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--deterministic" not in shown
    assert "without seed variance: sump.1." in shown
    (first, _) = csv.DictReader((tmp_path / "comparisons.csv").open())
    assert 0 < float(first["p_queries"]) < float(first["p_both"]) < 0.05
    text = (tmp_path / "table.md").read_text()
    assert "(sump.1: deterministic)" in text and "†" not in text
    with pytest.raises(BadInput, match="unknown deterministic system"):
        main([*arguments, "--deterministic", "bm25"])
    with pytest.raises(BadInput, match="must have one run, got 3 for maxp"):
        main([*arguments, "--deterministic", "maxp"])


def test_the_best_gain_is_that_of_trained_systems_alone(folder: Path) -> None:
    trained = [f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp", "sump")]
    for systems, best_of in ((trained, True), ([*trained[:2], f"{folder}/sump.1.run"], False)):
        fixed = [] if best_of else ["sump.1"]
        found = compare_runs(systems_of(systems), folder / "qrels.txt", deterministic=fixed)
        text = " ".join(comparison_text(found).split())
        assert ("maxp, the best of 2" in text) is best_of


def test_a_far_system_without_training_does_not_squeeze_the_figures(
    folder: Path, tmp_path: Path
) -> None:
    write(tmp_path / "worst.run", np.tile(np.arange(NUM_DOCUMENTS, dtype=float), (NUM_QUERIES, 1)))
    systems = [f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp")]
    found = compare_runs(
        systems_of([*systems, f"{tmp_path}/worst.run"]),
        folder / "qrels.txt",
        deterministic=["worst"],
    ).analysis
    for shown in (forest_plot(found), strip_plot(found)):
        assert shown is not None and len(re.findall("<!-- ◂ .*?-->", shown.drawing.svg)) == 1
    assert "over 3 seeds" in page_table(found).caption


def test_marks_are_outside_brackets_and_a_system_called_a_is_called_a_system(folder: Path) -> None:
    systems = systems_of([f"A={folder}/firstp.1.run", f"B={folder}/maxp.1.run"])
    shown = page_table(compare_runs(systems, folder / "qrels.txt").analysis)
    assert shown.rows[1].cells[2].note.endswith(")†")
    assert "a: significantly different from system A" in shown.caption


def test_the_caption_counts_ties_and_no_trials(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "flat.run", np.zeros((NUM_QUERIES, NUM_DOCUMENTS)))
    arguments = [f"{tmp_path}/flat.run", f"{folder}/maxp.1.run"]
    assert main([*arguments, "--qrels", f"{folder}/qrels.txt", "--out", f"{tmp_path}/out"]) == 0
    text = (tmp_path / "out" / "table.md").read_text()
    assert "launched" not in text and "documents tie" not in text
    assert int(text.partition("document id (")[2].partition(" tied")[0].replace(",", "")) >= 440


def test_letters_follow_fixed_baselines_and_each_system_s_own(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp", "sump")]
    arguments += ["--qrels", f"{folder}/qrels.txt", "--out", str(tmp_path)]
    own = ["--baseline", "firstp", "--baseline", "maxp=sump", "--baseline", "sump=maxp"]
    assert main([*arguments, *own]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "baselines a firstp, b own (maxp: sump, sump: maxp)" in shown
    rows = list(csv.DictReader((tmp_path / "comparisons.csv").open()))
    assert [(row["system"], row["baseline"]) for row in rows if row["measure"] == "RR@10"] == [
        ("maxp", "firstp"),
        ("sump", "firstp"),
        ("maxp", "sump"),
        ("sump", "maxp"),
    ]
    markdown = (tmp_path / "table.md").read_text()
    assert "<sup>AB</sup>" in markdown and "b/B: the system's own baseline (sump, maxp)" in markdown


def test_all_pairs_have_a_test_that_knows_all_of_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp", "sump")]
    arguments += ["--qrels", f"{folder}/qrels.txt", "--out", str(tmp_path), "--all-pairs"]
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
