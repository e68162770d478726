"""The questions a user can run, one a file; the rooms below them answer."""
