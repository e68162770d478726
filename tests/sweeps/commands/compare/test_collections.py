"""Runs on several query sets: pooled by query, or apart with an average gain."""

from pathlib import Path

import numpy as np
import pytest

from rank_core.errors import BadInput
from rank_core.stats.matrix import queries_per_set
from sweeps.commands.compare.command import query_sets_of, systems_of
from sweeps.commands.compare.output import comparison_text
from sweeps.commands.compare.runs import compare_runs

NUM_DOCUMENTS = 12


def write(path: Path, score_QD: np.ndarray) -> None:
    path.write_text(
        "".join(
            f"q{q} Q0 d{d} 1 {score_QD[q, d]:.4f} tag\n"
            for q in range(len(score_QD))
            for d in range(score_QD.shape[1])
        )
    )


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


def of_years(years: Path, **settings):
    names = ("firstp", "maxp", "sump")
    sets = query_sets_of([f"{name}={years}/{name}.qrels" for name in ("y19", "y20")])
    systems = systems_of([f"{one}={years}/{{set}}/{one}.*.run" for one in names], sets=list(sets))
    return compare_runs(systems, sets, measures=["RR"], **settings)


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


def test_pooled_query_sets_weigh_every_query_alike_and_keep_equal_ids_apart(years: Path) -> None:
    found = of_years(years)
    assert sum(len(one.qrels) for one in found.query_sets) == 50 and found.sweep.measures == ("RR",)
    (matrix,) = found.analysis.matrices.values()
    assert queries_per_set(matrix.query_ids) == {"y19": 20, "y20": 30}
    assert queries_per_set(["y19/1", "2"]) == {} == queries_per_set([])
    alone = means_per_set(years, "maxp")
    one = found.analysis.comparisons[0]
    expected = (20 * alone["y19"].mean_system + 30 * alone["y20"].mean_system) / 50
    assert one.mean_system == pytest.approx(expected, rel=1e-12)
    assert "y19 (20) + y20 (30)" in " ".join(comparison_text(found).split())
    assert all(row.average_gain is None for row in found.analysis.rows)


def test_collections_apart_have_columns_and_an_average_gain(years: Path) -> None:
    found = of_years(years, apart=True)
    assert found.sweep.measures == ("y19 RR", "y20 RR")
    assert [(c.measure, c.system) for c in found.analysis.comparisons][::2] == [
        ("y19 RR", "maxp"),
        ("y20 RR", "maxp"),
    ]
    alone = means_per_set(years, "maxp")
    gain = {row.cell.cell: row.average_gain for row in found.analysis.rows}
    assert gain["firstp"] is None
    assert gain["maxp"].gain == pytest.approx(
        (alone["y19"].relative_gain + alone["y20"].relative_gain) / 2, rel=1e-12
    )
    assert 0 < gain["maxp"].low < gain["maxp"].gain < gain["maxp"].high
    assert gain["sump"].low < 0 < gain["sump"].high
    assert of_years(years, apart=True).analysis.rows == found.analysis.rows
    assert "Average gain over firstp: mean of 2 columns" in comparison_text(found)


def test_query_sets_need_names_files_and_runs_of_their_own(years: Path, tmp_path: Path) -> None:
    sets = {name: years / f"{name}.qrels" for name in ("y19", "y20")}
    systems = systems_of([str(years / "y20" / f"{one}.1.run") for one in ("maxp", "sump")])
    with pytest.raises(BadInput, match="y19 and y20 both judge q0"):
        compare_runs(systems, sets)
    for name, count in (("y19", 3), ("y20", 2)):
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"maxp.{number}.run").write_text("q1 Q0 d1 1 1.0 tag\n")
    with pytest.raises(BadInput, match="3 for y19, 2 for y20"):
        systems_of([f"maxp={tmp_path}/{{set}}/maxp.*.run"], sets=["y19", "y20"])
    for words in (["a=x", "b"], ["a=x", "a=y"]):
        with pytest.raises(BadInput, match=r"NAME=FILE|'a'"):
            query_sets_of(words)
