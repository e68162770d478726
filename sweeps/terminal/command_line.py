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
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EDQUOT, EIO, ENOENT, ENOSPC, ENOTDIR
from functools import partial
from importlib.machinery import PathFinder
from inspect import cleandoc
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Any, NoReturn

from rank_core.errors import BadInput, nearest, not_installed, shown
from rank_core.files import shown_path
from rank_core.home import NO_HOME, has_home, lend_home
from rank_core.lines import beside, show_log
from rank_core.own_code import PACKAGES, see_modules_of
from rank_core.settings.config import setting_aliases, setting_types
from sweeps.terminal.text import print_error

SWEEP_EXTRA = (
    *("torch", "transformers", "tokenizers", "safetensors", "sentence_transformers"),
    *("ray", "mlflow", "optuna", "pytest"),
)
"""Packages of the extra `sweep`, which comparing runs does not need."""
_UNRECOGNIZED = "unrecognized arguments: "  # argparse's words
CORRECT_OVER_HELP = (
    "correct p over the comparisons of a measure with a baseline, or over all of the table: "
    "measures, letters, collections"
)
INTERPOLATE = ("best", "all", "none")
"""Cells with a row interpolated with the first stage; best: the baseline and the best on dev."""
CLUSTERS_HELP = (
    "clusters of queries whose scores may be correlated: a file of query_id and cluster, auto "
    "(queries that share relevant documents), or group (the field group of the queries)"
)
CLUSTERS_OF = "FILE|auto|group"
TIES_HELP = (
    "equal scores of a run rank as trec_eval sorts them, by descending document id in single "
    "precision, or by ascending doc_id (default: %(default)s)"
)
VERBOSE = "also print the details: test, correction, seeds, unjudged documents"
BAD_INPUT, INTERRUPTED, UNREAD = 2, 130, 141  # exit codes; 141: the output was closed
OUTSIDE_BRACKETS = re.compile(r",(?![^(]*\))")  # commas of a|debias(seed=1,parts=3) are its own
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/+(?P<rest>.*)")
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
    os.write(sys.stderr.fileno(), b"interrupted before anything started\n")
    os._exit(INTERRUPTED)


def run_command(command: Callable[[], int], *, interrupted: str = "interrupted") -> int:
    """The exit code of a command: its own, or that of bad input, Ctrl-C or a closed output (`|
    head`). A user's code that the command names is found in the working directory as well."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # ASCII or Latin-1 lacks some of our characters
            stream.reconfigure(errors="replace")
    try:
        try:
            lend_home()
            show_log()
            _see_working_directory()
            return command()
        finally:
            sys.stdout.flush()
    except BadInput as error:
        print_error(str(error))
        return BAD_INPUT
    except (ImportError, AttributeError) as error:
        if stands_in := _stands_in_for_a_library(error):
            print_error(
                f"{stands_in} stands in for the library of that name, which breaks "
                f"({type(error).__name__}: {error}): rename it, or start in another folder"
            )
            return BAD_INPUT
        if not isinstance(error, ModuleNotFoundError) or error.name not in SWEEP_EXTRA:
            raise
        print_error(str(not_installed(error.name, "sweep")))
        return BAD_INPUT
    except ValueError as error:
        if not (text := _of_environment(error)):
            raise
        print_error(text)
        return BAD_INPUT
    except RuntimeError:  # pathlib's, for which it has no class
        if has_home():
            raise
        print_error(NO_HOME)
        return BAD_INPUT
    except KeyboardInterrupt:
        beside(interrupted)
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


def _open_closed_streams() -> None:
    """Opens standard streams that a shell has closed (`>&-`): Python has None in their places, and
    the next file that is opened would have their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            while os.open(os.devnull, os.O_RDWR) < number:
                pass
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))


def _of_environment(error: ValueError) -> str:
    """What a name whose bytes are no UTF-8, or a variable of matplotlib, broke; "" for others."""
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        name = shown_path(error.object)
        return str(BadInput(f"names must be UTF-8 here, got {name}: rename the file or folder"))
    if str(error).startswith("Key backend:"):
        backend = shown(os.environ.get("MPLBACKEND", ""))
        return f"MPLBACKEND={backend} is no backend of matplotlib; none is needed: unset it"
    return ""


def _see_working_directory() -> None:
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise BadInput("the working directory was removed: change to another one") from None
    see_modules_of(here)


def _stands_in_for_a_library(error: Exception) -> str:
    """The module of the working directory that was imported although Python or an installed package
    has one of that name, as with `python -m`; "" for none."""
    here = Path.cwd()
    others = [folder for folder in sys.path if folder and Path(folder).absolute() != here]
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    files += [str(getattr(module, "__file__", "")) for module in [*sys.modules.values()]]
    for path in (Path(file) for file in files):
        # An environment may be a folder of the project, and have the name `venv`.
        if not path.is_relative_to(here) or path.is_relative_to(sys.prefix):
            continue
        first = path.relative_to(here).parts[0]
        name = first.removesuffix(".py")
        if name in (*PACKAGES, SCRIPT) or not name.isidentifier():
            continue
        found = PathFinder.find_spec(name, others)
        if name in sys.stdlib_module_names or (found and found.origin):
            return str(here / first)
    return ""


def check_writable(name: str, folder: Path) -> None:
    """Refuse a folder that cannot be made or written, before any work, and leave no trace; a URI
    would become a folder called `s3:` in the working directory."""
    if uri := _URI.match(str(folder)):
        raise BadInput(
            f"{name} must be a folder of this machine, got {uri['scheme']}://{uri['rest']}"
        )
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with TemporaryFile(dir=existing):
            pass
    except OSError as error:
        known = {ENOTDIR: "a file is there, not a folder", ENOENT: "it cannot be created"}
        why = known.get(error.errno or 0, error.strerror)
        raise BadInput(f"{name} must be a writable folder, got {folder}: {why}") from None


@dataclass(frozen=True)
class Need:
    """What a flag needs to have an effect: another flag or argument of the same command, with one
    of these values if there are any; `without`: that it is not given, or has another value."""

    name: str  # in Python: `num_seeds`
    values: tuple[Any, ...] = ()
    without: bool = False

    def holds(self, args: argparse.Namespace) -> bool:
        """True for a command line with what is needed."""
        value = vars(args)[self.name]
        values = value if isinstance(value, list | tuple) and self.values else [value]
        there = any(own in self.values for own in values) if self.values else bool(value)
        return there != self.without

    def text(self, flag: str) -> str:
        """`needs --register`."""
        value = f" {' or '.join(map(str, self.values))}" if self.values else ""
        return f"{'has no effect with' if self.without else 'needs'} {flag}{value}"


def needing(action: argparse.Action, *needs: Need, may_be_empty: bool = False) -> None:
    """Declares what a flag needs, and whether an empty text is a value of it."""
    vars(action).update(needs=needs, may_be_empty=may_be_empty)


def _note(
    action: argparse.Action,
    parser: argparse.ArgumentParser,
    namespace: argparse.Namespace,
    flag: Any,
) -> None:
    """Remembers a given flag, and refuses it the second time."""
    given: dict[str, None] = vars(namespace).setdefault("given", {})  # in their order
    if action.dest in given:
        parser.error(f"'{flag}' is given twice; give it once")
    given[action.dest] = None


class _Once(argparse.Action):
    """An action that refuses a repeated flag."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        _note(self, parser, namespace, option_string)
        setattr(namespace, self.dest, values)


class _Switch(argparse._StoreTrueAction):
    """The same of a flag without a value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        _note(self, parser, namespace, option_string)
        super().__call__(parser, namespace, values, option_string)


class _Append(argparse._AppendAction):
    """An action of a flag that may be repeated, with another value each time."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if values in vars(namespace)[self.dest]:
            parser.error(f"{option_string} names each once, got {shown(values)} twice")
        vars(namespace).setdefault("given", {})[self.dest] = None
        super().__call__(parser, namespace, values, option_string)


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


def _name_of(action: argparse.Action) -> str:
    """The flag, or the name of an argument in the help."""
    return action.option_strings[0] if action.option_strings else str(action.metavar or action.dest)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `BadInput`: one message, exit code 2."""

    def __init__(self, prog: str, description: str | None = None, **more: Any) -> None:
        text = cleandoc(description or "")
        super().__init__(
            prog, description=text, formatter_class=_Formatter, allow_abbrev=False, **more
        )
        self.register("action", None, _Once)
        self.register("action", "store_true", _Switch)
        self.register("action", "append", _Append)
        self.register("type", float, _finite)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse `--flag=--`, which argparse reads as no value, and an empty text."""
        if "" in arg_strings and not vars(action).get("may_be_empty"):
            self.error(f"argument {_name_of(action)}: expected a value, got an empty one")
        values = super()._get_values(action, arg_strings)
        if values == [] and action.nargs is None:
            self.error(f"argument {'/'.join(action.option_strings)}: expected a value")
        return values

    def parse_args(self, *words: Any, **more: Any) -> Any:
        """The arguments; raises `BadInput`, also for a flag without effect."""
        return self._with_effect(super().parse_args(*words, **more))

    def parse_intermixed_args(self, *words: Any, **more: Any) -> Any:
        """The same, with positional arguments anywhere."""
        return self._with_effect(super().parse_intermixed_args(*words, **more))

    def _with_effect(self, args: argparse.Namespace) -> argparse.Namespace:
        """Refuse a given flag without what it needs."""
        names = {action.dest: _name_of(action) for action in self._actions}
        for action in self._actions:
            if action.dest not in vars(args).get("given", ()):
                continue
            for need in vars(action).get("needs", ()):
                if not need.holds(args):
                    self.error(f"'{names[action.dest]}' {need.text(names[need.name])}")
        return args

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
