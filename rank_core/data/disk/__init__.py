"""Memory-mapped rows, documents, splits and runs: data larger than memory, shared by processes."""
