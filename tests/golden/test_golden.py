"""What a user gets is frozen: terminal, tables, results.json and the words of the pages.

After a change that is meant, this freezes what is said now and shows what has changed:

    GOLDEN=renew .venv/bin/python -m pytest -q tests/golden; git diff tests/golden/expected

Such a change needs a line in CHANGELOG.md.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.cases import CASES
from tests.golden.frozen import differences, kept, renew, settled
from tests.sweeps.conftest import quick_reports

pytestmark = pytest.mark.usefixtures("no_figures_here", "own_folder")
DESCRIBED = Path(__file__).parent / "sweeps_of_0.3"
"""{case}.json: the case's `sweep.json` as ranksweep 0.3 wrote it."""


@pytest.fixture(scope="module")
def no_figures_here() -> Iterator[None]:
    with quick_reports():
        yield


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory: with relative paths, lines wrap at the same words on every machine."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", CASES)
def test_what_a_user_gets_is_as_it_was(case: str, tmp_path: Path) -> None:
    made = CASES[case].make(Path("woods"))
    texts = {name: settled(text, tmp_path) for name, text in CASES[case].read(made).items()}
    if os.environ.get("GOLDEN") == "renew":
        renew(case, texts)
    found = differences(case, texts)
    assert not found, f"{case} is not as it was:\n{found}\n{__doc__}"


@pytest.mark.parametrize("case", sorted(path.stem for path in DESCRIBED.iterdir()))
def test_a_sweep_of_version_0_3_has_the_same_report(case: str, tmp_path: Path) -> None:
    made = CASES[case].make(Path("woods"))
    (made / "sweep.json").write_bytes((DESCRIBED / f"{case}.json").read_bytes())
    texts = {name: settled(text, tmp_path) for name, text in CASES[case].read(made).items()}
    found = differences(case, texts)
    assert not found, f"{case}, as ranksweep 0.3 described it, is not as it was:\n{found}"


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("p 0.012345678901", "p 0.012345678902", True),  # the last digits of a processor
        ("p 0.012345678901", "p 0.012345999999", False),
        ("p 0.0123456789", "p 0.012", False),  # rounded
        ("0.0", "1.1e-17", True),
        ("mean 0.561", "mean 0.562", False),
        ("Best: MaxP 64/48", "Best: MaxP 64/32", False),
    ],
)
def test_last_digits_alone_may_differ(before: str, now: str, same: bool) -> None:
    frozen = {"a.json": settled(before, Path("/x"))}
    assert (kept(frozen, {"a.json": settled(now, Path("/x"))}) == frozen) == same
