"""The parts that both engines share, without Ray (the task of a trial, its progress), and the local
engine."""


class EngineLost(RuntimeError):
    """The engine has broken down and cannot restart; no finished trial is lost."""


class EngineInterrupted(KeyboardInterrupt):
    """Ctrl-C or a signal like it while Ray ran: what its library leaves in this process holds
    nothing, and would take ten seconds and more to go."""
