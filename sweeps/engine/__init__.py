"""What runs trials, apart from Ray: progress and decisions, the same for every engine."""
