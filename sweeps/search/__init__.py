"""Which configurations of the grid run, in which order, and which leave early.

`settings` is what the user asked for, `space` what there is to choose from, `search` what all
searches are: feeds whose decisions depend on nothing but what has ended. Only `sampler` knows
Optuna.
"""
