"""Searches: the order of configurations, and eliminations.

`search` has the base class, a feed whose decisions depend on the ended trials alone; `make` has the
search of a plan. Only `sampler` imports Optuna. The options, the registry `SEARCHES` and the space
of configurations are in `sweeps.plan`.
"""
