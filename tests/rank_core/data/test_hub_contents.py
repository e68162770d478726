"""What a dataset of the Hub becomes on this machine, from its files, without a server."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rank_core.data import hub
from rank_core.data.hub import PREFIX, load_hub

TABLES = {
    "corpus": [{"_id": f"d{n}", "title": "", "text": f"text {n}"} for n in range(4)],
    "queries": [{"_id": f"q{n}", "text": f"question {n}"} for n in range(3)],
}
QRELS = {"train": "q0", "dev": "q1", "test": "q2"}


def snapshot(folder: Path, ending: str = ".jsonl", last: str = "\n") -> Path:
    """The files of a revision, whose tables have two parts, each with this end of its last line."""
    for table, rows in TABLES.items():
        for number, part in enumerate((rows[:1], rows[1:])):
            data = ("\n".join(map(json.dumps, part)) + last).encode()
            file = folder / table / f"{number}{ending}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
    (folder / "qrels").mkdir()
    for split, query in QRELS.items():
        rows = f"query-id\tcorpus-id\tscore\n{query}\td0\t1\n"
        (folder / "qrels" / f"{split}.tsv").write_text(rows)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))


def loaded(monkeypatch, folders: Sequence[Path]):
    for folder in folders:
        monkeypatch.setattr(hub, "_snapshot", lambda repository, revision, at=folder: at)
        yield load_hub(f"{PREFIX}org/animals")


def test_a_revision_with_the_same_files_is_another_collection(tmp_path, monkeypatch):
    """So the names of trials over it have the revision too."""
    folders = [snapshot(tmp_path / (letter * 40)) for letter in "ab"]
    one, other = loaded(monkeypatch, folders)
    assert dict(one.documents) == dict(other.documents)
    assert one.content_hash != other.content_hash and one.name != other.name
    again, _ = loaded(monkeypatch, folders)
    assert again.content_hash == one.content_hash


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize("last", ["\n", ""])
def test_parts_without_an_end_of_the_last_line_are_joined_line_by_line(
    ending, last, tmp_path, monkeypatch
):
    [found] = loaded(monkeypatch, [snapshot(tmp_path / ("c" * 40), ending, last)])
    assert dict(found.documents) == {row["_id"]: row["text"] for row in TABLES["corpus"]}
    queries: dict[str, str] = {}
    for split in found.splits.values():
        queries |= split.queries
    assert queries == {row["_id"]: row["text"] for row in TABLES["queries"]}
