"""The parsing of a command line, and the exit code of its command."""

import argparse
import io
import math
import os
import re
import select
import shutil
import signal
import stat
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EDQUOT, EIO, ENOENT, ENOSPC, ENOTDIR
from functools import partial
from inspect import cleandoc
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Any, NoReturn

from rank_core.errors import BadInput, nearest, not_installed, shown
from rank_core.files import shown_path
from rank_core.settings.config import setting_aliases, setting_types
from sweeps.plan.terminal import print_error

SWEEP_EXTRA = (
    "torch", "transformers", "tokenizers", "safetensors", "ray", "mlflow", "optuna", "pytest"
)  # fmt: skip
"""Packages of the extra `sweep`, which comparing runs does not need."""
_UNRECOGNIZED = "unrecognized arguments: "  # argparse's words
INTERPOLATE = ("best", "all", "none")
"""Cells with a row interpolated with the first stage; best: the baseline and the best on dev."""
BAD_INPUT, INTERRUPTED, UNREAD = 2, 130, 141  # exit codes; 141: the output was closed
_DEFAULTS = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,  # ignored under nohup
}


SCRIPT = "ranksweep"  # the installed command for `python -m sweeps`


def program() -> list[str]:
    """The words that begin a command in the reader's shell: the installed script, on the path or
    beside the interpreter, or the module of a checkout."""
    beside = Path(sys.orig_argv[0]).with_name(SCRIPT)
    if shutil.which(SCRIPT):
        return [SCRIPT]
    return [str(beside)] if beside.is_file() else [sys.orig_argv[0], "-m", "sweeps"]


def typed_command(sweep: str, argv: Sequence[str]) -> list[str]:
    """The command line of this process if it ends with `argv`; else, for a call from a program, an
    equivalent one."""
    rest, arguments = sys.argv[1:], list(argv)
    if rest != arguments and (rest[:1] != ["run"] or rest[2:] != arguments):
        return [*program(), "run", sweep, *arguments]
    first, *words = sys.orig_argv
    if words and Path(words[0]).name == SCRIPT:  # its first line names the interpreter
        first, *words = words
        first = SCRIPT if shutil.which(SCRIPT) == first else first
    return [first, *words]


def end_at_interrupts() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP end this process at once while it imports libraries, some of
    which raise other errors when interrupted."""
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) is default:
            signal.signal(number, _end)


def heed_interrupts() -> None:
    """Let Ctrl-C, SIGTERM (`kill`, `docker stop`, Kubernetes) and SIGHUP (a closed terminal) raise
    `KeyboardInterrupt`, and again where Python ignores what is raised (in a `__del__`)."""
    if threading.current_thread() is threading.main_thread():
        for number, default in _DEFAULTS.items():
            if signal.getsignal(number) in (_end, default):
                hangs_up = number == signal.SIGHUP
                signal.signal(number, _hang_up if hangs_up else signal.default_int_handler)
                sys.unraisablehook = partial(_unraisable, number)


def _hang_up(signum: int, frame: FrameType | None) -> None:
    """Interrupts; lines for a closed terminal go nowhere, or their error would end the command."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a stream without a file
            handle = stream.fileno()
            if not os.isatty(handle) and stat.S_ISCHR(os.fstat(handle).st_mode):
                os.dup2(os.open(os.devnull, os.O_WRONLY), handle)
    raise KeyboardInterrupt


def _unraisable(number: int, ignored: "sys.UnraisableHookArgs") -> None:
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        again = threading.Timer(0.01, os.kill, (os.getpid(), number))  # after this hook's end
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(ignored)


def _end(signum: int, frame: FrameType | None) -> None:
    os.write(sys.stderr.fileno(), b"interrupted; nothing had begun\n")
    os._exit(INTERRUPTED)


def run_command(command: Callable[[], int], *, interrupted: str = "interrupted") -> int:
    """The exit code of a command: its own, or that of bad input, Ctrl-C or a closed output (`|
    head`). The command can import modules of the working directory, as with `python -m`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # ASCII or Latin-1 lacks some of our characters
            stream.reconfigure(errors="replace")
    try:
        try:
            _add_working_directory()
            return command()
        finally:
            sys.stdout.flush()
    except BadInput as error:
        print_error(str(error))
        return BAD_INPUT
    except ModuleNotFoundError as error:
        if error.name not in SWEEP_EXTRA:
            raise
        print_error(str(not_installed(error.name, "sweep")))
        return BAD_INPUT
    except UnicodeEncodeError as error:  # a name whose bytes are no UTF-8
        if error.reason != "surrogates not allowed":
            raise
        name = shown_path(error.object)
        print_error(
            str(BadInput(f"names must be UTF-8 here, got {name}: rename the file or folder"))
        )
        return BAD_INPUT
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        state = select.poll()  # of standard output, a pipe without a reader
        state.register(1, 0)
        if not any(event & select.POLLERR for _, event in state.poll(0)):
            raise  # a socket's
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python writes the rest at its end
        return UNREAD
    except OSError as error:
        if error.filename is None and error.errno not in (ENOSPC, EDQUOT, EIO):
            raise
        place = f"{error.filename}: " if error.filename else ""
        print_error(str(BadInput(f"{place}{error.strerror}")))  # shortens overlong words
        return BAD_INPUT


def _add_working_directory() -> None:
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise BadInput("the working directory was removed: change to another one") from None
    if not {"", here} & {*sys.path}:
        sys.path.append(here)


def check_writable(name: str, folder: Path) -> None:
    """Refuse a folder that cannot be made or written, before any work, and leave no trace."""
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with TemporaryFile(dir=existing):
            pass
    except OSError as error:
        known = {ENOTDIR: "a file is there, not a folder", ENOENT: "it cannot be created"}
        why = known.get(error.errno or 0, error.strerror)
        raise BadInput(f"{name} must be a writable folder, got {folder}: {why}") from None


class _Once(argparse.Action):
    """An action that refuses a repeated flag."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given = vars(namespace).setdefault("given", set())
        if self.dest in given:
            parser.error(f"a flag is given once, got {option_string} twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class _Formatter(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap paragraphs, labelled ones (`Paper: ...`) and indented items separately."""
        blocks = [""]
        for line in text.splitlines():
            starts = not line.strip() or re.match(r"[A-Z]\w+: |  \S", line)
            if starts or not blocks[-1] or (blocks[-1][:1] == " ") > (line[:1] == " "):
                blocks.append(line)
            else:
                blocks[-1] += f" {line.strip()}"
        return "\n".join(
            textwrap.fill(block, width, subsequent_indent="    " * (block[:1] == " "))
            for block in blocks[1:]
        )


def _finite(text: str) -> float:
    """The number of any flag with `type=float`."""
    with suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise argparse.ArgumentTypeError(f"a finite number is needed, got {shown(text)}")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `BadInput`: one message, exit code 2."""

    def __init__(self, prog: str, description: str | None = None, **more: Any) -> None:
        text = cleandoc(description or "")
        super().__init__(prog, description=text, formatter_class=_Formatter, **more)
        self.register("action", None, _Once)
        self.register("type", float, _finite)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse `--flag=--`, which argparse reads as no value."""
        values = super()._get_values(action, arg_strings)
        if values == [] and action.nargs is None:
            self.error(f"argument {'/'.join(action.option_strings)}: expected a value")
        return values

    def error(self, message: str) -> NoReturn:
        """Raise `BadInput`; for an unknown flag with the similar flag or setting."""
        if message.startswith(_UNRECOGNIZED):
            words = message.removeprefix(_UNRECOGNIZED).split()
            flag = next((word for word in words if word.startswith("-")), words[0])
            message = f"unknown flag {shown(flag)}{self._suggestion(flag.partition('=')[0])}"
        raise BadInput(f"{message}; `{self.prog} --help` lists the flags")

    def _suggestion(self, flag: str) -> str:
        settings = any(action.dest == "settings" for action in self._actions)
        leaf = flag.lstrip("-").replace("-", "_")
        own = [name for name in setting_types() if name.rpartition(".")[2] == leaf]
        if settings and (called := setting_aliases().get(leaf) or own[:1]):
            return f": use {' and '.join(f'{name}=...' for name in called)}"
        near = nearest(flag, self._option_string_actions, 1, cutoff=0.6)
        return f"; did you mean {near[0]}?" if near else ""
