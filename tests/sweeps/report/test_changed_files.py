"""Files of a finished sweep that were changed, torn or replaced since: named, or made again."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from rank_core.files import file_sha256
from sweeps.__main__ import main
from sweeps.store.sweep_file import read_sweep_file
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from tests.sweeps.report.ranked_sweep import CELLS, SEEDS, write_ranked_sweep
from tests.sweeps.systems.test_load import redescribe

pytestmark = pytest.mark.usefixtures("no_figures")
KEPT = [f"qrels/{split}.qrels" for split in ("dev", "test")]
KEPT += [f"first_stage/{split}.run.gz" for split in ("dev", "test")]
TRIAL = f"{CELLS[0][0]}-seed{SEEDS[0]}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep whose files have their hashes, and its report."""
    folder = write_ranked_sweep(tmp_path_factory.mktemp("finished") / "woods")
    redescribe(folder, files={name: file_sha256(folder / name) for name in KEPT})
    assert main(["report", str(folder)]) == 0
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "woods")


Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """The one message of a command; "" where it did its work."""

    def message(*words: str | Path) -> str:
        capsys.readouterr()
        code = main(list(map(str, words)))
        err = capsys.readouterr().err
        assert code in (0, 2) and err.count("error: ") == (code == 2), err
        return err if code else ""

    return message


@pytest.mark.parametrize("name", KEPT)
def test_changed_judgments_and_candidates_are_named(folder, refused, name):
    path = folder / name
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    for words in (["report"], ["derive"], ["bundle", "--to", folder.parent / "x.zip"]):
        assert f"{path} was changed after" in refused(words[0], folder, *words[1:])
    assert not (folder.parent / "x.zip").exists()


@pytest.mark.parametrize("names", [*([name] for name in KEPT), KEPT[:2], KEPT[2:]], ids=" ".join)
def test_rows_that_missing_judgments_or_candidates_take_are_missed(folder, refused, names):
    for name in names:
        (folder / name).unlink()
    if len(names) == 2:
        (folder / names[0]).parent.rmdir()
    shutil.rmtree(folder / "interpolated")
    assert refused("report", folder) == ""  # a folder without judgments can be handed on
    text = f"{min(names)} is missing; the sweep's command writes it again"
    results = json.loads((folder / "report" / "results.json").read_text())
    assert results["sweep"]["not_interpolated"].startswith(text)
    page = unescape((folder / "report" / "index.html").read_text())
    assert f"No row with the first stage: {text}" in page
    assert text in refused("compare", f"{folder}:BM25", f"{folder}:{CELLS[0][1]}")
    packed = folder.parent / "x.zip"
    assert f"{folder}: {text}" in refused("bundle", folder, "--to", packed)
    assert not packed.exists()


def test_a_sweep_without_trials_is_not_bundled(folder, refused):
    shutil.rmtree(folder / "trials")
    assert "has no finished trial" in refused("bundle", folder, "--to", folder.parent / "x.zip")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"primary": "nDCG@10"', '"primary": "nDCG@10", "alpha": 0.5'),
        (f'"baseline": "{CELLS[0][0]}"', f'"baseline": "{CELLS[1][0]}"'),
        (f'"label": "{CELLS[0][1]}"', '"label": "Ours"'),
        ('"checksum"', '"chucksum"'),
    ],
)
def test_an_edited_description_is_named_by_all_who_read_it(folder, refused, old, new):
    text = (folder / "sweep.json").read_text()
    assert old in text
    (folder / "sweep.json").write_text(text.replace(old, new, 1))
    commands = ["report"], ["derive"], ["status"], ["design", "--delta", ".01"]
    more = ["bundle", "--to", folder.parent / "x.zip"], ["export", "--to", folder.parent / "x"]
    for words in (*commands, *more):
        message = refused(words[0], folder, *words[1:])
        assert f"{folder / 'sweep.json'} was changed after the sweep's command wrote it" in message


def interpolated(folder: Path) -> list[dict[str, Any]]:
    """The values of the rows with the first stage."""
    sweep = with_interpolated(load_sweep(folder))
    tables = [sweep.first_stage.scores, *(row.scores for row in sweep.interpolated)]
    return [table.to_dict("list") for table in tables]


@pytest.mark.parametrize("name", ["first_stage", f"{TRIAL}.min-max"])
def test_a_cache_with_a_flipped_bit_is_made_again(folder, name):
    path = folder / "interpolated" / f"{name}.parquet"
    whole, before = path.read_bytes(), interpolated(folder)
    assert path.read_bytes() == whole, "read, not made"
    for bit in random.Random(7).sample(range(8 * len(whole)), 12):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        assert interpolated(folder) == before, bit


REPLACE = {
    "a folder": lambda path: path.mkdir(),
    "a loop": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("sweep.json", kind) for kind in REPLACE),
        ("test_access.jsonl", "a folder"),
        ("qrels/test.qrels", "a link to nothing"),
        ("first_stage/test.run.gz", "a loop"),
        (f"trials/{TRIAL}/per_query.parquet", "a loop"),
        (f"trials/{TRIAL}/test.run.gz", "a folder"),
    ],
)
def test_what_is_no_file_is_named(folder, refused, name, kind):
    (folder / name).unlink()
    REPLACE[kind](folder / name)
    shown = name.removeprefix("trials/")
    for words in (["report"], ["bundle", "--to", folder.parent / "x.zip"]):
        assert f"{folder}" in (message := refused(words[0], folder, *words[1:]))
        assert shown in message, message


def test_no_escape_sequence_of_a_name_reaches_the_terminal(folder, capsys):
    file = read_sweep_file(folder)
    cells = (replace(file.cells[0], label="Red\x1b[31m \u202eBlue\x9b0m"), *file.cells[1:])
    redescribe(folder, cells=cells, question="Which?\x1b]0;owned\x07")
    capsys.readouterr()
    for command in ("report", "status"):
        assert main([command, str(folder)]) == 0
    out, err = capsys.readouterr()
    assert "Red\\x1b[31m" in out and not set(out + err) & {"\x1b", "\x07", "\x9b", "\u202e"}
