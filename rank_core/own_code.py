"""Own code: models, collections and transforms from outside the package, named `module:attribute`
or announced as entry points of an installed package."""

import ast
import hashlib
import shutil
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from rank_core.errors import BadInput, unknown

OURS = ("rank_core", "sweeps")
GROUPS = {
    "model": "ranksweep.models",
    "collection": "ranksweep.collections",
    "transform": "ranksweep.transforms",
}
"""The group of entry points that announces each kind."""


def is_reference(name: str) -> bool:
    """Whether `name` is written `module:attribute`, as in `my_pkg.my_module:MyRanker`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(map(str.isidentifier, [*module.split("."), attribute]))


@cache
def announced(kind: str) -> Mapping[str, str]:
    """{name: module:attribute} of what installed packages announce as entry points of a kind."""
    return {point.name: point.value for point in entry_points(group=GROUPS[kind])}


def path_of(kind: str, name: str, registry: Mapping[str, str]) -> str:
    """`module:attribute` of a name: one of the registry, of an entry point, or a reference; raises
    `BadInput` for any other."""
    if name in registry:
        return registry[name]
    if is_reference(name):
        return name
    if name not in announced(kind):
        error = unknown(kind, name, [*registry, *announced(kind)])
        raise BadInput(f"{error}; or your own as module:name (docs/extending.md)")
    return announced(kind)[name]


def portable(kind: str, name: str, registry: Mapping[str, str]) -> str:
    """The name by which every process knows the same: that of the package, or a reference. Entries
    added to a registry at run time are known in one process only."""
    path = path_of(kind, name, registry)
    return name if _is_ours(path) else path


def load(kind: str, path: str) -> Any:
    """The object at `module:attribute`; raises `BadInput` where another process could not import it
    from a file."""
    module, _, attribute = path.partition(":")
    if _is_ours(path):
        return getattr(import_module(module), attribute)
    if module == "__main__":
        script = Path(str(getattr(sys.modules["__main__"], "__file__", "__main__"))).stem
        file = "my_module" if script == "__main__" else script
        raise BadInput(
            f"{kind} {path}: __main__ is another program in every worker; name the file, as in "
            f"{file}:{attribute}"
        )
    imported = import_own(module, f"{kind} {path}")
    if not hasattr(imported, attribute):
        public = [name for name in vars(imported) if not name.startswith("_")]
        raise BadInput(f"{kind} {path}: {unknown(f'name in {module}', attribute, public)}")
    source_hash(path)
    return getattr(imported, attribute)


def import_own(module: str, what: str) -> ModuleType:
    """A module of the user; raises `BadInput` with the place of what keeps it from being
    imported."""
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent in (module, *_packages(module)):
            raise BadInput(
                f"{what}: no module {absent}; it must be installed, or stand in the working "
                "directory, beside the sweep's file or on PYTHONPATH"
            ) from None
        if isinstance(error, SyntaxError):
            place = f"{error.filename}:{error.lineno}"
        else:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{last.filename}:{last.lineno}"
        raise BadInput(
            f"{what}: {module} cannot be imported: {place}: {type(error).__name__}: {error}"
        ) from error


@cache
def source_hash(path: str) -> str:
    """16 hex digits over `module:attribute` and the source of its module and of all own modules
    that it imports: once per process, so that it is of the code that runs."""
    digest = hashlib.sha256(path.encode())
    for name, file in sorted(_sources(path.partition(":")[0]).items()):
        content = file.read_bytes()
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def write_source(path: str, folder: Path) -> None:
    """Copies what `source_hash` is of into a new folder, from which it can be imported."""
    for name, file in _sources(path.partition(":")[0]).items():
        at = Path(*name.split("."), "__init__.py") if file.stem == "__init__" else None
        target = folder / (at or Path(*name.split(".")).with_suffix(file.suffix))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def travelling(paths: Iterable[str]) -> tuple[str, ...]:
    """The files and folders that hold the source of `module:attribute` paths and of the own modules
    that they import, to be taken along to other machines: whole packages, single modules. What is
    installed does not travel; it is for every machine to have, as the package's own code."""
    found = set()
    for path in paths:
        for name, file in _sources(path.partition(":")[0]).items():
            if not _is_installed(file):
                above = name.count(".") + (file.name == "__init__.py")
                found.add(file.parents[above - 1] if above else file)
    return tuple(sorted(map(str, found)))


def _is_ours(path: str) -> bool:
    return path.partition(":")[0].partition(".")[0] in OURS


def _sources(module: str) -> dict[str, Path]:
    """{module: file} of a module and of the own modules that it imports, directly or not."""
    top, first = module.partition(".")[0], _file_of(module)
    if first is None or not first.is_file():
        raise BadInput(
            f"{module} has no source file, so that no other process could import it and no cell "
            "could be named by it; put it into a .py file"
        )
    found, ahead = dict[str, Path](), [module]
    while ahead:
        name = ahead.pop()
        if name in found or not (name.partition(".")[0] == top or _is_own(name.partition(".")[0])):
            continue
        file = _file_of(name)
        if file is None:  # no module, but something in one
            continue
        if _is_installed(file) and name.partition(".")[0] != top:
            continue
        found[name] = file
        ahead += _packages(name)
        if file.suffix == ".py":
            ahead += _imported(name, file)
    return found


@cache
def _is_own(top: str) -> bool:
    """Whether a module or package is neither ours, nor Python's, nor installed."""
    if top in (*OURS, *sys.stdlib_module_names):
        return False
    file = _file_of(top)
    return file is None or not _is_installed(file)


def _packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _imported(name: str, file: Path) -> Iterator[str]:
    """Names that a file imports; some are of modules, some of what is in them."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *filter(None, [node.module])] if node.level else [])
            base = base or str(node.module)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _file_of(name: str) -> Path | None:
    """The file of a module; None where it has none, or nothing is called so."""
    if name in sys.modules:
        spec = getattr(sys.modules[name], "__spec__", None)
    else:
        try:
            spec = find_spec(name)  # imports the packages above it
        except Exception:  # whatever they raise
            return None
    origin = spec.origin if spec and spec.has_location else None
    return Path(origin).resolve() if origin else None


def _is_installed(file: Path) -> bool:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return {"site-packages", "dist-packages"} & {*file.parts} != set() or any(
        file.is_relative_to(Path(folder).resolve()) for folder in folders
    )
