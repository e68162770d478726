"""Which blocks of a document KeyB reads (Li et al. 2023), and how much of them fits.

`learned-shared` (the paper's BinB) scores blocks with the ranker itself, as it is at that moment;
`learned-separate` (BinB2) with a ranker of its own. `bm25-then-learned` is the cascade the paper
leaves to future work: BM25 keeps twice what can be read, `learned-shared` chooses among that.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rank_core.chunking.chunks import Span, chunk_spans
from rank_core.errors import BadInput, unknown
from rank_core.seeding import generator
from rank_core.settings.config import Model

FROM_TEXT = ("tfidf", "bm25", "random", "first-last-sampled")
LEARNED = ("learned-shared", "learned-separate", "bm25-then-learned")
DEFAULT = "bm25"
CASCADE_SURPLUS = 2  # tokens that BM25 leaves to the learned choice, over those that can be read
TRUNCATE_LATEST = "truncate-latest"
"""Of chosen blocks that are too long together, the reference cuts the one that is latest in the
document; the paper, and we without this quirk, the one that was chosen last."""


class Passages(NamedTuple):
    """In how many pieces of what size the chosen text is read."""

    window: int
    stride: int
    number: int

    @property
    def budget(self) -> int:
        """Tokens of text that they hold."""
        return self.window + (self.number - 1) * self.stride

    def spans(self, num_tokens: int) -> tuple[Span, ...]:
        """Those of a text of at most `budget` tokens."""
        return chunk_spans(num_tokens, self.window, self.stride)


def selector_of(settings: Model) -> str:
    """The selector that the settings name, or BM25; refuses settings without an effect."""
    selector = settings.selector or DEFAULT
    if selector not in (*FROM_TEXT, *LEARNED):
        raise unknown("model.selector", selector, (*FROM_TEXT, *LEARNED))
    if settings.selector_backbone and selector != "learned-separate":
        raise BadInput(
            "model.selector_backbone has no effect with model.selector="
            f"{selector}, got {settings.selector_backbone!r}; it is for learned-separate"
        )
    for quirk in settings.quirks:
        if quirk != TRUNCATE_LATEST:
            raise unknown(f"quirk of model {settings.name}", quirk, (TRUNCATE_LATEST,))
    return selector


def by_score(score_K: NDArray[np.float64]) -> list[int]:
    """Blocks from the best to the worst; equals in document order."""
    return np.argsort(-score_K, kind="stable").tolist()


def by_chance(selector: str, num_blocks: int, query: NDArray[np.int32], doc_id: str) -> list[int]:
    """The order of `random`, and of `first-last-sampled`: first, last, then chance. It depends on
    the query and the document alone."""
    rng = generator(0, "blocks", doc_id, np.asarray(query, np.int32).tobytes().hex())
    if selector == "random" or num_blocks < 3:
        return rng.permutation(num_blocks).tolist()
    return [0, num_blocks - 1, *(rng.permutation(num_blocks - 2) + 1).tolist()]


def within(order: Iterable[int], lengths: Sequence[int], budget: int) -> list[int]:
    """The first blocks of an order, until `budget` tokens are reached; the last may exceed them."""
    chosen = []
    for block in order:
        if budget <= 0:
            break
        chosen.append(block)
        budget -= lengths[block]
    return chosen


def fitting(
    order: Iterable[int], lengths: Sequence[int], budget: int, *, truncate_latest: bool
) -> list[tuple[int, int]]:
    """(block, tokens read from its start) of the chosen blocks in document order."""
    chosen = within(order, lengths, budget)
    read = {block: lengths[block] for block in chosen}
    surplus = sum(read.values()) - budget
    for block in sorted(chosen, reverse=True) if truncate_latest else chosen[::-1]:
        cut = min(max(surplus, 0), read[block])
        read[block] -= cut
        surplus -= cut
    return sorted((block, size) for block, size in read.items() if size)
