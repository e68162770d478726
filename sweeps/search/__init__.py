"""Which configurations of the grid run, in which order, and which leave early.

`search` is what all searches are: feeds whose decisions depend on nothing but what has ended;
`make` gives the one of a plan. Only `sampler` knows Optuna. What the user asked for, the registry
`SEARCHES` and the space to choose from are in `sweeps.plan`.
"""
