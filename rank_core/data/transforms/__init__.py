"""Data experiments from papers, as functions from a collection to another collection.

`python-docs|debias(seed=2)|deep(rate=0.1)` names a transformed collection. A new transform needs a
file here and a line in `expression.TRANSFORMS`.
"""
