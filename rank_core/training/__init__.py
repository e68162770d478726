"""The training loop of one trial, a generator of its progress."""
