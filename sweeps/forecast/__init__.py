"""The time that a plan will take, measured on this machine."""
