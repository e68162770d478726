"""The commands `bundle` and `verify`: a finished sweep as one file that anyone can check."""
