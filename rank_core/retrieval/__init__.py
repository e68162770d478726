"""Dense retrieval over a whole collection: texts of chunks, their vectors, exact search."""
