"""Races: after each seed, which configurations the whole grid could still name the best."""
