"""MLflow as a replayable projection of the sweep; the JSONL outbox on disk is the truth.

The driver appends to the outbox (`outbox`), one thread uploads it (`uploader`). Trials import
nothing of this package, and `import sweeps.tracking` does not import mlflow.
"""
