"""`ranksweep check` as a user runs it on a model of their own, from a folder of their own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAWS = len(re.findall(r"^def test_", (ROOT / "rank_core/testing/test_model.py").read_text(), re.M))
NEIGHBOURS = """
from docs_model import SmoothMaxP

class Neighbours(SmoothMaxP):
    label = "Neighbours"

    def aggregate(self, x_BPH, mask_BP):
        score_B = super().aggregate(x_BPH, mask_BP)
        return score_B - score_B.mean()
"""


@pytest.fixture
def check(tmp_path):
    """Runs the command in a folder with the example, a bad model, and tests that would fail."""
    for example in ("own_model", "soft_bi_encoder"):
        source = ROOT / "docs" / "examples" / f"{example}.py"
        shutil.copy(source, tmp_path / f"docs_{example.partition('_')[2]}.py")
    (tmp_path / "bad_model.py").write_text(NEIGHBOURS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-flag\n")
    (tmp_path / "conftest.py").write_text("1 / 0\n")

    def run(name):
        done = subprocess.run(
            [sys.executable, "-m", "sweeps", "check", name],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    yield run
    assert not (tmp_path / ".pytest_cache").exists()


@pytest.mark.long
@pytest.mark.slow
def test_the_example_on_an_embedding_model_passes_with_its_large_scores(check):
    code, text, _ = check("docs_bi_encoder:SoftBiEncoder")
    assert code == 0 and "none of" in text, text


@pytest.mark.long
def test_the_example_passes_every_law(check):
    code, text, _ = check("docs_model:SmoothMaxP")
    assert len(re.findall(r"^(?:ok|skipped) ", text, re.M)) == LAWS > 8
    assert "skipped  it has the number of parameters that it states" in text
    assert code == 0 and text.endswith(
        f"docs_model:SmoothMaxP: none of {LAWS} contract tests failed\n"
        "reads       as its base class\n"
        "trains      rates=('backbone', 'head')\n"
        "served      as its base class\n"
        "to do       nothing\n"
    ), text


@pytest.mark.long
@pytest.mark.slow
def test_a_model_without_a_property_breaks_its_law(check):
    code, text, _ = check("bad_model:Neighbours")
    found = r"^broken   (.*)\n +Neither padding[^/]*\n +\S+\.py:\d+\n +AssertionError"
    broken = re.findall(found, text, re.M)
    assert code == 3 and "a score does not depend on the neighbours in the batch" in broken


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("docs_model:Smooth", "did you mean SmoothMaxP? Known: SmoothMaxP"),
        ("no_model:X", "no module no_model"),
        ("bm25", "model bm25 has no weights"),
    ],
)
def test_what_is_no_ranker_is_refused(check, name, message):
    code, text, error = check(name)
    assert (code, text) == (2, "") and message in error and error.count("\n") == 1
