"""What is on disk: finished trials, failures, attempts, the sweep's own file."""
