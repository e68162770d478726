"""The training loop of a trial, a generator of its progress."""
