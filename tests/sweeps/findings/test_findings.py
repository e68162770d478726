"""Findings: numbers by hand, one row a question, the same rows in every way out."""

import ast
import json
from dataclasses import asdict
from pathlib import Path
from unittest.mock import Mock

import pytest

from sweeps.findings import effect
from sweeps.findings.allowance import allowed_gain
from sweeps.findings.analysis import analyse
from sweeps.findings.every import QUESTIONS, findings
from sweeps.findings.finding import Finding, Unit
from sweeps.report.files import report_files
from sweeps.report.finding_table import finding_table, value_text
from sweeps.report.results import json_text
from sweeps.report.terminal import terminal_text
from sweeps.systems.choice import dev_by_seed
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from tests.golden.cases import CASES
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

pytestmark = pytest.mark.usefixtures("no_figures")
ROOT = Path(__file__).parents[3]
SWEEPS = ("quickstart", "confirmation", "race_with_eliminated", "damaged", "serving")


def test_the_gain_that_remains_is_a_merit_of_a_sweep_with_dev_alone(tmp_path: Path) -> None:
    analysis = analyse(with_interpolated(load_sweep(write_ranked_sweep(tmp_path / "woods"))))
    rows = [row for row in effect.rows(analysis) if "allowing" in row.name]
    assert [row.value for row in rows] == [analysis.gain_after_choice]
    choice, primary = analysis.choice, analysis.sweep.primary
    assert choice and analysis.first_stage
    gains = []
    for out in (1, 2, 3):  # by hand: each seed left out of the choice in turn
        dev = dev_by_seed(analysis.sweep)
        means = {
            name: sum(v for s, v in dev[name].items() if s != out or len(dev[name]) == 1)
            / max(1, len(dev[name]) - (len(dev[name]) > 1))
            for name in choice.order
            if name in [row.name for row in analysis.rows]
        }
        best = next(row for row in analysis.rows if row.name == max(means, key=means.__getitem__))
        own = best.seed_means[primary]
        first = analysis.first_stage.mean(primary)
        gains.append((own[out] if len(own) > 1 else best.mean(primary)) - first)
    assert analysis.gain_after_choice == pytest.approx(sum(gains) / 3)


@pytest.mark.parametrize("case", SWEEPS)
def test_every_way_out_has_the_same_rows(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Mock(wraps=allowed_gain)
    monkeypatch.setattr("sweeps.findings.analysis.allowed_gain", made)
    folder = CASES[case].make(tmp_path / case)
    analysis = analyse(with_interpolated(load_sweep(folder)))
    rows = findings(analysis)
    files = report_files(analysis, label="tab")
    stated = json.loads(files["results.json"])["findings"]
    assert stated == json.loads(json_text({"rows": [asdict(row) for row in rows]}))["rows"]
    whole = " ".join(terminal_text(analysis, Path("index.html"), verbose=True).split())
    for row in rows:
        assert row.name.split()[0] in whole
    shown = finding_table(rows).rows
    assert [line.cells[2].text for line in shown] == [value_text(row) for row in rows]
    assert all(row.name and value_text(row) != "p —" for row in rows)
    assert made.call_count <= 1  # a bootstrap


def test_every_link_is_a_paragraph_of_the_page(tmp_path: Path) -> None:
    heads = {
        "-".join("".join(c for c in line.strip("# ").lower() if c.isalnum() or c in " -").split())
        for line in (ROOT / "docs" / "statistics.md").read_text("utf-8").splitlines()
        if line.startswith("#")
    }
    analysis = analyse(with_interpolated(load_sweep(CASES["quickstart"].make(tmp_path / "q"))))
    links = {row.link for row in findings(analysis) if row.link}
    assert links and links <= heads


def test_a_question_is_a_module_without_prose() -> None:
    """No text of a module of this room is a sentence: names of findings are noun phrases."""
    for path in sorted((ROOT / "sweeps" / "findings").glob("*.py")):
        tree = ast.parse(path.read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        if path.stem in ("clusters", "analysis"):  # warnings that stand above the numbers
            continue
        said = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docs
            and node.value.endswith(".")
            and " " in node.value
            and "\n" not in node.value
        ]
        assert not [text for text in said if text[0].isupper()], path.name
    assert len(QUESTIONS) >= 11


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (Finding("x", "gain", value=0.1774, low=0.082, high=0.272, p=0.0021),
         "+0.177 [0.082, 0.272], p .002"),
        (Finding("x", "loss", value=-0.05), "−0.050"),
        (Finding("x", "share", value=0.19, unit=Unit.SHARE), "19%"),
        (Finding("x", "systems", value=2, unit=Unit.COUNT, names=("A", "B")), "2: A and B"),
        (Finding("x", "tokens", value=12345.0, unit=Unit.NUMBER), "12,345"),
        (Finding("x", "ms", value=1.234, unit=Unit.NUMBER), "1.23"),
        (Finding("x", "differ", p=0.0004), "p <.001"),
    ],
)  # fmt: skip
def test_a_number_is_written_in_one_way(row: Finding, text: str) -> None:
    assert value_text(row) == text
