"""What a user gets is frozen: terminal, tables and the words of the pages whole, of results.json a
digest for each key.

After a change that is meant, this freezes what is said now and shows what has changed:

    GOLDEN=renew .venv/bin/python -m pytest -q -m "" tests/golden; git diff tests/golden/expected

Such a change needs a line in CHANGELOG.md.
"""

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.encoders.backbones import EXPORT_FILE, resolve_backbone
from rank_core.export.folder import LATER, _digest, write_model
from rank_core.export.reranker import Reranker
from rank_core.files import write_json
from rank_core.models.build import build_model
from rank_core.settings.config import TrialConfig
from tests.contracts.small_backbones import write_backbone
from tests.golden.cases import CASES
from tests.golden.frozen import Texts, differences, digest, kept, renew, settled
from tests.sweeps.conftest import quick_reports

pytestmark = pytest.mark.usefixtures("own_folder")
DESCRIBED = Path(__file__).parent / "sweeps_of_0.3"
"""{case}.json: the case's `sweep.json` as ranksweep 0.3 wrote it."""
EXPORTED = Path(__file__).parent / "exports_of_0.4" / "maxp.json"
"""The `ranker.json` of a small MaxP as ranksweep 0.4 wrote it."""


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory: with relative paths, lines wrap at the same words on every machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def texts_of(case: str, folder: Path, described: bytes = b"") -> Texts:
    """What a user gets of a case, whose sweep may be described otherwise."""
    make, read, draws = CASES[case]
    made = make(Path("woods"))
    if described:
        (made / "sweep.json").write_bytes(described)
    with nullcontext() if draws else quick_reports():
        texts = read(made)
    results = texts.pop("results.json", "")
    digests = {"results.txt": digest(results, folder)} if results else {}
    return {name: settled(text, folder) for name, text in texts.items()} | digests


@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=[pytest.mark.slow] * case.draws) for name, case in CASES.items()],
)
def test_what_a_user_gets_is_as_it_was(case: str, tmp_path: Path) -> None:
    texts = texts_of(case, tmp_path)
    if os.environ.get("GOLDEN") == "renew":
        renew(case, texts)
    found = differences(case, texts)
    assert not found, f"{case} is not as it was:\n{found}\n{__doc__}"


@pytest.mark.parametrize("case", sorted(path.stem for path in DESCRIBED.iterdir()))
def test_a_sweep_of_version_0_3_has_the_same_report(case: str, tmp_path: Path) -> None:
    texts = texts_of(case, tmp_path, (DESCRIBED / f"{case}.json").read_bytes())
    found = differences(case, texts)
    assert not found, f"{case}, as ranksweep 0.3 described it, is not as it was:\n{found}"


def test_a_folder_of_version_0_4_ranks(tmp_path: Path) -> None:
    """A setting that it lacks is in `LATER`, if its default does what was done then."""
    content = json.loads(EXPORTED.read_text())
    added = TrialConfig().settings().keys() - content["settings"].keys()
    assert added <= LATER, f"not in LATER: {sorted(added - LATER)}"
    write_backbone("bert", tmp_path)
    config = TrialConfig().override(content["settings"] | {"model.backbone": str(tmp_path)})
    model = build_model(config, resolve_backbone(str(tmp_path)), init_seed=1)
    save_weights(tmp_path, {name: w.clone() for name, w in model.state_dict().items()})
    write_model(tmp_path / "m", config, tmp_path / WEIGHTS)
    expected = Reranker.load(tmp_path / "m", device="cpu").rank("w1 w2", ["w3 w4", "w5 w6 w7"])
    written = json.loads((tmp_path / "m" / EXPORT_FILE).read_text())
    assert content.pop("sha256") == _digest(content), "not as it was written"
    content |= {"files": written["files"]}  # of these weights
    write_json(tmp_path / "m" / EXPORT_FILE, content | {"sha256": _digest(content)})
    found = Reranker.load(tmp_path / "m", device="cpu").rank("w1 w2", ["w3 w4", "w5 w6 w7"])
    assert found == expected


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


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[1].update(p=2e-6),  # of two small ones
        lambda rows: rows.reverse(),
        lambda rows: rows[0].pop("p"),
        lambda rows: rows[0].update(label="MaxP"),
        lambda rows: rows[0].update(gain=-0.5),
    ],
)
def test_a_digest_sees_each_value(change: Callable[[list[dict[str, object]]], None]) -> None:
    rows = [{"label": name, "p": p, "gain": 0.5} for name, p in (("FirstP", 0.04), ("SumP", 1e-6))]
    before = {"results.txt": digest(json.dumps({"rows": rows}), Path("/x"))}
    change(rows)
    now = {"results.txt": digest(json.dumps({"rows": rows}), Path("/x"))}
    assert kept(before, now) != before


def test_a_digest_keeps_to_last_digits() -> None:
    texts = [digest(json.dumps([p, 3e-7, "x"]), Path("/x")) for p in (0.0123456789, 0.01234567891)]
    assert kept({"results.txt": texts[0]}, {"results.txt": texts[1]}) == {"results.txt": texts[0]}
