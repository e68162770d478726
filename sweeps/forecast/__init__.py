"""How long a plan will take, measured on this machine."""
