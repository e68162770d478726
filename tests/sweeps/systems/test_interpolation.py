"""Rows interpolated with the first stage: chosen on dev, stored once, marked wherever shown."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from rank_core.data.trec import read_qrels, read_run, write_qrels, write_run
from rank_core.errors import BadInput
from rank_core.evaluate import per_query, query_values
from rank_core.ranking.interpolation import choose_alpha, mixture
from rank_core.stats.scopes import paired_scope_test, scope_test
from sweeps.findings import effect
from sweeps.findings.analysis import analyse
from sweeps.report.build import write_report
from sweeps.report.caption import caption, notes
from sweeps.report.results import page_table, paper_table, shared_results
from sweeps.report.table import markdown
from sweeps.report.terminal import table_text
from sweeps.systems.choice import choose
from sweeps.systems.derived import with_interpolated
from sweeps.systems.interpolation import first_stage_scores, interpolate_cells
from sweeps.systems.load import Sweep, load_sweep
from tests.sweeps.report.ranked_sweep import CELLS, MEASURES, write_ranked_sweep

pytestmark = pytest.mark.usefixtures("no_figures")
FIRSTP, MAXP = (cell for cell, _, _ in CELLS)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Only to be copied: the others store derived rows."""
    return write_ranked_sweep(tmp_path_factory.mktemp("written") / "woods")


@pytest.fixture(scope="module")
def finished(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(written, tmp_path_factory.mktemp("finished") / "woods")


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "woods")


def test_values_and_alphas_are_those_of_the_runs_on_disk(finished: Path) -> None:
    sweep = load_sweep(finished)
    [found] = interpolate_cells(sweep, [MAXP])
    assert (found.of, found.label) == (MAXP, "MaxP 40/20 +BM25")
    qrels = {split: read_qrels(finished / f"qrels/{split}.qrels") for split in ("dev", "test")}
    for seed, [alpha] in found.alphas.items():
        trial = finished / "trials" / f"{MAXP}-seed{seed}"
        sides = {
            split: mixture(
                read_run(trial / f"{split}.run.gz"),
                read_run(finished / f"first_stage/{split}.run.gz"),
            )
            for split in qrels
        }
        assert alpha == choose_alpha(sides["dev"], qrels["dev"], MEASURES[0])
        assert 0 < alpha < 1, "both sides know something, so the example tells"
        expected = per_query(qrels["test"], sides["test"].at(alpha), MEASURES)
        own = found.scores[found.scores["seed"] == seed]
        assert own["value"].tolist() == expected["value"].tolist()


def test_a_pair_has_one_p_in_the_table_and_against_the_first_stage(finished: Path) -> None:
    analysis = analyse(with_interpolated(load_sweep(finished), "all"))
    against = {frozenset((c.system, c.baseline, c.measure)): c
               for c in analysis.first_stage_comparisons}  # fmt: skip
    twice = [(c, against.get(frozenset((c.system, c.baseline, c.measure))))
             for c in analysis.interpolated_comparisons]  # fmt: skip
    both = [(one, two) for one, two in twice if two]
    assert len(both) == len(MEASURES)
    for one, two in both:
        assert one.delta == pytest.approx(-two.delta)
        assert one.p_both_adjusted == two.p_both_adjusted
        assert one.p_queries_adjusted == two.p_queries_adjusted


def test_a_fold_chooses_by_its_own_dev_queries(tmp_path: Path) -> None:
    """Dev of one fold is test of the next: one alpha for all would have seen what is tested."""
    folder = write_ranked_sweep(tmp_path / "woods", folds=3)

    def values() -> "pd.Series[float]":
        [found] = interpolate_cells(load_sweep(folder), [MAXP])
        assert any(len(own) > 1 for own in found.alphas.values())
        return found.scores.set_index(["seed", "query_id", "measure"])["value"]

    before = values()
    assert len(before) == 3 * 30 * 2
    path = folder / "qrels/dev.qrels"
    documents, judged = {f"d{i}" for i in range(12)}, read_qrels(path)
    for query_id in judged:
        if int(query_id[5:]) % 3 == 0:
            judged[query_id] = dict.fromkeys(documents - judged[query_id].keys(), 1)
    write_qrels(path, judged)
    # Those queries are dev of the fold in which the queries 1, 4, 7 .. are tested.
    changed = before.index[before != values()]
    assert {int(query_id[5:]) % 3 for _, query_id, _ in changed} == {1}


@pytest.mark.parametrize("folds", [0, 3])
def test_the_lists_of_an_interpolated_trial_have_its_values(tmp_path: Path, folds: int) -> None:
    folder = write_ranked_sweep(tmp_path / "woods", folds=folds)
    [found] = interpolate_cells(load_sweep(folder), [MAXP])
    qrels = read_qrels(folder / "qrels/test.qrels")
    for seed, read in found.lists.items():
        run = {q: {d: -float(at) for at, d in enumerate(own)} for q, own in read([*qrels]).items()}
        own = found.scores[(found.scores["seed"] == seed) & (found.scores["measure"] == "nDCG@10")]
        assert query_values(qrels, run, "nDCG@10") == pytest.approx(
            dict(zip(own["query_id"], own["value"], strict=True))
        )


def test_what_is_stored_is_read_again_until_its_files_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = interpolate_cells(load_sweep(folder), [FIRSTP, MAXP])
    stored = {path: path.read_bytes() for path in (folder / "interpolated").iterdir()}
    assert len(stored) == 6 and all(path.name.endswith(".min-max.parquet") for path in stored)
    table = pd.read_parquet(next(iter(stored)))
    assert set(table["split"]) == {"dev", "test"} and table["alpha"].between(0, 1).all()

    with monkeypatch.context() as patched:
        patched.setattr("sweeps.systems.interpolation.mixture", None)  # would be a TypeError
        again = interpolate_cells(load_sweep(folder), [FIRSTP, MAXP])
    assert [one.alphas for one in again] == [one.alphas for one in first]
    assert all(a.scores.equals(b.scores) for a, b in zip(again, first, strict=True))

    damaged, *_ = stored
    damaged.write_bytes(stored[damaged][:-20])
    candidates = folder / "first_stage/test.run.gz"
    interpolate_cells(load_sweep(folder), [FIRSTP, MAXP])
    assert damaged.read_bytes() == stored[damaged], "the same input gives the same bytes"
    run, before = read_run(candidates), first_stage_scores(load_sweep(folder))
    write_run(candidates, {q: {d: -s for d, s in docs.items()} for q, docs in run.items()}, "x")
    [changed] = interpolate_cells(load_sweep(folder), [MAXP])
    assert not changed.scores.equals(first[1].scores)
    assert not first_stage_scores(load_sweep(folder)).equals(before)
    assert not list(folder.rglob("*.unfinished"))


@pytest.mark.parametrize("tied", [False, True])
def test_an_older_table_of_a_first_stage_holds_where_no_scores_tie(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tied: bool
) -> None:
    """Of a bundle that has the hash of its judgments alone, where none can be made."""
    path = folder / "first_stage/test.run.gz"
    if tied:
        write_run(path, {q: dict.fromkeys(docs, 1.0) for q, docs in read_run(path).items()}, "x")
    expected = first_stage_scores(load_sweep(folder))
    table = folder / "interpolated/first_stage.parquet"
    stored = pq.ParquetFile(table).read()
    key = {
        k: v
        for k, v in json.loads(stored.schema.metadata[b"ranksweep"]).items()
        if k not in ("ties", "splits")
    }
    older = stored.replace_schema_metadata(
        {**stored.schema.metadata, b"ranksweep": json.dumps(key).encode()}
    )
    pq.write_table(older, table)

    def refuse(*args: object) -> None:
        raise BadInput("no judgments")

    monkeypatch.setattr("sweeps.systems.interpolation.read_qrels", refuse)
    if tied:
        with pytest.raises(BadInput, match="no judgments"):
            first_stage_scores(load_sweep(folder))
    else:
        assert first_stage_scores(load_sweep(folder)).equals(expected)


def test_a_folder_that_may_only_be_read_has_its_rows_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("sweeps.systems.interpolation.atomic_write", refuse)
    assert len(with_interpolated(load_sweep(folder)).interpolated) == 2
    (folder / "first_stage" / "dev.run.gz").unlink()
    sweep = with_interpolated(load_sweep(folder))
    assert sweep.interpolated == () and "first_stage/dev.run.gz" in sweep.not_interpolated


def test_the_report_marks_its_rows_and_leaves_the_others_as_they_were(finished: Path) -> None:
    plain = analyse(load_sweep(finished))
    analysis = analyse(with_interpolated(load_sweep(finished)))
    assert [row.label for row in analysis.rows] == [
        "BM25", "FirstP 40", "FirstP 40 +BM25", "MaxP 40/20", "MaxP 40/20 +BM25",
    ]  # fmt: skip
    trained = [row for row in analysis.rows if row.is_cell]
    for row, alone in zip(trained, plain.rows, strict=True):
        first = [own["a"] for own in row.tests.values() if "a" in own]
        assert first == [own["a"] for own in alone.tests.values()]
        for fact in ("cell", "seed_means", "statuses", "kind", "is_baseline", "same_as"):
            assert getattr(row, fact) == getattr(alone, fact)
    assert analysis.comparisons == plain.comparisons and plain.interpolated_comparisons == []
    # A row that was added pays for the whole table: BM25, two derived ones and MaxP.
    assert {one.family_size for one in analysis.interpolated_comparisons} == {4}
    assert {one.family_size for one in analysis.comparisons} == {1}
    alphas = analysis.sweep.interpolated[1].alphas_text
    said = " ".join(notes(analysis))
    assert "chosen on dev (FirstP 40 " in said and alphas in said
    assert "p of BM25 and +BM25 is corrected over 4 comparisons, others over 1" in said
    assert "6 of 6 launched trials used" in said


def test_the_first_stage_is_a_row_that_all_others_are_tested_against(folder: Path) -> None:
    sweep = with_interpolated(load_sweep(folder))
    qrels = read_qrels(folder / "qrels/test.qrels")
    expected = per_query(qrels, read_run(folder / "first_stage/test.run.gz"), MEASURES)
    values = sweep.first_stage.scores
    assert values["value"].tolist() == expected["value"].tolist()

    analysis = analyse(sweep)
    row, *others = analysis.rows
    assert (row.label, row.seeds_text) == ("BM25", "—") and not row.is_baseline
    primary = expected.loc[expected["measure"] == MEASURES[0], "value"]
    assert row.mean(MEASURES[0]) == pytest.approx(primary.mean())
    found = [one for one in analysis.first_stage_comparisons if one.measure == MEASURES[0]]
    assert {one.system for one in found} == {row.cell.cell for row in others}
    # BM25 is not a training run: the p with both random is defined, and close to that of queries.
    assert {(one.baseline, one.num_seeds_baseline, one.family_size) for one in found} == {
        ("first_stage", 1, 4)
    }
    assert all(one.p_queries < one.p_both < 1 for one in found)
    assert "b/B: BM25" in caption(analysis) and "BM25: deterministic" in caption(analysis)


def test_the_report_tells_what_the_best_gains_over_the_first_stage(folder: Path) -> None:
    report = write_report(folder, verbose=True)
    before = {path: path.read_bytes() for path in report.folder.rglob("*.*")}
    assert {path: path.read_bytes() for path in write_report(folder).folder.rglob("*.*")} == before
    results = json.loads((report.folder / "results.json").read_text())
    by_name = {(c["system"], c["measure"]): c for c in results["first_stage_comparisons"]}
    mixed = by_name[f"{MAXP}+first_stage", MEASURES[0]]
    mean = results["first_stage"]["measures"][MEASURES[0]]["mean"]
    assert mean == pytest.approx(mixed["mean_baseline"])
    assert f"{mixed['delta']:+.3f} [{mixed['family_low']:.3f}, " in report.text.replace("−", "-")
    for name in ("table.md", "table.tex", "table.csv", "index.html"):
        assert "MaxP 40/20 +BM25" in (report.folder / name).read_text(), name
    compared = pd.read_csv(report.folder / "comparisons.csv").set_index(["measure", "system"])
    own = compared.loc[(MEASURES[0], mixed["system"])].set_index("baseline")["p_both_adjusted"]
    assert own["first_stage"] == pytest.approx(mixed["p_both_adjusted"])
    assert {*own.index} == {"first_stage", MAXP, FIRSTP}, "BM25, its own model, the baseline"


def with_tests(sweep: Sweep, **options: Any) -> Sweep:
    """The sweep with other tests."""
    about = replace(sweep.about, tests=replace(sweep.about.tests, **options))
    return replace(sweep, about=about)


def test_a_row_with_the_first_stage_is_tested_against_its_model_by_run(folder: Path) -> None:
    """Its runs are those of the model, so run i is paired with run i, although the sweep declares
    no pairing."""
    sweep = with_interpolated(load_sweep(folder), "all")
    analysis = analyse(sweep)
    assert not analysis.paired and not sweep.about.tests.paired_seeds
    found = {(c.measure, c.system): c for c in analysis.own_model_comparisons}
    assert found.keys() == {(m, row.name) for m in MEASURES for row in sweep.interpolated}
    for (measure, system), pair in found.items():
        assert pair.baseline == system.removesuffix("+first_stage")
        scores = analysis.row_scores.plain[measure].scores
        test = paired_scope_test(scores[system], scores[pair.baseline])
        assert (pair.delta, pair.se_both) == (test.delta, test.se_both)
        assert pair.p_both_adjusted <= 2 * pair.p_both and pair.family_size == 2
        unpaired = scope_test(scores[system], scores[pair.baseline])
        assert (pair.p_seeds, pair.p_both) == (test.p_seeds, test.p_both)
        assert pair.p_seeds != unpaired.p_seeds
    whole = analyse(with_tests(sweep, correction="holm", correct_over="table"))
    assert whole.num_families == 8, "two measures: cells, rows with BM25, against BM25, own models"
    assert {c.family_size for c in whole.own_model_comparisons} == {8 * 2}
    assert {c.family_size for c in whole.first_stage_comparisons} == {8 * 4}
    described = shared_results(analysis)
    assert [c["paired_runs"] for c in described["own_model_comparisons"]] == [True] * 4
    choice = analysis.choice
    assert choice
    [row] = [row for row in effect.rows(analysis) if row.name.startswith("gain by BM25")]
    own = {c.system: c for c in analysis.own_model_comparisons[:2]}[choice.system]
    assert (row.about, row.value, row.p) == (choice.label, own.delta, own.p_both_adjusted)


def test_a_first_stage_that_is_a_system_of_the_sweep_has_no_second_row(tmp_path: Path) -> None:
    cells = (*CELLS, ("bm25-2", "BM25", "bm25"))
    sweep = with_interpolated(load_sweep(write_ranked_sweep(tmp_path / "woods", cells=cells)))
    assert sweep.first_stage is None and sweep.interpolated
    assert [row.label for row in analyse(sweep).rows].count("BM25") == 1


def test_rows_are_for_the_baseline_and_the_best_on_dev_or_all_or_none(tmp_path: Path) -> None:
    cells = (*CELLS, ("birch-w40-s40-2", "Birch", "birch"), ("maxp-w20-s20-3", "MaxP 20", "maxp"))
    folder = write_ranked_sweep(tmp_path / "woods", cells=cells)
    sweep = load_sweep(folder)

    def of(rows: str) -> list[str]:
        return [one.of for one in with_interpolated(sweep, rows).interpolated]

    best = choose(with_interpolated(sweep))
    assert best and best.cell == "maxp-w20-s20-3" and best.is_mixed

    assert of("") == of("best") == [FIRSTP, "maxp-w20-s20-3"]
    assert of("all") == [FIRSTP, MAXP, "maxp-w20-s20-3"], "Birch has the first stage in it already"
    assert of("none") == [best.cell], "the choice"
    assert (
        with_interpolated(
            replace(sweep, about=replace(sweep.about, interpolate="none"))
        ).interpolated
        == ()
    )
    with pytest.raises(BadInput, match="unknown --interpolate 'some'"):
        of("some")


@pytest.mark.parametrize("alpha", [0, 1])
def test_a_row_that_is_another_by_construction_is_no_comparison(tmp_path: Path, alpha: int) -> None:
    """With alpha 0 or 1 everywhere the row adds no hypothesis: Holm's p are those without it."""
    folder = write_ranked_sweep(tmp_path / "woods", num_queries=40, strengths=(-1.5, 0.6))
    sweep = with_tests(with_interpolated(load_sweep(folder)), correction="holm")
    weak, strong = sweep.interpolated
    assert set(weak.alphas.values()) == {(0.0,)} and weak.deterministic
    qrels = read_qrels(folder / "qrels/test.qrels")
    expected = per_query(qrels, read_run(folder / "first_stage/test.run.gz"), MEASURES)
    assert weak.scores["value"].tolist() == expected["value"].tolist()
    assert not strong.deterministic and strong.scores["seed"].nunique() == 3
    if alpha:
        own = sweep.scores[sweep.scores["cell"] == weak.of].assign(cell=weak.name)
        ones = dict.fromkeys(weak.alphas, (1.0,))
        weak = replace(weak, alphas=ones, scores=own, deterministic=False)
        sweep = replace(sweep, interpolated=(weak, strong))
    analysis, without = (
        analyse(replace(sweep, interpolated=rows)) for rows in ((weak, strong), (strong,))
    )
    assert analysis.first_stage_comparisons == without.first_stage_comparisons
    assert analysis.interpolated_comparisons == without.interpolated_comparisons
    added, against = (
        [c for c in compared if c.measure == MEASURES[0]]
        for compared in (analysis.interpolated_comparisons, analysis.first_stage_comparisons)
    )
    assert {c.family_size for c in (*added, *against)} == {3}, "FirstP or BM25, MaxP, MaxP +BM25"
    smallest = min(against, key=lambda c: max(c.p_both, c.p_moderated))
    largest = max(smallest.p_both, smallest.p_moderated)
    assert smallest.p_both_adjusted == pytest.approx(3 * largest)

    same = "FirstP 40" if alpha else "BM25"
    said = f"FirstP 40 +BM25 has alpha {alpha}, so it equals {same}: no test"
    row = next(row for row in analysis.rows if row.name == weak.name)
    assert row.same_as == same and not any(row.tests.values())
    assert said in " ".join(notes(analysis))
    described = shared_results(analysis)["interpolated"][0]
    assert described["comparisons"] == []
    assert described["identical_to"] == (weak.of if alpha else "first_stage")
    shown = f"= {same}"
    assert shown in table_text(analysis) and shown in markdown(paper_table(analysis))
    assert shown in {cell.text for row in page_table(analysis).rows for cell in row.cells}


def test_what_cannot_be_interpolated_costs_no_report_and_is_said(tmp_path: Path) -> None:
    without = write_ranked_sweep(tmp_path / "without", first_stage=False)
    assert "first stage" not in write_report(without, verbose=True).text
    with pytest.raises(BadInput, match="the sweep's command writes it"):
        interpolate_cells(load_sweep(without), [MAXP])

    ranks_only = write_ranked_sweep(tmp_path / "ranks")
    for split in ("dev", "test"):
        path = ranks_only / f"first_stage/{split}.run.gz"
        write_run(path, {q: dict.fromkeys(docs, 1.0) for q, docs in read_run(path).items()}, "x")
    text = " ".join(write_report(ranks_only, verbose=True).text.split())
    assert "No row with the first stage:" in text and "reciprocal-rank" in text


def test_the_first_stage_has_the_mean_of_its_row(tmp_path: Path) -> None:
    """The plan measured it over all queries and candidates, whatever depth and queries count."""
    sweep = with_interpolated(load_sweep(write_ranked_sweep(tmp_path / "s")))
    sweep = replace(sweep, about=replace(sweep.about, first_stage={sweep.primary: 0.9}))
    assert sweep.first_stage is not None
    assert sweep.first_stage_mean == sweep.first_stage.mean(sweep.primary) != 0.9
    without = replace(sweep, first_stage=None)
    assert without.first_stage_mean == 0.9
    assert replace(without, about=replace(sweep.about, first_stage={})).first_stage_mean is None
