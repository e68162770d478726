"""Searches: the order of configurations, and the ones that are eliminated.

`search` is the base class: a feed whose decisions depend on the ended trials alone; `make` gives
the search of a plan. Only `sampler` imports Optuna. The options, the registry `SEARCHES` and the
space of configurations are in `sweeps.plan`.
"""
