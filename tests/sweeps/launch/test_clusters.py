"""--clusters of a sweep: what its folder keeps of the queries, and what its report makes of it."""

import json
import re
import shutil

import pytest

from rank_core.data.groups import document_clusters
from rank_core.data.trec import read_qrels
from ranksweep import load
from sweeps.commands.bundling import main as bundle
from sweeps.commands.bundling import verify
from sweeps.store.queries import read_query_facts, text_key
from sweeps.store.sweep_file import read_sweep_file

SWEEP = """
name = "chance"
question = "Does BM25 rank better than chance?"
grid = { "model.name" = ["bm25"] }
seeds = 3

[base]
collection = "COLLECTION"
model.backbone = "tiny-docs"

[baseline]
"model.name" = "random"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, collection_folder):
    """A collection whose test queries have groups of two."""
    own = tmp_path_factory.mktemp("grouped") / "woods"
    shutil.copytree(collection_folder, own)
    lines = (own / "test" / "queries.tsv").read_text().splitlines()
    pairs = [line.split("\t") for line in lines]
    rows = [
        {"query_id": query_id, "text": text, "group": f"g{at // 2}"}
        for at, (query_id, text) in enumerate(pairs)
    ]
    (own / "test" / "queries.tsv").unlink()
    (own / "test" / "queries.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (own.parent / "chance.toml").write_text(SWEEP.replace("COLLECTION", str(own)))
    return own


def ran(folder, tmp_path, *words):
    """The exit code, the lines and the folder of a sweep."""
    from sweeps.commands.run import main
    from sweeps.terminal.command_line import run_command

    given = [str(folder.parent / "chance.toml"), "--engine", "local", "--tracking-uri", "none"]
    return run_command(lambda: main([*given, "--storage", str(tmp_path / "results"), *words]))


def test_a_sweep_in_the_groups_of_its_collection(folder, tmp_path, capsys):
    assert ran(folder, tmp_path, "--clusters", "group", "--verbose") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "over 4 clusters of 8 queries (groups of the collection)" in text
    [own] = (tmp_path / "results" / "chance").iterdir()
    facts = read_query_facts(own, "test")
    rows = map(json.loads, (folder / "test" / "queries.jsonl").read_text().splitlines())
    assert facts.text == {row["query_id"]: text_key(row["text"]) for row in rows}
    assert facts.cluster == facts.group
    assert set(facts.group.values()) == {"g0", "g1", "g2", "g3"}
    assert read_sweep_file(own).files["queries/test.jsonl"]
    # A program that reads the folder has the sweep's clusters, unless it asks for others.
    counts = {
        way: len(load(own, clusters=way)._analysis.cell_scores.tested["nDCG@10"].query_ids)
        for way in ("", "none", "auto")
    }
    shared = document_clusters(read_qrels(own / "qrels" / "test.qrels"))
    assert counts == {"": 4, "none": 8, "auto": len({*shared.values()})}
    # A bundle has the clusters, too: its report is made again from its files alone.
    file = tmp_path / "chance.zip"
    assert bundle([str(own), "--to", str(file), "--qrels", "include"]) == 0
    assert verify([str(file)]) == 0
    assert "queries/test.jsonl" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{tmp}/none.tsv", "clusters of queries must be a file"),
        ("{tmp}/few.tsv", "has none of 7 of 8 queries"),
    ],
)
def test_bad_clusters_are_refused_before_anything_is_launched(
    folder, tmp_path, capsys, given, message
):
    (tmp_path / "few.tsv").write_text("test-0\tx\n")
    for more in ((), ("--dry-run",)):
        assert ran(folder, tmp_path, "--clusters", given.format(tmp=tmp_path), *more) == 2
        assert re.search(message, " ".join(capsys.readouterr().err.split()))
        assert not (tmp_path / "results" / "chance").exists()
