"""Collections of the Hugging Face Hub, from a stand-in of its HTTP API on loopback."""

import gzip
import io
import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from rank_core.data.hub import PREFIX, load_hub
from rank_core.errors import BadInput
from tests.hub_server import TOKEN, Files, Machine, running_hub

DOCUMENTS = {f"d{n}": f"A text about {word}." for n, word in enumerate("owls bees ants".split())}
QUERIES = {"q1": "owls", "q2": "bees", "q3": "ants"}
JUDGED = {"train": ("q1", "d0"), "dev": ("q2", "d1"), "test": ("q3", "d2")}

LOAD = """
import json, sys
from rank_core.data.load import load_collection, portable_collection
from rank_core.errors import BadInput
try:
    found = load_collection(sys.argv[1])
    print(json.dumps({
        "name": found.name,
        "hash": found.content_hash,
        "documents": dict(found.documents),
        "queries": {name: dict(split.queries) for name, split in found.splits.items()},
        "qrels": {name: {q: dict(own) for q, own in split.qrels.items()}
                  for name, split in found.splits.items()},
        "language": found.language,
        "portable": portable_collection(sys.argv[1]),
    }))
except BadInput as error:
    print(json.dumps({"error": str(error)}))
"""


@pytest.fixture
def hub():
    with running_hub(TOKEN) as hub:
        yield hub


@pytest.fixture
def machine(tmp_path, hub):
    return Machine(tmp_path / "machine", hub)


def load(machine: Machine, name: str, **more: str) -> dict[str, Any]:
    done = machine.python("-c", LOAD, name, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pd.DataFrame(rows).to_parquet(file)
    return file.getvalue()


CORPUS = [{"_id": name, "title": "About", "text": text} for name, text in DOCUMENTS.items()]
ASKED = [{"_id": name, "text": text} for name, text in QUERIES.items()]
QRELS = {
    split: [{"query-id": query, "corpus-id": document, "score": 1}]
    for split, (query, document) in JUDGED.items()
}
PLAIN: Files = {
    "corpus.jsonl": lines(CORPUS),
    "queries.jsonl": lines(ASKED),
    **{
        f"qrels/{split}.tsv": f"query-id\tcorpus-id\tscore\n{q}\t{d}\t1\n".encode()
        for split, (q, d) in JUDGED.items()
    },
    "ranksweep.json": b'{"language": "de"}',
}
SHARDS: Files = {
    "corpus/corpus-00000-of-00002.parquet": parquet(CORPUS[:2]),
    "corpus/corpus-00001-of-00002.parquet": parquet(CORPUS[2:]),
    "queries/queries-00000-of-00001.parquet": parquet(ASKED),
    **{f"qrels/{split}-00000-of-00001.parquet": parquet(own) for split, own in QRELS.items()},
}
CARD = b"""---
configs:
- config_name: default
  data_files:
  - split: train
    path: judged/train-*
  - split: validation
    path: judged/dev.parquet
  - {split: test, path: [judged/test.parquet]}
- config_name: corpus
  data_files:
  - {split: corpus, path: texts/*}
- config_name: queries
  data_files: asked.jsonl
---
# Birds and insects
"""
DECLARED: Files = {
    "README.md": CARD,
    "texts/one.jsonl": lines(CORPUS[:1]),
    "texts/two.jsonl": lines(CORPUS[1:]).rstrip(),
    "asked.jsonl": lines(ASKED),
    "judged/train-0.parquet": parquet(QRELS["train"]),
    "judged/dev.parquet": parquet(QRELS["dev"]),
    "judged/test.parquet": parquet(QRELS["test"]),
}
TEXTS = ("texts/one.jsonl", "texts/two.jsonl")
PACKED = {name: content for name, content in DECLARED.items() if name not in TEXTS}
PACKED |= {f"{name}.gz": gzip.compress(DECLARED[name].rstrip()) for name in TEXTS}
SLOW = pytest.mark.slow  # a process for each, as huggingface_hub reads its variables once
LAYOUTS = {
    "lines": PLAIN,
    "shards of Parquet": SHARDS,
    "files of a card": DECLARED,
    "compressed lines": PACKED,
}


@SLOW
@pytest.mark.parametrize("files", LAYOUTS.values(), ids=LAYOUTS)
def test_a_dataset_is_the_collection_of_its_files(hub, machine, files):
    commit = hub.repository("dataset", "org/animals").commit(files)
    found = load(machine, f"{PREFIX}org/animals")
    assert found["documents"] == {name: f"About\n{text}" for name, text in DOCUMENTS.items()}
    assert found["queries"] == {split: {q: QUERIES[q]} for split, (q, _) in JUDGED.items()}
    assert found["qrels"] == {split: {q: {d: 1}} for split, (q, d) in JUDGED.items()}
    assert found["language"] == ("de" if files is PLAIN else "")
    assert found["name"] == f"org/animals@{commit[:7]}"
    assert found["portable"] == f"{PREFIX}org/animals@{commit}"
    assert machine.tells_the_token() == []


@SLOW
def test_a_revision_is_downloaded_once_and_names_the_collection(hub, machine):
    repository = hub.repository("dataset", "org/animals")
    first = repository.commit(PLAIN)
    before = load(machine, f"{PREFIX}org/animals")
    read = len(hub.requests)
    assert load(machine, f"{PREFIX}org/animals@{first}") == before
    assert [one for one in hub.requests[read:] if "/resolve/" in one] == []
    second = repository.commit({"queries.jsonl": lines([*ASKED, {"_id": "q4", "text": "flies"}])})
    after = load(machine, f"{PREFIX}org/animals")
    assert after["name"] == f"org/animals@{second[:7]}" and after["hash"] != before["hash"]
    assert load(machine, f"{PREFIX}org/animals@{first}") == before
    assert load(machine, f"{PREFIX}org/animals", HF_HUB_OFFLINE="1") == after


@SLOW
def test_a_private_dataset_is_read_by_its_owner_alone(hub, machine):
    repository = hub.repository("dataset", "org/animals")
    repository.commit(PLAIN)
    repository.private = True
    refused = load(machine, f"{PREFIX}org/animals", HF_TOKEN="hf_another_users")["error"]
    assert "RepositoryNotFoundError" in refused and "hf auth login" in refused
    assert "another" not in refused
    assert load(machine, f"{PREFIX}org/animals")["documents"].keys() == DOCUMENTS.keys()
    assert machine.tells_the_token() == []


NESTED = [f"l{n}: &l{n} [{', '.join(9 * [f'*l{n - 1}'])}]" for n in range(1, 10)]
ALIASES = "\n".join(
    ["---", "l0: &l0 [x]", *NESTED, "configs:", "- config_name: *l9", "  data_files: x", "---", ""]
).encode()
REFUSED = {
    "no such dataset": ({}, "org/none", "could not be downloaded"),
    "no such revision": (PLAIN, "org/animals@v2", "could not be downloaded"),
    "no corpus": ({"queries.jsonl": lines(ASKED)}, "org/animals", "has no files of corpus"),
    "no judgments": (
        {name: PLAIN[name] for name in ("corpus.jsonl", "queries.jsonl")},
        "org/animals",
        "lacks qrels",
    ),
    "two formats": (PLAIN | SHARDS, "org/animals", "has corpus in several formats"),
    "a card of another form": (
        PLAIN | {"README.md": b"---\nconfigs:\n- data_files: 3\n---\n"},
        "org/animals",
        "names its files (configs) in a form that is not read",
    ),
    "a card of aliases": (
        PLAIN | {"README.md": ALIASES},
        "org/animals",
        "its YAML has an alias (*name), which no card needs",
    ),
    "a card without an end": (
        PLAIN | {"README.md": b"---\n" + (1 << 23) * b"#"},
        "org/animals",
        "it has more than 4,194,304 bytes",
    ),
}


@SLOW
@pytest.mark.parametrize("files, name, named", REFUSED.values(), ids=REFUSED)
def test_another_repository_is_refused_by_name(hub, machine, files, name, named):
    hub.repository("dataset", "org/animals").commit(files)
    assert named in load(machine, f"{PREFIX}{name}")["error"]


@pytest.mark.parametrize("name", ["animals", "org/animals/corpus", "org/animals@", "org/ani mals"])
def test_a_name_is_an_organisation_and_a_dataset(name):
    with pytest.raises(BadInput, match="hf://datasets/ORG/NAME or hf://datasets/ORG/NAME@REVISION"):
        load_hub(f"{PREFIX}{name}")
