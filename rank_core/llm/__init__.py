"""Chat models that order lists: a client, a ledger of costs, RankGPT. Imports the ground only."""
