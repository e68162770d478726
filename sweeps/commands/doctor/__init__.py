"""`ranksweep doctor`: what is wrong, or worth knowing, before a sweep is launched."""
