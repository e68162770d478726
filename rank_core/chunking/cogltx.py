"""Block segmentation: short blocks that end at sentence or clause boundaries.

Ding et al., "CogLTX", 2020, on token ids: every block costs 4, every cut a cost that depends on its
position, and dynamic programming finds the cheapest segmentation into blocks of at most 63 tokens.
"""

from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rank_core.chunking.chunks import Span

BLOCK_TOKENS = 63  # maximum
BLOCK_COST = 4
FORCED_CUT_COST = 8  # of a cut after BLOCK_TOKENS tokens without a mark
MARK_COSTS = {"\n": 0, ".": 1, "?": 1, "!": 1, ",": 2}  # of a cut after this punctuation mark
NO_MARK = -1
WORD_STARTS = ("", "Ġ", "▁")  # prefixes of a token after a space: byte-level BPE, SentencePiece
BYTE_LEVEL_NEWLINE = "Ċ"


def mark_costs(tokenizer: Any) -> NDArray[np.int8]:
    """cost_V: the cost of a cut after each token of the vocabulary; NO_MARK for other tokens."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    cost_V = np.full(max(vocabulary.values(), default=0) + 1, NO_MARK, dtype=np.int8)
    for mark, cost in [*MARK_COSTS.items(), (BYTE_LEVEL_NEWLINE, MARK_COSTS["\n"])]:
        for start in WORD_STARTS:
            if start + mark in vocabulary:
                cost_V[vocabulary[start + mark]] = cost
    return cost_V


def block_spans(tokens: NDArray[np.int32], cost_V: NDArray[np.int8]) -> tuple[Span, ...]:
    """The cheapest blocks that cover `tokens`; empty for no tokens. Among equally cheap
    segmentations, the one with the shortest last block wins, then the one before it."""
    if not len(tokens):
        return ()
    ends, costs = _possible_ends(tokens, cost_V)
    least = [0]  # cost of the cheapest segmentation up to each possible end
    previous = [0]
    for i in range(1, len(ends)):
        near = bisect_left(ends, ends[i] - BLOCK_TOKENS)
        # `min` returns the first minimum, here the nearest.
        best = min(range(i - 1, near - 1, -1), key=least.__getitem__)
        least.append(least[best] + costs[i] + BLOCK_COST)
        previous.append(best)
    spans, i = [], len(ends) - 1
    while i > 0:
        spans.append(Span(ends[previous[i]], ends[i]))
        i = previous[i]
    return tuple(reversed(spans))


def _possible_ends(
    tokens: NDArray[np.int32], cost_V: NDArray[np.int8]
) -> tuple[list[int], list[int]]:
    """The possible ends of blocks and their costs: the start, after each mark, the document's end,
    and forced cuts, so that adjacent ends are at most a block apart."""
    cost_T = cost_V[tokens]
    marks = np.flatnonzero(cost_T != NO_MARK)
    places = [(int(mark) + 1, int(cost_T[mark])) for mark in marks]
    if not places or places[-1][0] < len(tokens):
        places.append((len(tokens), 0))
    ends, costs = [0], [0]
    for end, cost in places:
        while end - ends[-1] > BLOCK_TOKENS:
            ends.append(ends[-1] + BLOCK_TOKENS)
            costs.append(FORCED_CUT_COST)
        ends.append(end)
        costs.append(cost)
    return ends, costs
