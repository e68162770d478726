"""Classes and functions of a notebook or a script, as `module:name`: workers import them from a
module in the cache that holds them by value (cloudpickle, as Ray does) with their source."""

import ast
import base64
import hashlib
import inspect
import linecache
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from rank_core.cache import cached_directory
from rank_core.errors import BadInput, shown
from rank_core.own_code import BY_VALUE, OBJECTS, see_by_value

_ENDS = "put it into a .py file and give module:name (docs/extending.md)"
_SCALARS = int | float | str | bytes | None
_TEMPLATE = '''"""{what}, sent to workers by value."""

import base64
import pickle
{imports}
{by_value} = {source!r}
{name} = pickle.loads(base64.b64decode({value!r}))
'''


def is_object(value: object) -> bool:
    """True for a class or a function."""
    return isinstance(value, type | FunctionType)


def reference_of(value: Any, what: str) -> str:
    """`module:name` of a class or a function, under which every process finds it; of one that no
    process can import, a new module in the cache. Raises `BadInput` where that ends: for what has
    no source, or cannot be pickled."""
    module, name = str(value.__module__), str(value.__qualname__)
    if module != "__main__" and name.isidentifier():
        if getattr(import_module(module), name, None) is value:
            return f"{module}:{name}"
    parts: dict[str, str] = {}
    modules: set[str] = set()
    for part, text in _sources(value, what, set(), modules):
        parts[part] = text
    source = "\n\n".join(parts[part] for part in sorted(parts))
    key = hashlib.sha256(f"{sys.version_info[:2]} {source}".encode()).hexdigest()[:12]
    own = f"notebook_{value.__name__}_{key}"

    def build(folder: Path) -> None:
        import cloudpickle  # comes with MLflow, which `compare` does not need

        try:
            pickled = cloudpickle.dumps(value)
        except Exception as error:
            raise BadInput(
                f"{what} {value.__name__} is sent to workers by value, and cannot be pickled: "
                f"{error}; {_ENDS}"
            ) from None
        text = _TEMPLATE.format(
            what=f"{value.__name__} of a notebook or a script",
            imports="".join(f"import {module}\n" for module in sorted(modules)),
            by_value=BY_VALUE,
            source=source,
            name=value.__name__,
            value=base64.b64encode(pickled).decode("ascii"),
        )
        (folder / f"{own}.py").write_text(text, encoding="utf-8")

    folder = cached_directory(OBJECTS, own, build)
    see_by_value(own)
    # This process has the object itself, in which a debugger stops.
    spec = spec_from_file_location(own, folder / f"{own}.py")
    assert spec is not None
    here = module_from_spec(spec)
    vars(here).update({value.__name__: value, BY_VALUE: source})
    sys.modules[own] = here
    return f"{own}:{value.__name__}"


def _sources(value: Any, what: str, seen: set[int], modules: set[str]) -> Iterator[tuple[str, str]]:
    """(name, source) of a class or a function and of all that it uses of its own module; `modules`
    gets the names of the modules that it uses."""
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value.__qualname__, _source(value, what)
    functions = [value]
    if isinstance(value, type):
        members = [getattr(member, "__func__", member) for member in vars(value).values()]
        members += [member.fget for member in members if isinstance(member, property)]
        functions = [member for member in members if isinstance(member, FunctionType)]
        for base in value.__bases__:
            if base.__module__ == value.__module__:
                yield from _sources(base, what, seen, modules)
    for function in functions:
        for name, used in _used(function):
            if isinstance(used, ModuleType):
                modules.add(used.__name__)
            elif is_object(used) and used.__module__ == value.__module__:
                yield from _sources(used, what, seen, modules)
            elif hasattr(used, "__module__") and is_object(used):
                modules.add(used.__module__)
            else:
                yield name, f"{name} = {_constant(used)}"


def _used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The values of a function's module, and of functions around it, that it uses, by name."""
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        if name != "__class__":
            yield name, cell.cell_contents


def _names(code: CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names}.union(*map(_names, inner))


def _constant(value: object) -> str:
    """A text that identifies a value, the same one in every process."""
    if isinstance(value, _SCALARS):
        return repr(value)
    try:
        return _digest(_canonical(value).encode("utf-8", "surrogatepass"))
    except RecursionError:  # a list that holds itself
        return _pickled(value)


def _canonical(value: object) -> str:
    """A text of a value. The order of a set is that of its members' texts: its own depends on the
    process."""
    if isinstance(value, _SCALARS):
        return repr(value)
    if isinstance(value, dict):
        members = [f"{_canonical(key)}: {_canonical(of)}" for key, of in value.items()]
    elif isinstance(value, list | tuple):
        members = [_canonical(member) for member in value]
    elif isinstance(value, set | frozenset):
        members = sorted(map(_canonical, value))
    elif is_object(value) and _is_main(value):
        return _whole_source(value)
    elif _is_main(type(value)) and hasattr(value, "__dict__"):
        facts = value.name if isinstance(value, Enum) else _canonical(vars(value))
        return f"{_whole_source(type(value))}\n{facts}"
    else:
        return _pickled(value)
    return f"{type(value).__name__}({', '.join(members)})"


def _is_main(value: Any) -> bool:
    """True for a class or a function of the script or notebook itself, whose pickle differs between
    processes."""
    return bool(value.__module__ == "__main__")


def _whole_source(value: Any) -> str:
    """The source of a class or a function and of all that it uses of its own module."""
    parts = dict(_sources(value, "object", set(), set()))
    return "\n\n".join(parts[name] for name in sorted(parts))


def _pickled(value: object) -> str:
    import cloudpickle

    try:
        return _digest(cloudpickle.dumps(value))
    except Exception:
        return shown(value)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _source(value: Any, what: str) -> str:
    try:
        return textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError):
        pass
    # A class of a cell: Python 3.11 looks for it in the file of its module, which is none.
    members = vars(value).values() if isinstance(value, type) else ()
    functions = [getattr(member, "__func__", member) for member in members]
    for function in functions:
        if isinstance(function, FunctionType):
            text = "".join(linecache.getlines(function.__code__.co_filename))
            if segment := _class_in(text, value.__name__):
                return segment
    raise BadInput(
        f"the source of {what} {value.__name__} cannot be read, which names its trials; {_ENDS}"
    )


def _class_in(text: str, name: str) -> str:
    """The source of a class in the text of a cell; the last one of that name."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return ""
    found = [
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name
    ]
    return (ast.get_source_segment(text, found[-1]) or "") if found else ""
