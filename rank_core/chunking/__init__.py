"""From documents to chunks, from chunks to batches of tokens."""
