"""`python -m sweeps doctor`: what is wrong, or worth knowing, before a sweep is launched."""

from sweeps.commands.doctor.command import main
from sweeps.commands.doctor.finding import Finding

__all__ = ["Finding", "main"]
