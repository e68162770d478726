"""The files of a sweep on disk: finished trials, failures, attempts, the sweep's own file."""
