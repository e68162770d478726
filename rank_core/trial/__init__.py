"""A trial, from its settings to its result."""
