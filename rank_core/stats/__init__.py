"""From per-query values of a sweep to what may be said about its systems."""
