"""What a trial writes to resume from, and the weights another trial starts from."""
