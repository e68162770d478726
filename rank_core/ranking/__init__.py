"""From a ranker and candidates to TREC runs, per-query values and derived systems."""
