"""What both engines share, without Ray: a trial's task and its progress; and the local engine."""
