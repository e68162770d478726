"""The files of a trial of dense retrieval, beside those of every trial."""

INDEX = "index.json"
"""What its index costs, and how its model reads texts."""
EVIDENCE = "evidence.json"
"""{budget in tokens: {query_id: share of the relevant text that a reader gets}}."""
