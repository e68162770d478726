"""The lines of docs/tutorial-embeddings.md that put `chunking.json` to use, run where their
library is installed."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.retrieval.cuts import cut_texts
from rank_core.retrieval.index import unit
from rank_core.retrieval.stored import binary_codes, int8_codes, ranges_of
from rank_core.settings.config import Chunking

PAGE = Path(__file__).parents[3] / "docs" / "tutorial-embeddings.md"
FIRST, OURS, *OTHERS, STORES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
TEXT = "Open the file. Read each line of it! Then close the file, and return its lines. " * 40
STATED = {
    "chunk_tokens": 24,
    "overlap_tokens": 6,
    "chunk_characters": 100,
    "overlap_characters": 25,
    "dimensions": 384,
    "stored": "fp32",
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


def of_bytes(trims):
    """A tokenizer of bytes: a word and the space before it are one token, whose offsets have that
    space, or not, as RoBERTa's."""
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.post_processor = processors.ByteLevel(trim_offsets=trims)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False, vocab_size=300)
    words.train_from_iterator([TEXT] * 2, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=words)


TOKENIZERS = {
    "word pieces": lambda: load_tokenizer(resolve_backbone("tiny-docs").folder),
    "bytes": lambda: of_bytes(False),
    "bytes, trimmed": lambda: of_bytes(True),
}


@pytest.mark.parametrize(
    "text", [TEXT, f"  {TEXT[:300]}\n\n\u00e4\u4e2d \U0001f600 end \n", "one", ""]
)
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_lines_without_a_library_cut_as_the_sweep_does(kind, text, names):
    tokenizer = TOKENIZERS[kind]()
    names |= {"text": text, "tokenizer": tokenizer}
    exec(OURS, names)
    chunking = Chunking(window=24, stride=1, overlap=0.25)
    [cuts] = cut_texts([text], [0], tokenizer, chunking)
    assert names["chunks"] == [text[cut.start : cut.end] for cut in cuts.chunks]
    assert len(cuts.chunks) > 20 or text != TEXT


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
    with pytest.raises(AssertionError):  # it has no such precision
        exec(postgres, names | {"chunk": STATED | {"stored": "int8"}})


@pytest.mark.parametrize("stored", ["fp32", "int8", "binary"])
def test_the_lines_of_sentence_transformers_store_the_tested_vectors(stored, names):
    pytest.importorskip("sentence_transformers", minversion="6.2")
    exec(OURS, names)
    names["chunk"] = STATED | {"stored": stored, "dimensions": 16}
    own = str(resolve_backbone("tiny-docs").folder)
    in_fp32 = "size, model_kwargs={'dtype': 'float32'})"  # the shipped weights are in fp16
    lines = STORES.replace("sentence-transformers/all-MiniLM-L6-v2", own)
    exec(lines.replace("size)", in_fp32), names)
    model = EmbeddingModel.load("tiny-docs", truncate_dim=16, device="cpu")
    vector_ND = unit(model.encode_documents(names["chunks"]))
    found = names["stored"].astype(np.float32)
    if stored == "fp32":
        np.testing.assert_allclose(found, vector_ND, atol=1e-5)
    elif stored == "int8":
        codes = int8_codes(vector_ND, ranges_of([vector_ND], 16)).astype(int)
        assert np.abs(codes - found).max() <= 1, "a rounding apart"
    else:
        np.testing.assert_array_equal(binary_codes(vector_ND), (found + 128).astype(np.uint8))
