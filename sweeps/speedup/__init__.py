"""Speed-up of a trial over several workers: its timings, table and plot, for `scaling.py` alone."""
