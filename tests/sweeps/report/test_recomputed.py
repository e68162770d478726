"""The p-values of a report, recomputed by the scripts of the documentation, without ranksweep."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ranksweep
from sweeps.report.build import write_report
from tests.sweeps.systems.test_load import FIVE, write_sweep

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Per-query values and comparisons of a sweep of five cells and three seeds."""
    folder = write_sweep(tmp_path_factory.mktemp("sweep"), kinds=FIVE, num_queries=60)
    write_report(folder)
    values = folder / "per_query.csv"
    ranksweep.load(folder).per_query.to_csv(values)
    return [str(values), str(folder / "report" / "comparisons.csv"), "nDCG@10"]


@pytest.mark.slow
@pytest.mark.parametrize("program", [[sys.executable, "recompute.py"], ["Rscript", "recompute.R"]])
def test_another_program_finds_the_p_values_of_a_report(program, files):
    if not shutil.which(program[0]):
        pytest.skip(f"{program[0]} is not installed")
    command = [program[0], str(EXAMPLES / program[1]), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *rows, last = done.stdout.splitlines()
    assert float(re.fullmatch(r"largest difference: (\S+)", last)[1]) < 1e-9
    assert sum("(" in row and " as reported" not in row for row in rows) >= 4
