"""What is small on the disk and large unpacked is refused before it fills the memory."""

import gzip
import json
import shutil
from base64 import b64encode
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rank_core import bounds
from rank_core.bounds import at_most, check_growth
from rank_core.data.tables import records
from rank_core.data.trec import read_lines, read_run
from rank_core.encoders.checkpoint import open_tokenizer
from rank_core.errors import BadInput
from rank_core.first_stage.subwords import subword_terms
from rank_core.ranking.chunk_scores import read_chunks
from sweeps.systems.sources import _parquet

LONG = b"q1 Q0 d1 1 1.0 x "


@pytest.fixture
def small(monkeypatch):
    """Bounds that a test reaches at once."""
    monkeypatch.setattr(bounds, "SMALL", 1 << 16)
    monkeypatch.setattr(bounds, "SMALL_ROWS", 1000)
    monkeypatch.setattr(bounds, "MOST_LINE", 1 << 12)


def zipped(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content, mtime=0))
    return path


@pytest.mark.parametrize("name", ["a.run.gz", "docs.jsonl.gz", "queries.tsv.gz", "c.json.gz"])
def test_bytes_are_counted_while_they_are_decompressed(tmp_path, small, name):
    path = zipped(tmp_path / name, b"\n" * (1 << 22))
    with pytest.raises(BadInput, match=f"{name} unpacks to more than"):
        [*read_lines(path)]


@pytest.mark.parametrize("name", ["a.run.gz", "a.run"])
def test_a_line_has_a_length(tmp_path, small, name):
    content = LONG + 5000 * b"y"
    path = tmp_path / name
    zipped(path, content) if name.endswith("gz") else path.write_bytes(content)
    with pytest.raises(BadInput, match=f"{name}:1: a line must have at most 4,096 bytes"):
        read_run(path)


def test_usual_files_are_far_from_the_bounds(tmp_path):
    lines = [f"q{q} Q0 d{d} {d} {1 / d:.4f} run" for q in range(50) for d in range(1, 1000)]
    path = zipped(tmp_path / "a.run.gz", "\n".join(lines).encode())
    assert 3 * path.stat().st_size < sum(map(len, lines)) < 20 * path.stat().st_size
    assert len(read_run(path)) == 50


def bomb(path: Path, rows: int) -> Path:
    column = pa.array([0.5] * 1000)
    with pq.ParquetWriter(path, pa.schema([("value", pa.float64())]), compression="zstd") as writer:
        for _ in range(rows // 1000):
            writer.write_table(pa.table({"value": column}), row_group_size=1000)
    return path


READERS = {
    "records": lambda path: [*records(path)],
    "values": _parquet,
    "chunks": lambda path: read_chunks(path.parent, "test"),
}


@pytest.mark.parametrize("reader", READERS)
def test_rows_are_counted_by_the_footer(tmp_path, monkeypatch, small, reader):
    path = bomb(tmp_path / "chunk_scores.parquet", 100_000)
    monkeypatch.setattr(bounds, "ROWS_PER_BYTE", 0)
    with pytest.raises(BadInput, match="unpacks to 100,000 rows"):
        READERS[reader](path)


def test_a_bundle_has_a_limit_of_its_own(tmp_path):
    path = zipped(tmp_path / "a.run.gz", LONG * 10_000 + b"\n")
    assert [*read_lines(path)]
    with at_most(1 << 16), pytest.raises(BadInput, match=r"more than 65,536 bytes|at most 65,536"):
        [*read_lines(path)]
    assert [*read_lines(path)]


STEPS = {
    "replacements": (
        "normalizer",
        {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"},
    ),
    "expressions": ("normalizer", {"type": "Replace", "pattern": {"Regex": "."}, "content": "aa"}),
    "a beginning": ("normalizer", {"type": "Prepend", "prepend": "aa"}),
    "bytes": ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": False}),
    "templates": (
        "post_processor",
        {"type": "TemplateProcessing", "single": 2 * [{"Sequence": {"id": "A", "type_id": 0}}]},
    ),
    "a map": (
        "normalizer",
        {
            "type": "Precompiled",
            "precompiled_charsmap": b64encode(bytes(4) + 300 * b"a" + b"\0").decode(),
        },
    ),
}
"""{what makes more of a text: its part of tokenizer.json, a step}."""
USUAL = {
    "XLM-R": [{"type": "Precompiled"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}}],
    "Llama": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
    "Unicode": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}],
}


@pytest.mark.parametrize("name", STEPS)
def test_a_tokenizer_that_makes_much_of_a_text_is_never_opened(tmp_path, backbone_folder, name):
    part, step = STEPS[name]
    folder = tmp_path / "backbone"
    shutil.copytree(backbone_folder, folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    inner = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}.get(part, "processors")
    content[part] = {"type": "Sequence", inner: [step] * (1 if name == "a map" else 60)}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    for opened in (lambda: open_tokenizer(folder), lambda: subword_terms(str(folder))):
        with pytest.raises(BadInput, match=r"tokenizer.json can make .* of one, more than 256"):
            opened()


@pytest.mark.parametrize("name", USUAL)
def test_the_steps_of_published_tokenizers_are_few(name):
    steps = {"type": "Sequence", "normalizers": USUAL[name]}
    check_growth(Path("tokenizer.json"), {"normalizer": steps, "pre_tokenizer": None})
