"""Collections that ir_datasets knows, read from files on this machine."""
