"""From per-query values of a sweep to conclusions about its systems."""
