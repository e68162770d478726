"""All settings of a trial, typed and checked; imports neither data nor models."""
