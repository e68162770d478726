"""All settings of a trial, typed and checked; knows nothing of data or models."""
