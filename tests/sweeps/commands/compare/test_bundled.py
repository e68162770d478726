"""The bundle of a comparison: the same bytes again, and whatever is changed by hand."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rank_core.data.trec import write_qrels, write_run
from rank_core.files import file_sha256
from sweeps.__main__ import main
from sweeps.commands.bundle import unpack, write_zip
from sweeps.commands.compare.bundled import FILE

pytestmark = pytest.mark.usefixtures("no_figures_here")
DRAW = random.Random(5)
QRELS = {f"q{n}": {"d0": 1, "d1": 0} for n in range(30)}
RUNS = {"bm25.run": 1.0, "maxp.1.run": 1.5, "maxp.2.run": 1.6, "maxp.3.run": 1.4}
COMPARE = ("compare", "BM25=bm25.run", "MaxP=maxp.*.run", "--qrels", "test.qrels", "--out", "out")


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the files of a comparison and its folder `out`."""
    monkeypatch.chdir(tmp_path)
    write_qrels(Path("test.qrels"), QRELS)
    for name, skill in RUNS.items():
        scores = {q: {f"d{n}": DRAW.gauss(skill * (n == 0)) for n in range(12)} for q in QRELS}
        write_run(Path(name), scores, tag="a")
    assert main([*COMPARE, "--deterministic", "BM25", "--ranks", "--all-pairs"]) == 0
    return tmp_path


def bundled(*words: str, to: str = "a.zip") -> Path:
    assert main(["bundle", "out", "--to", to, *words]) == 0
    return Path(to)


@pytest.mark.slow
def test_a_bundle_is_the_same_again_and_matches(compared: Path, capsys) -> None:
    first, second = bundled("--qrels", "include"), bundled("--qrels", "include", to="b.zip")
    assert first.read_bytes() == second.read_bytes()
    assert main(["verify", str(first)]) == 0
    assert "8 files of the report" in capsys.readouterr().out
    assert main([*COMPARE]) == 0  # another comparison into the same folder
    assert main(["verify", str(bundled("--qrels", "include", to="c.zip"))]) == 0
    assert main(["verify", str(first), "--qrels", "test.qrels"]) == 2
    assert "has its judgments" in capsys.readouterr().err
    assert main(["verify", str(first), "--measure", "json:dumps"]) == 2
    assert "--measure must be one of its measures" in capsys.readouterr().err


@pytest.mark.slow
def test_judgments_that_are_hashed_are_asked_for(compared: Path, capsys) -> None:
    file = bundled()
    (folder := compared / "unpacked").mkdir()
    unpack(file, folder)
    assert not [*folder.rglob("*.qrels"), *folder.rglob("queries.html")]
    assert main(["verify", str(file)]) == 0
    assert "not checked the report" in capsys.readouterr().out
    assert main(["verify", str(file), "--qrels", "test.qrels"]) == 0
    assert "not checked" not in capsys.readouterr().out
    write_qrels(Path("other.qrels"), {**QRELS, "q0": {"d1": 1}})
    assert main(["verify", str(file), "--qrels", "other.qrels"]) == 2
    assert "must name the file whose SHA-256" in capsys.readouterr().err


def another_score(folder: Path) -> None:
    [run] = folder.glob("inputs/*/maxp.2.run")
    run.write_text(run.read_text().replace(" 1 ", " 9 ", 1))


def another_sum(folder: Path) -> None:
    """A run with another first document, and the checksum that it then has."""
    [run] = folder.glob("inputs/*/maxp.2.run")
    lines = run.read_text().splitlines(keepends=True)
    run.write_text("".join(lines[1:]))

    change(
        folder, lambda about: about["sums"].update({str(run.relative_to(folder)): file_sha256(run)})
    )


def another_number(folder: Path) -> None:
    path = folder / "report" / "table.md"
    path.write_text(path.read_text().replace("0.", "0.9", 1))


def change(folder: Path, how: Callable[[dict], object]) -> None:
    about = json.loads((folder / FILE).read_text())
    how(about)
    (folder / FILE).write_text(json.dumps(about))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "code", "told"),
    [
        (another_score, 3, "maxp.2.run: comparison.json states"),
        (another_sum, 3, "report/results.json"),
        (another_number, 3, "report/table.md"),
        (lambda folder: (folder / "more.txt").write_text("x"), 3, "more.txt: a bundle of this"),
        (lambda folder: (folder / "report/more.csv").write_text("x"), 3, "no such file"),
        (lambda f: change(f, lambda a: a["qrels"].update({"test.qrels": "/etc/passwd"})), 2,
         "names '/etc/passwd'"),
        (lambda f: change(f, lambda a: a["qrels"].update({"test.qrels": "inputs/../../x"})), 2,
         "which is not in it"),
        (lambda f: change(f, lambda a: a["options"].update(tracking_uri="x")), 2, "the options"),
        (lambda f: change(f, lambda a: a.update(format=9)), 2, "of another ranksweep"),
        (lambda f: change(f, lambda a: a.update(systems=[1])), 2, "is not as `bundle` wrote it"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["include", "hash"])
def test_whatever_is_changed_is_named(compared, changed, code, told, mode, capsys) -> None:
    (folder := compared / "unpacked").mkdir()
    unpack(bundled("--qrels", mode), folder)
    changed(folder)
    write_zip(compared / "changed.zip", folder)
    words = ["--qrels", "test.qrels"] if mode == "hash" else []
    assert main(["verify", "changed.zip", *words]) == code
    said = capsys.readouterr()
    assert told in said.out + said.err
    assert not (compared / "x").exists()


def test_inputs_that_are_elsewhere_or_changed_are_refused(compared, monkeypatch, capsys) -> None:
    with open("maxp.1.run", "a") as file:
        file.write("q0 Q0 d99 99 -9 a\n")
    assert main(["bundle", "out", "--to", "a.zip"]) == 2
    assert "maxp.1.run was changed after the comparison" in capsys.readouterr().err
    Path("maxp.1.run").unlink()
    assert main(["bundle", "out", "--to", "a.zip"]) == 2
    assert "maxp.1.run, an input of out, is no file here" in capsys.readouterr().err
    assert not Path("a.zip").exists()


@pytest.mark.slow
def test_the_bundle_of_a_comparison_is_no_source_of_another(compared, capsys) -> None:
    file = bundled("--qrels", "include")
    assert main(["compare", str(file), "--qrels", "test.qrels"]) == 2
    assert "there is no sweep/ at its top but a comparison" in capsys.readouterr().err
