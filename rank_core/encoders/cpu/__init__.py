"""What CPUs compute otherwise than transformers, each path behind a measurement."""
