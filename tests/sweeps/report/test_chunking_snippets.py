"""The lines of docs/tutorial-embeddings.md that put `chunking.json` to use, run where their
library is installed."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.retrieval.cuts import cut_texts
from rank_core.settings.config import Chunking

PAGE = Path(__file__).parents[3] / "docs" / "tutorial-embeddings.md"
FIRST, OURS, *OTHERS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
TEXT = "Open the file. Read each line of it! Then close the file, and return its lines. " * 40
STATED = {
    "chunk_tokens": 24,
    "overlap_tokens": 6,
    "chunk_characters": 100,
    "overlap_characters": 25,
    "dimensions": 384,
    "similarity": "cosine",
}


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the first block leaves, with the shipped tokenizer in place of the page's model."""
    monkeypatch.chdir(tmp_path)
    Path("report").mkdir()
    Path("report/chunking.json").write_text(json.dumps(STATED))
    Path("document.txt").write_text(TEXT)
    own = str(resolve_backbone("tiny-docs").folder)
    found = {}
    exec(FIRST.replace("sentence-transformers/all-MiniLM-L6-v2", own), found)
    assert found["chunk"] == STATED
    return found


def test_the_lines_without_a_library_cut_as_the_sweep_does(names):
    exec(OURS, names)
    chunking = Chunking(window=24, stride=1, overlap=0.25)
    tokenizer = load_tokenizer(resolve_backbone("tiny-docs").folder)
    [cuts] = cut_texts([TEXT], [0], tokenizer, chunking)
    assert len(names["chunks"]) == len(cuts.chunks) > 20
    ours = [TEXT[cut.start : cut.end] for cut in cuts.chunks]
    # The shipped tokenizer drops endings, which a chunk of ours keeps at its end.
    assert all(own.startswith(chunk) for own, chunk in zip(ours, names["chunks"], strict=True))


@pytest.mark.parametrize("block", OTHERS, ids=lambda block: block.split()[1].split(".")[0])
def test_the_lines_of_a_library_run(block, names):
    library = re.match(r"from (\w+)", block)
    if library and importlib.util.find_spec(library[1]) is None:
        pytest.skip(f"{library[1]} is not installed")
    exec(block, names)
    if library:
        chunks = names["chunks"]
        sizes = [
            len(names["tokenizer"](own, add_special_tokens=False)["input_ids"]) for own in chunks
        ]
        by_characters = "chunk_characters" in block
        assert len(chunks) > 10
        assert max(map(len, chunks)) <= 100 if by_characters else max(sizes) <= 24


def test_every_named_store_has_its_lines(names):
    page = PAGE.read_text()
    assert all(f"\n{name}" in page for name in ("LangChain", "LlamaIndex", "Haystack"))
    assert all(f"\n{name}" in page for name in ("Elasticsearch", "pgvector"))
    assert len(OTHERS) == 5
    elastic, postgres = (next(b for b in OTHERS if word in b) for word in ("nested", "vector("))
    exec(elastic, names)
    assert names["mapping"]["properties"]["chunks"]["properties"]["vector"]["dims"] == 384
    exec(postgres, names)
    assert "vector(384)" in names["table"] and "<=> %s" in names["search"]
