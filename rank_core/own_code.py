"""User code: models, collections and transforms from outside the package, given as
`module:attribute` or as entry points of an installed package."""

import ast
import hashlib
import shutil
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from rank_core.cache import cache_root, cached_directory
from rank_core.errors import BadInput, unknown

PACKAGES = ("rank_core", "sweeps", "ranksweep")
"""The packages of this project, which lie beside each other."""
GROUPS = {
    "model": "ranksweep.models",
    "collection": "ranksweep.collections",
    "transform": "ranksweep.transforms",
}
"""The entry point group of each kind."""
BY_VALUE = "__ranksweep_by_value__"
"""The name under which a module that holds an object by value has its source."""
OBJECTS = "objects"
"""The folder of the cache that has a folder for each such module."""
_typed_in: list[str] = []
"""The folder in which a command was typed: its modules join the path with the first name of a
user's code."""
_named: ContextVar[frozenset[str] | None] = ContextVar("_named", default=None)
"""The names that may be imported while a stranger's data is read; None: any."""


def see_modules_of(folder: str) -> None:
    """Make the modules of the folder in which a command was typed importable as a user's code, and
    for nothing else: a library that looks for an optional package does not find one there."""
    _typed_in[:] = [folder]


def _see_typed(module: str) -> None:
    if not _is_ours(module) and not {"", *_typed_in} & {*sys.path}:
        sys.path.extend(_typed_in)


def see_by_value(module: str) -> None:
    """Make a module that holds an object by value importable, in the process of its notebook and in
    any later one with the same cache."""
    folder = cache_root() / OBJECTS / module
    if str(folder) not in sys.path and folder.is_dir():
        sys.path.append(str(folder))


@contextmanager
def only_named(names: Iterable[str]) -> Iterator[None]:
    """A block that reads a stranger's data: of the names `module:attribute` in it only these, which
    the caller gave, are imported. Any other raises `BadInput`."""
    token = _named.set(frozenset(names))
    try:
        yield
    finally:
        _named.reset(token)


def may_import(name: str) -> bool:
    """False for a name `module:attribute` that `only_named` leaves out."""
    named = _named.get()
    return named is None or name in named


def is_ours(name: str) -> bool:
    """True for a name `module:attribute` of this package."""
    return is_reference(name) and _is_ours(name)


def is_reference(name: str) -> bool:
    """True for the form `module:attribute`, as in `my_pkg.my_module:MyRanker`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and all(map(str.isidentifier, [*module.split("."), attribute]))


@cache
def announced(kind: str) -> Mapping[str, str]:
    """{name: module:attribute} of the installed entry points of a kind."""
    return {point.name: point.value for point in entry_points(group=GROUPS[kind])}


def path_of(kind: str, name: str, registry: Mapping[str, str]) -> str:
    """`module:attribute` of a name in the registry, of an entry point, or of a reference. Raises
    `BadInput` for any other name."""
    if name in registry:
        return registry[name]
    if is_reference(name):
        return name
    if name not in announced(kind):
        error = unknown(kind, name, [*registry, *announced(kind)])
        raise BadInput(f"{error}; for your own, give module:name (docs/extending.md)")
    return announced(kind)[name]


def portable(kind: str, name: str, registry: Mapping[str, str]) -> str:
    """The name under which every process finds the same object: a name of this package, or a
    reference. Entries added to a registry at run time exist in one process only."""
    path = path_of(kind, name, registry)
    return name if _is_ours(path) else path


def load(kind: str, path: str, is_one: Callable[[Any], bool] = callable) -> Any:
    """The object at `module:attribute`. Raises `BadInput` if it is missing, with the names in the
    module for which `is_one` is true, or if other processes could not import it."""
    module, _, attribute = path.partition(":")
    if module == "__main__":
        raise BadInput(
            f"{kind} {path}: workers cannot import from __main__; name the file, as in "
            f"my_module:{attribute}"
        )
    if not may_import(path) and not (kind == "model" and _is_ours(path)):
        raise BadInput(f"{kind} {path} is named by the data alone, and is not imported")
    imported = import_own(module, f"{kind} {path}")
    if not hasattr(imported, attribute):
        public = [n for n, o in vars(imported).items() if n[0] != "_" and is_one(o)] or ["none"]
        raise BadInput(f"{kind} {path}: {unknown(f'name in {module}', attribute, public)}")
    if not _is_ours(path):
        source_hash(path)
    return getattr(imported, attribute)


def import_own(module: str, what: str) -> ModuleType:
    """A user's module. Raises `BadInput` with file and line if it cannot be imported."""
    if not _is_ours(module):  # which is on the path: a plan asks often
        _see_typed(module)
        see_by_value(module)
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent in (module, *_packages(module)):
            raise BadInput(
                f"{what}: no module {absent}; install it, or put it into the working directory, "
                "beside the sweep's file or on PYTHONPATH"
            ) from None
        if _is_ours(module):
            raise
        raise BadInput(f"{what}: {module} cannot be imported: {_raised(error)}") from error


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """A block that calls a user's code: what it raises, also by `sys.exit`, becomes a `BadInput`
    with the last line of theirs."""
    try:
        yield
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(f"{what} failed: {_raised(error)}") from error


def _raised(error: BaseException) -> str:
    """`FILE:LINE: KIND: MESSAGE`, at the last line outside libraries."""
    calls = traceback.extract_tb(error.__traceback__)
    own = [call for call in calls if not _is_installed(Path(call.filename).resolve())]
    at: Any = error if isinstance(error, SyntaxError) else (own or calls)[-1]
    return f"{at.filename}:{at.lineno}: {type(error).__name__}: {error}"


@cache
def source_hash(path: str) -> str:
    """16 hex digits over `module:attribute` and the sources of its module and of all user modules
    that it imports. Cached, so that they are of the code that runs."""
    return _hash_of(path, _contents(_sources(path.partition(":")[0])))


def meaning_hash(path: str) -> str:
    """`source_hash` for the name of a trial: of a module that holds an object by value its source
    alone, as the object's pickle differs between processes."""
    name = path.partition(":")[0]
    sources = _sources(name)
    held = _held_source(sources[name]) if name in sources else ""
    return _hash_of(path, _contents(sources) | {name: held.encode()}) if held else source_hash(path)


def _held_source(file: Path) -> str:
    """The source of the object that a module holds by value; "" of any other module."""
    content = file.read_bytes()
    if f"\n{BY_VALUE} = ".encode() not in content:
        return ""
    assigned = (node for node in ast.parse(content).body if isinstance(node, ast.Assign))
    values = {node.targets[0].id: node.value for node in assigned
              if isinstance(node.targets[0], ast.Name)}  # fmt: skip
    held = values.get(BY_VALUE)
    return str(held.value) if isinstance(held, ast.Constant) else ""


def _contents(sources: Mapping[str, Path]) -> dict[str, bytes]:
    return {name: file.read_bytes() for name, file in sources.items()}


def _hash_of(path: str, contents: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(path.encode())
    for name, content in sorted(contents.items()):
        # With name and length: moved lines between two modules are a change.
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def write_source(path: str, folder: Path) -> None:
    """Copies the sources that `source_hash` covers into a new folder, importable from there."""
    for name, file in _sources(path.partition(":")[0]).items():
        at = Path(*name.split("."), "__init__.py") if file.stem == "__init__" else None
        target = folder / (at or Path(*name.split(".")).with_suffix(file.suffix))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


def written_hash(path: str, folder: Path) -> str:
    """The `source_hash` of what `write_source` has written into a folder, without an import. Every
    file there counts, so that none is found that it does not cover."""
    sources = {}
    for file in sorted(folder.rglob("*")):
        place = file.relative_to(folder)
        if file.is_dir() or "__pycache__" in place.parts:
            continue
        parts = place.parent.parts if file.stem == "__init__" else place.with_suffix("").parts
        sources[".".join(parts)] = file
    return _hash_of(path, _contents(sources))


def load_written(path: str, folder: Path, code: str) -> None:
    """Imports the module of `module:attribute` from what `write_source` has written into a folder,
    if that has the source hash `code`, which is found before anything runs. Raises `BadInput` where
    it has another, or where another module of that name stands before it."""
    module = path.partition(":")[0]
    if written_hash(path, folder) != code:
        raise BadInput(f"{folder} has another source of {path} than the one that was exported")

    def copy(copied: Path) -> None:  # so that no compiled file of the folder is read
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder, copied, dirs_exist_ok=True, ignore=ignored)

    place = cached_directory("code", code, copy)
    if written_hash(path, place) != code:
        raise BadInput(f"{place} has changed since it was copied from {folder}: remove it")
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
    invalidate_caches()
    file = _file_of(module)
    if file is None or not file.is_relative_to(place.resolve()):
        raise BadInput(f"{path} is in {folder}, but {file or 'nothing'} is found by that name")
    import_own(module, path)
    source_hash.cache_clear()


def travelling(paths: Iterable[str]) -> tuple[str, ...]:
    """The files and folders to ship to other machines: single modules and whole packages with the
    sources of `module:attribute` paths and of the user modules that they import. Installed packages
    are not shipped; every machine needs them installed."""
    places = set()
    for path in paths:
        for name, file in _sources(path.partition(":")[0]).items():
            if not _is_installed(file):
                above = name.count(".") + (file.name == "__init__.py")
                places.add(file.parents[above - 1] if above else file)
    return tuple(sorted(map(str, places)))


def _is_ours(path: str) -> bool:
    return path.partition(":")[0].partition(".")[0] in PACKAGES


def _sources(module: str) -> dict[str, Path]:
    """{module: file} of a module and of the user modules that it imports, directly or not."""
    _see_typed(module)
    top, first = module.partition(".")[0], _file_of(module)
    if first is None or not first.is_file():
        raise BadInput(
            f"{module} has no source file: other processes could not import it, and it could not "
            "be part of a cell's name; put the code into a .py file"
        )
    files, pending = dict[str, Path](), [module]
    while pending:
        name = pending.pop()
        of_top = name.partition(".")[0] == top
        if name in files or not (of_top or _is_own(name.partition(".")[0])):
            continue
        file = _file_of(name)
        # `from module import name` names a module or something in one; only a file tells.
        if file is None or (_is_installed(file) and not of_top):  # None: a name in a module
            continue
        files[name] = file
        pending += _packages(name)
        if file.suffix == ".py":
            pending += _imported(name, file)
    return files


@cache
def _is_own(top: str) -> bool:
    """True for a top-level module that is neither ours, nor Python's, nor installed."""
    if top in (*PACKAGES, *sys.stdlib_module_names):
        return False
    file = _file_of(top)
    return file is None or not _is_installed(file)


def _packages(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _imported(name: str, file: Path) -> Iterator[str]:
    """Names that a file imports: modules, and names in modules."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    # By the syntax tree, which runs nothing; imports inside functions count as well. A module whose
    # name is computed is not seen.
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
    """The file of a module; None if there is no such module or it has no file. Nothing is imported
    to find it, the packages above it neither."""
    spec = _spec_of(name)
    origin = spec.origin if spec and spec.has_location else None
    return Path(origin).resolve() if origin else None


def _spec_of(name: str) -> ModuleSpec | None:
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    path, (above, _, last) = None, name.rpartition(".")
    if above:
        spec = _spec_of(above)
        if spec is None or spec.submodule_search_locations is None:
            return None
        path = [*spec.submodule_search_locations]
    # As `importlib.util.find_spec`, which would import the packages above.
    for finder in sys.meta_path:
        try:
            found = finder.find_spec(name, path)
        except KeyError:  # of a folder without __init__.py in a package that is not loaded
            found = ModuleSpec(name, None, is_package=True)
            found.submodule_search_locations = [f"{place}/{last}" for place in path or ()]
        if found is not None:
            return found
    return None


def _is_installed(file: Path) -> bool:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return {"site-packages", "dist-packages"} & {*file.parts} != set() or any(
        file.is_relative_to(Path(folder).resolve()) for folder in folders
    )
