"""The parts that both engines share, without Ray (the task of a trial, its progress), and the local
engine."""


class EngineLost(RuntimeError):
    """The engine has broken down and cannot restart; no finished trial is lost."""
