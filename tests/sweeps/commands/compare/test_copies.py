"""Systems that equal others in every run are said and leave the family; systems of two runs are not
judged beside the best."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ranksweep import compare
from sweeps.commands.compare.command import main, systems_of
from sweeps.findings import best
from sweeps.report.comparison import compare_runs
from tests.sweeps.commands.compare.test_command import NUM_DOCUMENTS, write

Q = 40


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Systems a, b and c of three runs, `same` with the runs of a in another order, `twin` with
    those of c."""
    folder = tmp_path_factory.mktemp("copies")
    rng = np.random.default_rng(3)
    (folder / "q.qrels").write_text("".join(f"q{q} 0 d{q % NUM_DOCUMENTS} 1\n" for q in range(Q)))
    for system, skill in (("a", 0.5), ("b", 0.7), ("c", 2.0)):
        for number in (1, 2, 3):
            score_QD = rng.normal(0, 1, (Q, NUM_DOCUMENTS))
            score_QD[range(Q), np.arange(Q) % NUM_DOCUMENTS] += skill
            write(folder / f"{system}.{number}.run", score_QD)
    for copy, first in (("same", "a"), ("twin", "c")):
        for number in (1, 2, 3):
            shutil.copy(folder / f"{first}.{number}.run", folder / f"{copy}.{number % 3 + 1}.run")
    return folder


def compared(runs: Path, *names: str, two: str = ""):
    words = [f"{name}={runs}/{name}.*.run" for name in names]
    words += [f"two={runs}/{two}.1.run,{runs}/{two}.2.run"] if two else []
    return compare_runs(systems_of(words), runs / "q.qrels", measures=["nDCG@10"]).analysis


def test_copies_change_no_number_of_the_others(runs: Path) -> None:
    plain, found = compared(runs, "a", "b", "c"), compared(runs, "a", "same", "b", "c", "twin")
    assert found.copies == {"same": "a", "twin": "c"}
    assert found.primary == plain.primary and found.best_sets == plain.best_sets
    assert {pair.family_size for pair in found.primary} == {2}
    assert [row.same_as for row in found.rows] == ["", "a", "", "", "c"]
    assert compare([f"{runs}/{name}.1.run" for name in ("a", "same")], runs / "q.qrels")


def test_table_terminal_page_results_and_gate_say_them(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"{name}={runs}/{name}.*.run" for name in ("a", "same", "b")]
    words += ["--qrels", f"{runs}/q.qrels"]
    assert main([*words, "--verbose", "--out", f"{tmp_path}/out"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "= a" in shown and "same equals a in every run and query and has no test." in shown
    assert json.loads((tmp_path / "out/results.json").read_text())["copies"] == {"same": "a"}
    assert "= a" in (tmp_path / "out/table.md").read_text()
    assert "same equals a" in (tmp_path / "out/index.html").read_text()
    alone = [*words[:2], *words[3:]]
    assert main([*alone, "--out", f"{tmp_path}/both"]) == 0
    assert "no other system has a higher mean on these" in capsys.readouterr().out
    assert "same equals a in every run" in (tmp_path / "both/index.html").read_text()
    assert main([*alone, "--gate", "--out", f"{tmp_path}/gate"]) == 5
    assert "undecided: same against a" in capsys.readouterr().out


def test_a_system_of_two_runs_is_not_judged_beside_the_best(runs: Path) -> None:
    found = compared(runs, "a", "b", two="c")
    assert found.best_set and found.best_set.best == "two" == found.best_set.two_runs[0]
    assert found.best_set.others == ("b", "a")[: len(found.best_set.others)]
    other = compared(runs, "a", "c", two="b")
    assert other.best_set and other.best_set.two_runs == ("two",) and not other.best_set.others
    for analysis in (other, found):
        [few] = [row for row in best.rows(analysis) if row.name == "too few runs to be judged"]
        assert few.names == ("two",)
