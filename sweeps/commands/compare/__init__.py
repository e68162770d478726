"""`python -m sweeps compare`: the same tests for any TREC runs."""
