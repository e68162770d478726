"""What a person types and reads: the command line, text for a terminal, escapes, notation."""
