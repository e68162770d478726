"""A trained ranker as a folder that any program can load, and the reranker that it is there."""
