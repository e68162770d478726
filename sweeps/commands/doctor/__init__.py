"""`ranksweep doctor`: findings on environment and data before a sweep is launched."""
