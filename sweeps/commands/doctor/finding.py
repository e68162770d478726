"""A finding of the doctor, its lines in a terminal, and the findings on this machine."""

import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from rank_core.lines import put
from sweeps.terminal.text import numbered, wrapped

LEVELS = ("ok", "note", "warning", "error")
_INDENT = 11  # columns before the text of a finding
NAMED = ("torch", "transformers", "ray", "mlflow", "numpy", "pandas", "ir-measures")


@dataclass(frozen=True)
class Diagnosis:
    """A fact, its consequence and its remedy; level ok needs the fact alone."""

    level: str  # one of LEVELS
    what: str
    why: str = ""
    remedy: str = ""

    @property
    def text(self) -> str:
        """The finding as a line."""
        text = f"{self.what}: {self.why}" if self.why else self.what
        return f"{text}. Remedy: {self.remedy}" if self.remedy else text


def print_finding(finding: Diagnosis) -> None:
    """Prints a finding, its text behind its level."""
    put(wrapped(f"  {finding.level:<{_INDENT - 2}}{finding.text}", _INDENT))


def verdict(findings: Iterable[Diagnosis]) -> str:
    """The last line: the number of findings of each level."""
    levels = [finding.level for finding in findings]
    found = [level for level in ("error", "warning", "note") if level in levels]
    return ", ".join(numbered(levels.count(level), level) for level in found) or "no problem found"


def exit_code(findings: Iterable[Diagnosis]) -> int:
    """2 if there are errors."""
    return 2 if any(finding.level == "error" for finding in findings) else 0


def machine(*, trains: bool = True) -> Iterator[Diagnosis]:
    """The findings on this machine, for a sweep that trains or one that does not."""
    packages = ", ".join(f"{name} {_version(name) or 'missing'}" for name in NAMED)
    yield Diagnosis("ok", f"Python {platform.python_version()}, {packages}")
    yield from _requirements()
    yield gpus(trains=trains)


def gpus(*, trains: bool = True) -> Diagnosis:
    """The finding on the GPUs of this machine."""
    import torch  # takes seconds

    return accelerators(
        visible=torch.cuda.device_count() if torch.cuda.is_available() else 0,
        attached=len(list(Path("/dev").glob("nvidia[0-9]*"))),
        build=torch.version.cuda,
        hidden=os.environ.get("CUDA_VISIBLE_DEVICES"),
        trains=trains,
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _requirements() -> Iterator[Diagnosis]:
    if _version("ranksweep") is None:
        yield Diagnosis(
            "warning",
            "ranksweep is not installed, it is imported from the current folder",
            "trials run in other folders and on other machines, which would not find it",
            "pip install -e '.[sweep]'",
        )
        return
    for requirement in map(Requirement, requires("ranksweep") or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": "sweep"}):
            continue
        needed, installed = f"{requirement.name}{requirement.specifier}", _version(requirement.name)
        if installed is None or not requirement.specifier.contains(installed, prereleases=True):
            what = f"{requirement.name} {installed or 'is missing'}, ranksweep needs {needed}"
            why = "its tests hold for these versions only"
            yield Diagnosis("error", what, why, f"pip install '{needed}'")


def accelerators(
    *, visible: int, attached: int, build: str | None, hidden: str | None, trains: bool = True
) -> Diagnosis:
    """GPUs that torch can use, out of those that are attached to the machine. `build` is torch's
    CUDA version, None for a CPU build; `hidden` is CUDA_VISIBLE_DEVICES; `trains`: the sweep."""
    if attached > visible:
        seen = f"{visible} of {attached} GPUs seen"
        if hidden is not None:
            return Diagnosis("note", f"{seen}: CUDA_VISIBLE_DEVICES is {hidden!r}")
        cause = "torch is a CPU build" if build is None else f"torch is built for CUDA {build}"
        remedy = "install the torch build that suits the driver `nvidia-smi` shows"
        return Diagnosis("error", f"{seen}, {cause}", "trials would run on the CPU", remedy)
    if visible:
        import torch

        names = ", ".join(sorted({torch.cuda.get_device_name(i) for i in range(visible)}))
        return Diagnosis("ok", f"{numbered(visible, 'GPU')}: {names}; CUDA {build}")
    what = f"no GPU on this machine, {os.cpu_count()} CPU cores"
    hours = "enough for `tiny-docs`; training a real backbone takes hours per trial"
    return Diagnosis("note", what, hours if trains else "the sweep's --dry-run measures the time")
