"""MLflow as a copy of the trials' folders, which are the truth.

One thread of the driver writes it (`thread`), and `sync` sends what it lacks. Trials import nothing
of this package, and no module of it imports mlflow before it is used.
"""
