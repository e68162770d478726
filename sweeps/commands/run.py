"""`ranksweep run`: a sweep by its name, or the user's own from a file."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from rank_core.errors import BadInput, unknown
from rank_core.lines import put
from rank_core.own_code import import_own
from sweeps.commands.known import sweep_names
from sweeps.launch.command import check as check_experiment
from sweeps.launch.command import main as run_experiment
from sweeps.plan.experiment import Experiment
from sweeps.plan.options import Preset, parse, sweep_parser
from sweeps.plan.reference import PREFIX, TWIN, reference_file, references
from sweeps.plan.toml_sweep import read_toml_sweep
from sweeps.plan.twin import twin
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import sweep_on
from sweeps.terminal.command_line import Parser
from sweeps.terminal.text import wrapped

USAGE = """usage: ranksweep run SWEEP [flags] [section.setting=value ...]

{sweeps}

{references}

SWEEP may also be a file, my_sweep.toml or my_sweep.py with an EXPERIMENT:
docs/extending.md. `ranksweep run SWEEP --help` lists the flags.
With several --collection NAME it runs on each, then prints their joint table."""


def main(argv: Sequence[str]) -> int:
    """Run a sweep and return its exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        names = ", ".join(f"{PREFIX}{name}" for name in references())
        known = wrapped(f"With published values: {names}; {PREFIX}NAME/{TWIN} is a small copy.")
        sweeps = wrapped(f"SWEEP is {', '.join(sweep_names())}.")
        put(USAGE.format(sweeps=sweeps, references=known))
        return 0 if argv else 2
    name, *rest = argv
    if name.startswith("-"):
        raise BadInput(f"the name or file of a sweep comes before its flags, got {name}")
    found = sweep_of(name)
    if isinstance(found, ModuleType):
        return int(found.main(rest))
    experiment, doc, preset = found
    words: dict[str, Any] = {"doc": doc, "prog": f"ranksweep run {name}", "preset": preset}
    if sum(word.partition("=")[0] == "--collection" for word in rest) < 2:
        return run_experiment(experiment, rest, **words)
    return _run_on_each(experiment, rest, words)


def parser() -> Parser:
    """The words of a sweep from a grid; `scaling` and `positional_bias` have other flags."""
    return sweep_parser("ranksweep run", "Run a sweep.", named=True)


def _run_on_each(experiment: Experiment, argv: Sequence[str], words: dict[str, Any]) -> int:
    """The exit code of the first sweep that does not end well, or of their joint table. The sweeps
    on all collections are checked before any trial starts; `words` are those of
    `run_experiment`."""
    from rank_core.data.load import load_collection
    from sweeps.commands.compare.command import main as compare

    lists = ArgumentParser(add_help=False, allow_abbrev=False)
    lists.add_argument("--collection", action="append")
    given, rest = lists.parse_known_args(argv)
    if twice := [name for name in given.collection if given.collection.count(name) > 1]:
        raise BadInput(f"--collection names a collection once, got {twice[0]!r} twice")
    commands = [[*rest, "--collection", name] for name in given.collection]
    preset = words["preset"]
    options = [parse(one, prog=words["prog"], description="", preset=preset) for one in commands]
    loaded = [load_collection(one.collection or "") for one in options]
    for name, one in () if options[0].dry_run else zip(given.collection, commands, strict=True):
        try:
            check_experiment(experiment, one, **words)
        except BadInput as error:
            raise BadInput(f"--collection {name}: {error}") from None
    for one in commands:
        if code := run_experiment(experiment, one, **words):
            return code
    if options[0].dry_run or options[0].prepare:
        return 0
    name = experiment.called(options[0].name).name
    sweeps = Records(Storage(options[0].storage), name)
    clusters = str(options[0].tests.clusters)
    more = ["--clusters", clusters] if clusters else []
    return compare([*(sweep_on(sweeps, collection).uri for collection in loaded), *more])


def sweep_of(name: str) -> tuple[Experiment, str | None, Preset | None] | ModuleType:
    """The experiment of a sweep's name or file, its description and the flags of its file; or the
    module of one that has a command line of its own and trains no trials."""
    path, is_twin = Path(name), False
    if name.startswith(PREFIX):
        path, is_twin = reference_file(name)
    if path.suffix == ".toml":
        experiment, preset = read_toml_sweep(path)
        if is_twin:
            experiment, flags = twin(experiment)
            preset = replace(preset, flags={**preset.flags, **flags})
        _see_modules_beside(path)
        return experiment, experiment.question, preset
    if path.suffix != ".py" and name not in sweep_names():
        names = unknown("sweep", name, sweep_names())
        raise BadInput(f"{names}; or a file: my_sweep.toml, my_sweep.py")
    module = _of_file(path) if path.suffix == ".py" else import_module(f"sweeps.{name}")
    if not hasattr(module, "EXPERIMENT"):
        return module
    file = str(path) if path.suffix == ".py" else ""
    return replace(module.EXPERIMENT, file=file), module.__doc__, None


def _of_file(path: Path) -> ModuleType:
    """The module of a file, imported as in workers."""
    if not path.is_file():
        problem = "is a folder" if path.exists() else "does not exist"
        raise BadInput(f"{path} {problem}; name a sweep's file")
    _see_modules_beside(path)
    module = import_own(path.stem, str(path))
    if Path(str(module.__file__)).resolve() != path.resolve():
        raise BadInput(f"{path}: another module is called {path.stem}; rename the file")
    if not isinstance(getattr(module, "EXPERIMENT", None), Experiment):
        raise BadInput(f"{path} must define EXPERIMENT = Experiment(...)")
    return module


def _see_modules_beside(path: Path) -> None:
    """Make the modules of a file's folder importable, as `python FILE` does."""
    sys.path.insert(0, str(path.resolve().parent))
