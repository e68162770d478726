"""A trained ranker as a folder that other programs load, and the reranker that ranks with it."""
