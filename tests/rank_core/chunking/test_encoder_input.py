"""Rows in one block are those that were laid out padded, row by row."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.chunking.encoder_input import EncoderInput, SelectedRows
from rank_core.encoders.backbone_types import TYPES, RowLayout
from rank_core.encoders.flat_rows import flat_rows
from rank_core.models.readers import PADDING, ApartPairs, PaddedRows, padded_in_place
from rank_core.settings.config import Chunking
from tests.benchmarks.layout import padded_rows

SIZES = [(2, 5), (3, 0), (2, 9), (0, 1), (2, 5), (4, 7)]  # of query and text
META = torch.device("meta")


def reader(kind="bert", form=PairEncoder, pad_id=7):
    """A reader for a backbone of a kind, of which a layout needs no weights."""
    layout = RowLayout((101,), (102,), (103,))
    facts = {"kind": kind, "pad_id": pad_id, "num_segments": 2 if TYPES[kind].segments else 1}
    backbone = SimpleNamespace(layout=layout, own_layout=None, **facts)
    chunking = Chunking(window=9, stride=9, max_document_tokens=9, max_query_tokens=4)
    return form({}, chunking, False, backbone)


def chunks_of(sizes=SIZES, absent=()):
    """Chunks of some sizes; those of equal query size share the query. Tokens at the ends of those
    in `absent` are padding."""
    numbers = np.random.default_rng(1)
    queries = {size: numbers.integers(200, 300, size).astype(np.int32) for size, _ in sizes}
    chunks = [Chunk(queries[q], numbers.integers(200, 300, t).astype(np.int32)) for q, t in sizes]
    for row in absent:
        query, text = (part.copy() for part in chunks[row])
        query[-1:], text[-2:] = PADDING, PADDING
        chunks[row] = Chunk(query, text)
    return chunks


def numbers_of(rows):
    """All that an encoder or a model may read, as lists, and the types."""
    names = "input_ids_CL attention_mask_CL token_type_ids_CL query_length_C".split()
    tensors = {name: getattr(rows, name) for name in names}
    tensors |= {name: getattr(rows.flat, name) for name in rows.flat._fields[:4]}
    found = {name: x if x is None else (x.dtype, x.tolist()) for name, x in tensors.items()}
    facts = {name: getattr(rows.flat, name) for name in rows.flat._fields[4:]}
    return found | facts | {n: getattr(rows, n) for n in ("sizes", "query_rows", "padded")}


def picked(rows):
    """(ids, segments) of the tokens of flat rows, out of padded ones."""
    of_tokens = (x if x is None else x.flatten()[rows.flat.place_T] for x in rows.words)
    return [x if x is None else (x.dtype, x.tolist()) for x in of_tokens]


def words(rows):
    return [x if x is None else (x.dtype, x.tolist()) for x in rows.words]


@pytest.mark.parametrize("sizes", [SIZES, [(2, 5), (3, 4)], [(1, 0)]])
@pytest.mark.parametrize("kind", sorted(TYPES))
def test_a_block_has_the_tensors_of_padded_rows(kind, sizes):
    pairs, chunks = reader(kind), chunks_of(sizes)
    rows, expected = pairs.layout(chunks), padded_rows(chunks, pairs.form)
    assert (expected.token_type_ids_CL is not None) == bool(TYPES[kind].segments)
    assert numbers_of(rows) == numbers_of(expected)
    selected = SelectedRows(*expected[:4], flat=expected.flat)
    assert words(rows) == picked(selected)


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert"])
def test_padding_within_rows_is_masked_and_counted_where_positions_count_it(kind):
    pairs = reader(kind, padded_in_place(PairEncoder))
    chunks = chunks_of(absent=(0, 1, 4))
    expected = padded_rows(chunks, pairs.form)
    absent_CL = expected.input_ids_CL == PADDING
    assert absent_CL.any()
    mask_CL = expected.attention_mask_CL.masked_fill(absent_CL, 0)
    flat = flat_rows(mask_CL.numpy())
    if TYPES[kind].positions != "after-padding":
        flat = flat._replace(position_T=flat.place_T % mask_CL.shape[1])
    expected = expected._replace(
        input_ids_CL=expected.input_ids_CL.masked_fill(absent_CL, 7),
        attention_mask_CL=mask_CL,
        flat=flat,
    )
    rows = pairs.layout(chunks)
    assert numbers_of(rows) == numbers_of(expected)
    assert words(rows) == picked(SelectedRows(*expected[:4], flat=expected.flat))


@pytest.mark.parametrize("form", [ApartPairs, type("Both", (PaddedRows, ApartPairs), {})])
def test_the_rows_of_queries_are_in_the_first_segment(form):
    documents = [chunks_of(SIZES[:3]), chunks_of(SIZES[3:])]
    batch = reader(form=form).collate(documents)
    expected = padded_rows([*documents[0], *documents[1]], reader().form)
    expected.token_type_ids_CL[[0, 3]] = 0
    assert batch.counts == (3, 3)
    assert numbers_of(batch.inputs) == numbers_of(expected)
    assert words(batch.inputs) == picked(SelectedRows(*expected[:4], flat=expected.flat))


def test_one_copy_brings_a_batch_to_a_device(monkeypatch):
    copies, to = [], torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda x, *a, **k: copies.append(x) or to(x, *a, **k))
    rows = reader().layout(chunks_of())
    there = rows.to(META)
    assert [x.data_ptr() for x in copies] == [rows.block.data_ptr()]
    assert there.device == META and there.flat.cu_seqlens.device == META
    for name in ("input_ids_CL", "attention_mask_CL", "token_type_ids_CL"):
        made = getattr(there, name)
        assert made.device == META and made.shape == getattr(rows, name).shape
        assert getattr(there, name) is made
    assert len(copies) == 1


def test_selected_rows_keep_their_facts_on_a_device():
    rows = reader().layout(chunks_of())
    parts = rows.input_ids_CL, rows.attention_mask_CL, None, rows.query_length_C
    there = SelectedRows(*parts, rows.sizes, rows.query_rows, padded=False, flat=rows.flat).to(META)
    assert isinstance(there, EncoderInput)
    assert there.input_ids_CL.device == there.flat.place_T.device == META
    assert there.token_type_ids_CL is None and there.encoder_mask is None
    assert (there.sizes, there.query_rows, there.width) == (rows.sizes, rows.query_rows, 14)
