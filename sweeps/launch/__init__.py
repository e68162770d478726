"""One command from its options to its exit code."""
