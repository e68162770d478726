"""Rankers that read only the blocks or chunks that a selector keeps."""
