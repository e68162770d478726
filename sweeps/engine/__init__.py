"""What both engines share, without Ray: a trial's task and its progress; and the local engine."""


class EngineLost(RuntimeError):
    """What runs the trials has ended, and cannot be started again; nothing finished is lost."""
