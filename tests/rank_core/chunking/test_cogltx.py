"""Block segmentation: known lengths, and the cheapest one of all."""

from itertools import combinations

import numpy as np
import pytest

from rank_core.chunking.cogltx import BLOCK_COST, FORCED_CUT_COST, block_spans, mark_costs
from rank_core.encoders.backbones import load_tokenizer
from rank_core.testing.tokenizer import train_tokenizer

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


def test_a_forced_cut_is_taken_only_where_no_mark_is_near():
    # Marks at 10 and 90 are 80 apart: one forced cut 63 tokens after the first.
    tokens = document(100, period=[9, 89])
    assert lengths(tokens) == [10, 63, 27]
    # Blocks end at 10, 73 and 100: the period at 90 would be a fourth block.
    assert FORCED_CUT_COST + 1 + 3 * BLOCK_COST < FORCED_CUT_COST + 2 + 4 * BLOCK_COST


def test_marks_are_found_in_the_tokenizers_own_spelling(backbone_folder):
    tokenizer = train_tokenizer(["one, two. three! four? five"], 60)
    costs = mark_costs(tokenizer)
    ids = dict(zip(",.!?", tokenizer.convert_tokens_to_ids(list(",.!?")), strict=True))
    assert {mark: int(costs[i]) for mark, i in ids.items()} == {",": 2, ".": 1, "!": 1, "?": 1}
    assert (costs >= 0).sum() == 4
    assert (mark_costs(load_tokenizer(backbone_folder)) == -1).all()


class ByteLevel:
    """The vocabulary of a byte-level tokenizer."""

    def get_vocab(self):
        return {"Ċ": 0, "Ġ.": 1, ".": 2, "Ġword": 3, "Ġ,": 4}


def test_marks_of_byte_level_tokenizers_count_with_and_without_a_space():
    assert mark_costs(ByteLevel()).tolist() == [0, 1, 1, -1, 2]
