"""The settings of a first stage."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rank_core.errors import BadInput
from rank_core.records import Run

DEPTH = 100
K1 = 0.9
B = 0.4


@dataclass(frozen=True)
class Rm3:
    """Query expansion by a relevance model mixed with the query (Abdul-Jaleel et al., TREC 2004).

    `fb_terms` terms from the top `fb_docs` documents; the original query has weight
    `original_weight`.
    """

    fb_terms: int = 10
    fb_docs: int = 10
    original_weight: float = 0.5

    def __post_init__(self) -> None:
        if self.fb_terms < 1 or self.fb_docs < 1:
            raise BadInput(
                "RM3 needs fb_terms >= 1 and fb_docs >= 1, "
                f"got fb_terms={self.fb_terms}, fb_docs={self.fb_docs}"
            )
        if not 0 <= self.original_weight <= 1:
            raise BadInput(
                f"RM3 needs 0 <= original_weight <= 1, got original_weight={self.original_weight}"
            )


@dataclass(frozen=True)
class Bm25Settings:
    """BM25's saturation `k1` and length normalisation `b`, optionally with RM3."""

    k1: float = K1
    b: float = B
    rm3: Rm3 | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.k1) and self.k1 >= 0 and 0 <= self.b <= 1):
            raise BadInput(f"k1 >= 0 and 0 <= b <= 1 must hold, got k1={self.k1}, b={self.b}")


class Retriever(Protocol):
    """Retrieves from a set of documents."""

    def run(
        self, queries: Mapping[str, str], settings: Bm25Settings = ..., *, depth: int = ...
    ) -> Run:
        """The top `depth` documents of each query; ties are broken by doc_id."""


def require_depth(depth: int) -> None:
    """Raises `BadInput` for a depth below 1."""
    if depth < 1:
        raise BadInput(f"depth >= 1 must hold, got depth={depth}")
