"""Memory-mapped rows, documents and runs: data larger than memory, shared by processes."""
