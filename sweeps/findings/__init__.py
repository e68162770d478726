"""What a sweep has found, in numbers: a module for each question, without prose."""
