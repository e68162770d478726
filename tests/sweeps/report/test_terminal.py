"""The report in a terminal: short, explained in a line, and within every width."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sweeps.commands.compare.command import systems_of
from sweeps.findings.analysis import Analysis, analyse
from sweeps.findings.every import findings
from sweeps.report.comparison import compare_runs
from sweeps.report.comparison_files import comparison_text
from sweeps.report.finding_table import value_text
from sweeps.report.headline import headline
from sweeps.report.legend import marks_line
from sweeps.report.terminal import MOST_LINES, terminal_text
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from tests.golden.cases import CASES

SWEEPS = ("quickstart", "confirmation", "race_with_eliminated", "damaged", "serving", "derive")
WIDTHS = (60, 66, 72, 80, 100, 120, 160, 200)
WHOLE = ("Next: ", "Report: ", "A copy to open: ", "Page: ")
"""What begins a command or a path, which stays on one line to be copied."""


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Analysis]:
    known: dict[str, Analysis] = {}

    def of(case: str) -> Analysis:
        if case not in known:
            folder = CASES[case].make(tmp_path_factory.mktemp("cases") / case)
            known[case] = analyse(with_interpolated(load_sweep(folder)))
        return known[case]

    return of


def text_of(analysis: Analysis, *, verbose: bool = False) -> list[str]:
    return terminal_text(analysis, Path("report/index.html"), verbose=verbose).splitlines()


def below(lines: Sequence[str]) -> list[str]:
    """The lines below the table and its legend."""
    return lines[max(at for at, line in enumerate(lines) if not line) + 1 :]


def numbers(lines: Sequence[str]) -> set[str]:
    return set(re.findall(r"[-+−]?\d*\.\d+", " ".join(lines)))


@pytest.mark.parametrize("case", SWEEPS)
@pytest.mark.parametrize("columns", WIDTHS)
def test_at_most_six_lines_stand_below_the_table_and_none_runs_past(
    case: str, columns: int, analysed: Callable[[str], Analysis], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = text_of(analysed(case))
    assert 2 <= len(below(lines)) <= MOST_LINES
    long = [line for line in lines if len(line) > columns and not line.startswith(WHOLE)]
    assert not long
    assert sum(line.startswith(("A", "a")) and ":" in line for line in lines) <= 1  # the legend


@pytest.mark.parametrize("case", SWEEPS)
def test_a_narrow_terminal_breaks_no_number(
    case: str, analysed: Callable[[str], Analysis], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {}
    for columns in (60, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        texts[columns] = numbers(text_of(analysed(case)))
    assert texts[60] <= texts[200] | numbers([headline(analysed(case)).text])


def test_a_wide_terminal_shows_more_measures(
    analysed: Callable[[str], Analysis], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, left_out = {}, {}
    for columns in (40, 60, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = text_of(analysed("quickstart"))
        heads[columns] = lines[2]
        left_out[columns] = [line for line in lines if line.startswith("Left out in")]
    assert "RR@10" in heads[120] and "RR@10" not in heads[60]
    assert "95% interval" in heads[60]
    assert (left_out[120], left_out[60]) == ([], ["Left out in 60 columns: RR@10."])
    assert left_out[40] == ["Left out in 40 columns: seeds, 95% interval, RR@10."]


@pytest.mark.parametrize("case", SWEEPS)
def test_verbose_says_the_rest(case: str, analysed: Callable[[str], Analysis]) -> None:
    found = analysed(case)
    short, whole = (" ".join(text_of(found, verbose=v)) for v in (False, True))
    assert headline(found).sentence in short and headline(found).sentence in whole
    for row in findings(found):
        assert value_text(row).split(",")[0].split(":")[0] in whole
    assert len(whole) > 1.3 * len(short)


def test_the_letters_are_explained_in_a_line_however_long_the_names(
    analysed: Callable[[str], Analysis], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = analysed("quickstart")
    long = "MaxP 128/64, head learning rate 1e-4, dropout 0.1, warm-up 0.05"
    cells = [replace(cell, label=f"{long}, k {at}") for at, cell in enumerate(found.sweep.cells)]
    renamed = replace(found, sweep=replace(found.sweep, cells=tuple(cells)))
    for columns in (80, 120, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        for own in (found, renamed):
            line = marks_line(own)
            assert len(line) <= columns and line.startswith("A, B") and line.endswith(".")
        line = marks_line(analysed("damaged"))  # has letters of the queries alone
        assert len(line) <= columns and line.startswith("a: ") and "queries" in line


def test_a_comparison_has_six_lines_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CASES["runs"].make(tmp_path / "runs")
    systems = [f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp", "bm25")]
    found = compare_runs(systems_of(systems), folder / "qrels.txt")
    for columns in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = comparison_text(found).splitlines()
        assert len(below(lines)) <= MOST_LINES
        shown = [line for line in lines if str(folder) not in line]
        assert all(len(line) <= columns for line in shown if not line.startswith(WHOLE))
        assert headline(found.analysis).sentence in " ".join(lines)
        whole = comparison_text(found, verbose=True)
        assert re.search(r"finding +of +value", whole)
