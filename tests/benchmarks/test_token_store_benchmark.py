"""The token store's benchmark makes the documents it promises and checks what it reads."""

import json

import numpy as np
import pytest

from rank_core.chunking.token_store import open_token_store
from tests.benchmarks import token_store as benchmark


def test_made_documents_are_the_same_however_they_are_asked_for():
    documents = benchmark.Made(300, benchmark.Words())
    assert len(set(documents)) == len(documents) == 300
    assert list(documents) != sorted(documents)
    assert all(documents[doc_id] == text for doc_id, text in documents.items())
    assert benchmark.doc_id(300) not in documents and benchmark.doc_id(299) in documents


@pytest.mark.slow
def test_made_texts_have_about_300_tokens(monkeypatch, tmp_path):
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path))
    words = benchmark.Words()
    store = open_token_store(
        benchmark.Made(300, words), content_hash="made", tokenizer=words.tokenizer()
    )
    assert 270 < np.mean(store.lengths()) < 330


@pytest.mark.slow
def test_a_small_store_is_built_in_a_process_of_its_own_read_and_deleted(
    tmp_path, monkeypatch, capsys
):
    # What main() sets is put back by this.
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path))
    words = ["--documents", "2000", "--look-ups", "3000", "--cold-look-ups", "300"]
    words += ["--tokens-only", "--folder", str(tmp_path)]
    benchmark.main([*words, "--json", str(tmp_path / "figures")])
    [figures] = tmp_path.iterdir()
    rows = {row["what"]: row["figure"] for row in json.loads(figures.read_text())["rows"]}
    assert rows["documents"] == "2,000 of 300 tokens"
    assert rows["four at once, each"].endswith("documents/s")
    assert "| peak memory of the build | 0." in capsys.readouterr().out
