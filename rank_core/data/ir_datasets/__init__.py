"""Collections of ir_datasets, read from files on this machine."""
