"""The one place that starts other processes. A child gets no working directory on its path, so that
no folder that a command was typed in lends it a module, and an environment without secrets.

`tests/architecture/test_doors.py` finds every other way to start one.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from rank_core.parsing import parsed_json
from rank_core.secrets import holds_a_secret

T = TypeVar("T")
NOTHING: Mapping[str, str] = MappingProxyType({})
NEUTRAL = Path(sysconfig.get_path("stdlib"))
"""Where a child begins: a folder that is on its path already, because some programs (uvicorn) put
the working directory there whatever Python was told."""


class OverLimit(Exception):
    """The error of a bounded child that used too much, or that ended otherwise."""


def python(*words: str, alone: bool = False) -> list[str]:
    """The command that runs this Python without the working directory on its path; `alone`: with
    the standard library only, and without variables of the environment."""
    return [sys.executable, *(("-I", "-S") if alone else ("-P",)), *words]


def run(
    command: Sequence[str],
    *,
    keeps: Sequence[str] = (),
    more: Mapping[str, str] = NOTHING,
    **how: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` of a child; `keeps` and `more` as in `environment`. Paths in the command are
    absolute."""
    return subprocess.run(command, **_settings(keeps, more, how))


def start(
    command: Sequence[str],
    *,
    keeps: Sequence[str] = (),
    more: Mapping[str, str] = NOTHING,
    **how: Any,
) -> subprocess.Popen[Any]:
    """`subprocess.Popen` of a child; `keeps` and `more` as in `environment`."""
    return subprocess.Popen(command, **_settings(keeps, more, how))


def _settings(keeps: Sequence[str], more: Mapping[str, str], how: dict[str, Any]) -> dict[str, Any]:
    if "input" not in how:
        how.setdefault("stdin", subprocess.DEVNULL)
    return {"cwd": NEUTRAL, "env": {**environment(keeps), **more}} | how


def environment(keeps: Sequence[str] = ()) -> dict[str, str]:
    """This process's environment for a child: without secrets, but for variables whose name begins
    with one of `keeps`; Python's path is this process's without the working directory."""
    known = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(tuple(keeps)) or not holds_a_secret(name, value)
    }
    path = [os.path.abspath(p) for p in sys.path if not _is_here(p) or _holds_us(p)]
    return known | {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(path)}


def _is_here(folder: str) -> bool:
    return os.path.realpath(folder) == os.path.realpath(os.curdir)


def _holds_us(folder: str) -> bool:
    """True for the checkout that this package is in, whose modules run here already."""
    return os.path.realpath(folder) == os.path.realpath(Path(__file__).parents[1])


def in_new_process(function: Callable[[], T], first: Callable[[], None] | None = None) -> T:
    """What a function gives in a fresh process of this program, after `first`. It computes for the
    same user as this process, and reads what this one may read: its environment is the same."""
    context = get_context("spawn")
    with _safe_path(), ProcessPoolExecutor(1, mp_context=context, initializer=first) as pool:
        return pool.submit(function).result()


@contextmanager
def _safe_path() -> Iterator[None]:
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # `multiprocessing` starts Python itself
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


_BOUNDS = """
import json, resource, sys
given = json.load(sys.stdin)
def bound():
    resource.setrlimit(resource.RLIMIT_AS, (given["bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (given["seconds"],) * 2)
"""


def bounded(script: str, values: Mapping[str, Any], *, seconds: int, memory: int) -> Any:
    """What a script prints in JSON in a process that may use `seconds` of a processor and `memory`
    bytes of addresses from its call of `bound()` on; it has `values` as `given`. Raises `OverLimit`
    where it ends without."""
    given = {**values, "bytes": memory, "seconds": seconds}
    try:
        ended = run(
            python("-c", _BOUNDS + script),
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=3 * seconds,
            check=True,
        )
        return parsed_json(ended.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        raise OverLimit(str(error)) from None
