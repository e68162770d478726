"""Rankers that order a list of candidates at once: chat models, RM3."""
