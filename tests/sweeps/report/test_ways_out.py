"""Every way out of a result names the choice in the same words, from one function."""

import html
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rank_core.settings.config import TrialConfig
from ranksweep.results import Comparison, Sweep
from sweeps.commands.compare.command import systems_of
from sweeps.findings.analysis import Analysis, analyse
from sweeps.report.comparison import compare_runs
from sweeps.report.comparison_files import comparison_text
from sweeps.report.files import report_files
from sweeps.report.headline import headline
from sweeps.report.model_card import CardFacts, model_card
from sweeps.report.terminal import terminal_text
from sweeps.store.sweep_file import find_sweep, verdict
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from sweeps.tracking.runs import Runs
from sweeps.tracking.view import _text
from tests.golden.cases import CASES

SWEEPS = ("quickstart", "confirmation", "race_with_eliminated", "damaged", "serving")
SCORED = "A chunk's score is a logit."
pytestmark = pytest.mark.usefixtures("no_figures")


def says(text: str, sentence: str) -> bool:
    """True if a text has the sentence, whatever its line breaks and its format's escapes."""
    plain = re.sub(r"<[^>]+>|\\(?=[^\w\s])", "", html.unescape(text))
    return " ".join(sentence.split()) in " ".join(plain.split())


def card(analysis: Analysis) -> str:
    about = {
        "label": "MaxP", "collection": {"name": "woods", "content_hash": "c"},
        "backbone": {"name": "tiny", "content_hash": "b"}, "command": "ranksweep run",
        "test": {}, "seed": 1, "chosen": "best on dev", "dev": 0.5, "trial": "t", "versions": {},
    }  # fmt: skip
    facts = CardFacts(TrialConfig(), about, False, "ranksweep export", scored=SCORED)
    return model_card(analysis, facts)


@pytest.mark.parametrize("case", SWEEPS)
def test_every_way_out_of_a_sweep_has_the_sentence(case: str, tmp_path: Path) -> None:
    folder = CASES[case].make(tmp_path / case)
    found = analyse(with_interpolated(load_sweep(folder)))
    said = headline(found).sentence
    files = report_files(found, label="tab")
    (folder / "report").mkdir()
    (folder / "report" / "results.json").write_bytes(files["results.json"])
    records = find_sweep(str(folder))
    mlflow = SimpleNamespace(records=records, experiment_id="1")
    sweep = Sweep(found)
    ways = {
        "terminal": terminal_text(found, Path("index.html")),
        "terminal in full": terminal_text(found, Path("index.html"), verbose=True),
        "results.json": json.loads(files["results.json"])["headline"]["sentence"],
        "the verdict of a folder": verdict(records),
        "description in MLflow": _text(cast(Runs, mlflow), found.sweep.about, "run"),
        "model card": card(found),
        "README": sweep.table().markdown(),
        "notebook": sweep._repr_html_(),
        "Python": repr(sweep),
    }
    assert {name: says(text, said) for name, text in ways.items()} == dict.fromkeys(ways, True)
    assert says(ways["model card"], SCORED)


def test_a_comparison_has_the_sentence(tmp_path: Path) -> None:
    folder = CASES["runs"].make(tmp_path / "runs")
    systems = [f"{name}={folder}/{name}.*.run" for name in ("firstp", "maxp", "bm25")]
    found = compare_runs(systems_of(systems), folder / "qrels.txt")
    said, python = headline(found.analysis).sentence, Comparison(found)
    ways = [comparison_text(found), comparison_text(found, compact=True), repr(python)]
    ways += [python._repr_html_(), python.markdown()]
    ways += [report_files(found.analysis, label="tab")["results.json"].decode()]
    assert all(says(text, said) for text in ways)
