"""Chunks of a document, and its blocks: laws, and cases by hand."""

from itertools import combinations, pairwise, product

import numpy as np
import pytest

from rank_core.chunking.chunks import (
    BLOCK_COST,
    block_spans,
    chunk_spans,
    document_spans,
    mark_costs,
    span_counts,
)
from rank_core.encoders.backbones import load_tokenizer
from rank_core.settings.config import Chunking
from rank_core.testing.tokenizer import train_tokenizer

LENGTHS = [*range(0, 200), 477, 478, 1000, 1430, 1431, 1432]
SHAPES = [(1, 1), (2, 1), (7, 7), (20, 10), (20, 1), (50, 33), (150, 75), (477, 477)]


@pytest.mark.parametrize(("window", "stride"), SHAPES)
def test_chunks_cover_the_document_without_repetition(window, stride):
    for length in LENGTHS:
        spans = chunk_spans(length, window, stride)
        assert spans[0].start == 0 and spans[-1].end == length
        assert all(end - start == window for start, end in spans[:-1])
        for before, after in pairwise(spans):
            assert after.start - before.start == stride
            assert after.start <= before.end, "no token is left out"
            assert after.end > before.end, "no chunk lies inside another"
        assert {t for span in spans for t in range(*span)} == set(range(length))


@pytest.mark.parametrize("overflow", ["first", "first-last-sampled"])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
def test_a_limit_on_chunks_keeps_that_many_in_document_order(overflow, limit):
    everything = chunk_spans(100, 20, 10)
    chunking = Chunking(window=20, stride=10, max_chunks=limit, overflow=overflow)
    kept = document_spans("d", 100, chunking)
    assert len(everything) == 9 and len(kept) == limit
    assert list(kept) == sorted(set(kept)) and set(kept) <= set(everything)
    assert kept[0] == everything[0]
    if overflow == "first":
        assert kept == everything[:limit]
    elif limit > 1:
        assert kept[-1] == everything[-1]


def _drawn_chunking(rng):
    window = int(rng.integers(1, 60))
    return Chunking(
        window=window,
        stride=int(rng.integers(1, window + 1)),
        max_chunks=int(rng.choice([0, 1, 2, 3, 4, 9])),
        max_document_tokens=int(rng.choice([1, 30, 200, 1431])),
        overflow=str(rng.choice(["first", "first-last-sampled"])),
    )


@pytest.mark.parametrize("seed", range(2))
def test_counts_in_closed_form_are_those_of_the_spans(seed):
    rng = np.random.default_rng(seed)
    lengths = np.array([*range(90), 199, 200, 201, 1430, 1431, 5000])
    for _ in range(100):
        chunking = _drawn_chunking(rng)
        counts = span_counts(lengths, chunking)
        for i, length in enumerate(lengths.tolist()):
            spans = document_spans("d", length, chunking)
            seen = {token for span in spans for token in range(*span)}
            assert counts.chunks[i] == len(spans), (length, chunking)
            assert counts.tokens[i] == sum(end - start for start, end in spans)
            kept = chunking.max_chunks
            every = chunk_spans(
                min(length, chunking.max_document_tokens), chunking.window, chunking.stride
            )
            if chunking.overflow == "first" or not 1 < kept < len(every):
                assert counts.covered[i] == len(seen), (length, chunking)


def test_chunkings_share_a_signature_where_they_read_the_same_spans():
    lengths, spans_of = np.array([0, 3, 8, 11]), {}
    for window, stride, limit in product((4, 8, 11, 20), (2, 4), (0, 1, 2)):
        chunking = Chunking(window=window, stride=stride, max_chunks=limit)
        spans = tuple(document_spans("d", length, chunking) for length in lengths.tolist())
        spans_of.setdefault(span_counts(lengths, chunking).signature, set()).add(spans)
    assert all(len(spans) == 1 for spans in spans_of.values())
    assert len(spans_of) == len(set.union(*spans_of.values())) < 24


@pytest.mark.parametrize("shape", [(8, 3, 3), (8, 3, 4), (12, 2, 5), (9, 9, 3), (9, 2, 2)])
def test_sampled_chunks_cover_the_mean_over_all_samples(shape):
    window, stride, kept = shape
    chunking = Chunking(window, stride, max_chunks=kept, overflow="first-last-sampled")
    every = chunk_spans(47, window, stride)
    assert len(every) > kept
    covered = [
        len({token for span in (every[0], *drawn, every[-1]) for token in range(*span)})
        for drawn in combinations(every[1:-1], kept - 2)
    ]
    assert span_counts(np.array([47]), chunking).covered[0] == pytest.approx(np.mean(covered))


PLAIN, PERIOD, COMMA, NEWLINE = range(4)
COSTS = np.array([-1, 1, 2, 0], dtype=np.int8)


def document(size, **marks):
    """A document of plain tokens but for marks at the given places."""
    tokens = np.zeros(size, dtype=np.int32)
    for name, places in marks.items():
        tokens[places] = {"period": PERIOD, "comma": COMMA, "newline": NEWLINE}[name]
    return tokens


def lengths(tokens):
    return [end - start for start, end in block_spans(tokens, COSTS)]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (document(0), []),
        (document(1), [1]),
        (document(63), [63]),
        (document(64), [63, 1]),
        (document(130), [63, 63, 4]),
        (document(80, period=[39, 79]), [40, 40]),
        # 60 + 20, 40 + 40 and 20 + 60 cost the same: the last block is the shortest.
        (document(80, period=[19, 39, 59, 79]), [60, 20]),
        # A period costs less than a comma.
        (document(100, comma=[29], period=[59]), [60, 40]),
        # Three cuts at line ends cost 3 * 4; two at a line end and a comma 2 + 2 * 4 are cheaper.
        (document(100, newline=[20, 41], comma=[50], period=[99]), [42, 58]),
        (document(126, comma=[62]), [63, 63]),
    ],
)
def test_documents_fall_into_the_known_blocks(tokens, expected):
    assert lengths(tokens) == expected


def test_no_other_segmentation_is_cheaper():
    rng = np.random.default_rng(2)
    for _ in range(20):
        places = np.sort(rng.choice(149, 9, replace=False))
        tokens = document(150)
        tokens[places] = rng.integers(1, 4, 9)
        ends = [0, *(places + 1).tolist(), 150]
        if max(np.diff(ends)) > 63:
            continue

        def cost(cuts, tokens=tokens):
            edges = [0, *cuts, 150]
            if max(np.diff(edges)) > 63:
                return np.inf
            return sum(int(COSTS[tokens[cut - 1]]) for cut in cuts) + BLOCK_COST * (len(cuts) + 1)

        inner = ends[1:-1]
        cheapest = min(cost(c) for n in range(10) for c in combinations(inner, n))
        assert cost([end for _, end in block_spans(tokens, COSTS)][:-1]) == cheapest


def test_marks_are_found_in_the_tokenizers_own_spelling(backbone_folder):
    tokenizer = train_tokenizer(["one, two. three! four? five"], 60)
    costs = mark_costs(tokenizer)
    ids = dict(zip(",.!?", tokenizer.convert_tokens_to_ids(list(",.!?")), strict=True))
    assert {mark: int(costs[i]) for mark, i in ids.items()} == {",": 2, ".": 1, "!": 1, "?": 1}
    assert (costs >= 0).sum() == 4
    assert (mark_costs(load_tokenizer(backbone_folder)) == -1).all()
