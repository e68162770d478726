"""Runs on several query sets: each with its columns, and the mean over them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.compare import CellComparison
from ranksweep import compare, load
from sweeps.commands.compare.command import main, query_sets_of, systems_of
from sweeps.report.comparison import compare_runs
from sweeps.report.comparison_files import all_pairs, comparison_text, pairs_text, write_files
from sweeps.store.queries import QUERIES, QueryFacts, text_key
from sweeps.store.sweep_file import read_sweep_file
from sweeps.store.test_options import TestOptions
from sweeps.terminal.command_line import run_command
from sweeps.terminal.text import shortened
from tests.sweeps.commands.compare.test_command import NUM_DOCUMENTS, write
from tests.sweeps.systems.test_load import FIVE, read_values, redescribe, write_sweep


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two query sets of 20 and 30 queries with the same ids; three systems with three runs each,
    whose lead over `firstp` differs between the sets."""
    folder = tmp_path_factory.mktemp("years")
    rng = np.random.default_rng(3)
    for name, count, lift in (("y19", 20, 1.5), ("y20", 30, 0.5)):
        (folder / name).mkdir()
        lines = [f"q{q} 0 d{d} 1\n" for q in range(count) for d in range(3)]
        (folder / f"{name}.qrels").write_text("".join(lines))
        for system, skill in (("firstp", 0.5), ("maxp", 0.5 + lift), ("sump", 0.6)):
            for number in (1, 2, 3):
                score_QD = rng.normal(0, 1, (count, NUM_DOCUMENTS))
                score_QD[:, :3] += skill
                write(folder / name / f"{system}.{number}.run", score_QD)
    return folder


def of_years(years: Path, sets=("y19", "y20"), folder=str, **settings):
    names = ("firstp", "maxp", "sump")
    systems = {
        one: [{s: f"{years}/{folder(s)}/{one}.{k}.run" for s in sets} for k in (1, 2, 3)]
        for one in names
    }
    qrels = {name: years / f"{folder(name)}.qrels" for name in sets}
    return compare_runs(systems, qrels, measures=["RR"], **settings)


def means_per_set(years: Path, system: str) -> dict[str, float]:
    """Computed from each set alone."""
    return {
        name: compare_runs(
            systems_of([f"{one}={years}/{name}/{one}.*.run" for one in ("firstp", system)]),
            years / f"{name}.qrels",
            measures=["RR"],
        ).analysis.comparisons[0]
        for name in ("y19", "y20")
    }


def test_every_collection_and_their_mean_are_one_table(years: Path, tmp_path: Path) -> None:
    found = of_years(years)
    assert found.sweep.measures == ("mean RR", "y19 RR", "y20 RR")
    alone = means_per_set(years, "maxp")
    rows = {row.label: row for row in found.analysis.rows}
    for name, pair in alone.items():
        own = rows["maxp"].test(f"{name} RR")
        assert (own.delta, own.p_both) == pytest.approx((pair.delta, pair.p_both), rel=1e-12)
        assert own.p_both_adjusted >= 2 * pair.p_both_adjusted  # two systems on two collections
    mean = rows["maxp"].test("mean RR")
    assert mean.delta == pytest.approx((alone["y19"].delta + alone["y20"].delta) / 2)
    assert mean.mean_system == pytest.approx(rows["maxp"].mean("mean RR"))
    runs = [
        np.mean([rows["maxp"].seed_means[f"{name} RR"][seed] for name in alone])
        for seed in (1, 2, 3)
    ]
    assert list(rows["maxp"].seed_means["mean RR"].values()) == pytest.approx(runs)
    assert found.analysis.best_set.best == "maxp" and found.analysis.chosen == mean

    write_files(found, tmp_path)
    table = (tmp_path / "table.md").read_text().splitlines()
    heading = next(line for line in table if line.startswith("| system"))
    assert [part.strip() for part in heading.strip("|").split("|")] == [
        "system", "runs", "y19 RR", "y20 RR", "mean RR", "Δ [95% CI]", "p",
    ]  # fmt: skip
    lines = comparison_text(found).splitlines()
    assert max(map(len, lines)) <= 80
    [heading] = [line for line in lines if line.startswith("system")]
    assert heading.split() == "system runs y19 y20 mean Δ 95% interval p".split()
    results = json.loads((tmp_path / "results.json").read_text())
    assert {c["measure"] for c in results["comparisons"]} == {*found.sweep.measures}
    assert all(name in (tmp_path / "table.tex").read_text() for name in ("y19 RR", "mean RR"))
    assert "mean RR" in (tmp_path / "comparisons.csv").read_text()


def test_the_order_of_query_sets_changes_no_number(years: Path) -> None:
    def tests(names: tuple[str, ...]) -> dict[tuple[str, str], CellComparison]:
        return {(c.measure, c.system): c for c in of_years(years, names).analysis.comparisons}

    first, other = tests(("y19", "y20")), tests(("y20", "y19"))
    for key, pair in first.items():
        for name in ("delta", "p_both_adjusted", "ci_low", "ci_high", "family_high", "wins"):
            assert getattr(other[key], name) == pytest.approx(getattr(pair, name), rel=1e-9)


def test_separate_runs_differ_in_their_seed_variance_alone(years: Path) -> None:
    shared, separate = (
        of_years(years, tests=TestOptions(separate_runs=own)).analysis.comparisons[0]
        for own in (False, True)
    )
    assert (shared.measure, shared.delta) == ("mean RR", pytest.approx(separate.delta))
    assert separate.p_queries == pytest.approx(shared.p_queries)
    assert separate.p_both != pytest.approx(shared.p_both)
    assert separate.num_seeds_system == 3


@pytest.mark.parametrize("numbers", [(3, 3), (3, 2)])
def test_separate_runs_have_a_page_and_may_differ_in_number(
    years: Path, numbers: tuple[int, int], tmp_path: Path
) -> None:
    for name, number in zip(("y19", "y20"), numbers, strict=True):
        shutil.copytree(years / name, tmp_path / name)
        for path in tmp_path.glob(f"{name}/*.run"):
            if int(path.suffixes[0][1:]) > number:
                path.unlink()
    words = [f"{system}={tmp_path}/{{set}}/{system}.*.run" for system in ("firstp", "maxp", "sump")]
    words += [f"--qrels={name}={years}/{name}.qrels" for name in ("y19", "y20")]
    words += ["--measures", "RR", "--out", str(tmp_path / "out")]
    refused = 2 if numbers == (3, 2) else 0
    assert run_command(lambda: main(words)) == refused
    assert run_command(lambda: main([*words, "--separate-runs"])) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    for cell in results["cells"]:
        per_seed = {name: len(own["per_seed"]) for name, own in cell["measures"].items()}
        assert per_seed == {"mean RR": 0, "y19 RR": numbers[0], "y20 RR": numbers[1]}
    page = (tmp_path / "out" / "index.html").read_text()
    assert "seed 0" not in page and "maxp: +0." in page


def test_pairs_of_collections_and_of_the_mean_are_families_of_their_own(years: Path) -> None:
    found = of_years(years).analysis
    text = " ".join(" ".join(pairs_text(found, all_pairs(found))).split())
    assert text.endswith("Holm over all 6 pairs, of a mean 3 pairs.")


def test_many_collections_are_shown_in_blocks(years: Path) -> None:
    names = tuple(f"collection-{number}" for number in range(9))
    text = comparison_text(of_years(years, names, folder=lambda name: f"y{19 + int(name[-1]) % 2}"))
    assert max(map(len, text.splitlines())) <= 80
    assert all(shortened(name, 13) in text for name in names)


@pytest.fixture
def sweeps(tmp_path: Path) -> list[str]:
    """Sweeps of two configurations on two collections; on the second a run is lost."""
    common: dict[str, Any] = {"kinds": FIVE[:2], "effect": 0.4}
    folders = [
        write_sweep(tmp_path / "one", num_queries=30, collection={"name": "one"}, **common),
        write_sweep(
            tmp_path / "two", num_queries=20, collection={"name": "two"},
            fates={(1, 2): "failed"}, **common,
        ),
    ]  # fmt: skip
    for folder in folders:
        write_texts(folder, lambda query_id, name=folder.name: f"{query_id} of {name}")
    return [str(folder) for folder in folders]


def write_texts(folder: Path, text_of: Callable[[str], str], **facts: Any) -> None:
    """The hashes of the texts of a sweep's queries, as its command leaves them."""
    (folder / QUERIES).mkdir(exist_ok=True)
    ids = sorted(read_values(folder)["query_id"].unique())
    known = QueryFacts({query_id: text_key(text_of(query_id)) for query_id in ids}, **facts)
    (folder / QUERIES / "test.jsonl").write_text(known.lines())


def test_sweeps_on_several_collections_have_separate_runs(sweeps: list[str]) -> None:
    found = compare_runs(systems_of(sweeps))
    own = [load(folder).table()._analysis.comparisons[0] for folder in sweeps]
    pairs = {pair.measure: pair for pair in found.analysis.comparisons}
    for name, alone in zip(("one", "two"), own, strict=True):
        pair = pairs[f"{name} nDCG@10"]
        assert (pair.delta, pair.p_both) == pytest.approx((alone.delta, alone.p_both))
    mean = pairs["mean nDCG@10"]
    assert mean.delta == pytest.approx(np.mean([alone.delta for alone in own]))
    assert mean.se_queries == pytest.approx(np.hypot(*[c.se_queries for c in own]) / 2)
    assert mean.se_both == pytest.approx(np.hypot(*[c.se_both for c in own]) / 2, rel=0.05)
    assert mean.num_seeds_system == 2 and found.sweep.separate_runs == ("FirstP", "MaxP 64/64")
    named = {name: [f"{folder}:{name}" for folder in sweeps] for name in found.seeds}
    assert repr(compare(sweeps)) == repr(compare(named))


def test_seeds_that_differ_on_a_collection_are_not_paired_in_the_mean(tmp_path: Path) -> None:
    for name, lost in (("one", {(1, 5): "failed"}), ("two", {(0, 4): "failed"})):
        write_sweep(
            tmp_path / name, kinds=FIVE[:2], num_queries=20, collection={"name": name},
            seeds=(1, 2, 3, 4, 5), fates=lost, paired_seeds=True,
        )  # fmt: skip
    systems = systems_of([str(tmp_path / "one"), str(tmp_path / "two")])
    paired, plain = (
        compare_runs(systems, None, TestOptions(paired_seeds=own)).analysis for own in (True, False)
    )
    assert not paired.paired and paired.best_sets == plain.best_sets


def test_trials_that_train_nothing_are_the_same_run_on_every_collection(sweeps: list[str]) -> None:
    for folder in map(Path, sweeps):  # they rank with the model as it is
        cells = read_sweep_file(folder).cells
        untaught = {"training.num_epochs": 0}
        redescribe(folder, cells=tuple(replace(cell, config=untaught) for cell in cells))
    with pytest.raises(BadInput, match="seed 2 of MaxP 64/64 is not on two"):
        compare_runs(systems_of(sweeps))
    shutil.rmtree(next(Path(sweeps[0], "trials").glob("maxp*-seed2")))
    found = compare_runs(systems_of(sweeps))
    assert found.sweep.separate_runs == () and found.seeds["MaxP 64/64"] == (1, 3)


def test_a_system_that_a_collection_lacks_is_refused(
    sweeps: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = write_sweep(tmp_path / "more", kinds=FIVE[:3], collection={"name": "more"})
    for words in (
        [*sweeps, str(more)],
        [*sweeps, f"{sweeps[0]}:FirstP"],
        [*sweeps, f"{more}:MaxP 9/9"],
        [sweeps[0], f"{more}:FirstP"],
    ):
        assert run_command(lambda: main(words)) == 2  # noqa: B023
        assert "error" in capsys.readouterr().err
    assert run_command(lambda: main([*sweeps, "--baseline", "FirsP"])) == 2
    assert "did you mean FirstP" in capsys.readouterr().err


def test_query_sets_need_names_files_and_runs_of_their_own(years: Path, tmp_path: Path) -> None:
    sets = {name: years / f"{name}.qrels" for name in ("y19", "y20")}
    systems = systems_of([str(years / "y20" / f"{one}.1.run") for one in ("maxp", "sump")])
    with pytest.raises(BadInput, match="y19 and y20 both judge q0"):
        compare_runs(systems, sets)
    with pytest.raises(BadInput, match="called mean"):
        of_years(years, ("y19", "mean"), folder=lambda name: "y20")
    for name, count in (("y19", 3), ("y20", 2)):
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"maxp.{number}.run").write_text("q1 Q0 d1 1 1.0 tag\n")
        shutil.copy(years / name / "sump.1.run", tmp_path / name)
    words = [f"{system}={tmp_path}/{{set}}/{system}.*.run" for system in ("maxp", "sump")]
    with pytest.raises(
        BadInput, match=r"maxp is not on y20 \(runs: 3 for y19, 2 for y20\); .* --separate-runs"
    ):
        compare_runs(systems_of(words, sets=[*sets]), sets)
    for words in (["a=x", "b"], ["a=x", "a=y"]):
        with pytest.raises(BadInput, match=r"NAME=FILE|'a'"):
            query_sets_of(words)
