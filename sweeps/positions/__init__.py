"""The positions of relevant text in documents: matching, scores by position, plots, a page."""
