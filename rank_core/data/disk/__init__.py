"""Memory-mapped rows, documents, splits and runs: larger than memory, shared by processes."""
