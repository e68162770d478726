"""CPU forms of computations that differ from transformers', each chosen by measurement."""
