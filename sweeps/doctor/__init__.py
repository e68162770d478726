"""`python -m sweeps doctor`: what is wrong, or worth knowing, before a sweep is launched."""

from sweeps.doctor.command import main
from sweeps.doctor.finding import Finding

__all__ = ["Finding", "main"]
