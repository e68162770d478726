"""BM25 and RM3 in memory (`Bm25Index`) or by Lucene itself (`lucene`), tuned on dev (`tuning`)."""

from rank_core.first_stage.bm25 import DEPTH, K1, B, Bm25Index, Bm25Settings, Retriever, Rm3, recipe
from rank_core.first_stage.languages import TextAnalysis

__all__ = [
    "DEPTH",
    "K1",
    "B",
    "Bm25Index",
    "Bm25Settings",
    "Retriever",
    "Rm3",
    "TextAnalysis",
    "recipe",
]
