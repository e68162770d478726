"""MLflow as a replayable projection of the sweep: its event log on disk is the truth.

One thread of the driver uploads the log (`uploader`). Trials import nothing of this package, and no
module of it imports mlflow before it is used.
"""
