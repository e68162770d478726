"""Chat models as list-wise rerankers: a client, a cost ledger, RankGPT."""
