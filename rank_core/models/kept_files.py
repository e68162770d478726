"""The files of some trials, beside those of every trial."""

INDEX = "index.json"
"""What its index costs, and how its model reads texts."""
EVIDENCE = "evidence.json"
"""{budget in tokens: {query_id: share of the relevant text that a reader gets}}."""
CHUNK_SCORES = "chunk_scores.parquet"
"""The score of every chunk of every reranked document, of dev and test."""
