"""Where in its documents a collection is relevant: matching, scores by position, plots, a page."""
