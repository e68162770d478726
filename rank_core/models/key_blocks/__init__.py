"""Rankers that read only selected blocks or chunks."""
