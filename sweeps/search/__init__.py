"""Searches: the order of configurations, and eliminations.

`search` has the base class, whose decisions depend on the ended trials alone. Only `study` imports
Optuna. The options, the registry `SEARCHES` and the space of configurations are in
`sweeps.plan`.
"""
