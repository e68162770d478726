"""The commands of `python -m sweeps`."""
