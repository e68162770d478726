"""The first stage: BM25 in memory (`bm25_run`), with RM3 too (`Bm25Index`), or through Lucene
(`lucene`), tuned on dev (`tuning`)."""

from rank_core.first_stage.bm25 import bm25_run, recipe
from rank_core.first_stage.index import Bm25Index
from rank_core.first_stage.settings import DEPTH, K1, B, Bm25Settings, FirstStage, Rm3

__all__ = [
    "DEPTH",
    "K1",
    "B",
    "Bm25Index",
    "Bm25Settings",
    "FirstStage",
    "Rm3",
    "bm25_run",
    "recipe",
]
