"""`ranksweep compare`: the same tests for any TREC runs."""
