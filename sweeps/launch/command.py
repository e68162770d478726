"""The command of a sweep: from its arguments to an exit code."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rank_core.errors import BadInput
from rank_core.lines import VisibleLog
from rank_core.secrets import redact_text
from sweeps.engine import EngineInterrupted, EngineLost
from sweeps.plan.experiment import Experiment
from sweeps.plan.flags import FLAGS
from sweeps.plan.options import Options, Preset, parse
from sweeps.terminal.command_line import heed_interrupts, run_command
from sweeps.terminal.text import print_error

if TYPE_CHECKING:
    from sweeps.launch.sweep import DryRun, Outcome

ENGINE_LOST = 1


class _Lines(VisibleLog):
    """The log in the style of `say`: news as plain lines, warnings with their name."""

    def format(self, record: logging.LogRecord) -> str:
        name = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return name + super().format(record)


def main(
    experiment: Experiment,
    argv: Sequence[str],
    *,
    doc: str | None,
    prog: str = "",
    preset: Preset | None = None,
) -> int:
    """Runs a sweep's command line and returns the exit code; `preset` are the flags of its file.

    Examples:
        >>> import ranksweep
        >>> chance = ranksweep.Grid(({"model.name": "bm25"},), baseline={"model.name": "random"})
        >>> experiment = ranksweep.Experiment(
        ...     name="chance",
        ...     question="Does BM25 rank better than chance?",
        ...     swept=("model.name",),
        ...     grid=lambda base, backbone: chance,
        ... )
        >>> words = ["--collection", "own_collection:notes", "--backbone", "tiny-docs", "--dry-run"]
        >>> ranksweep.main(experiment, words, doc="BM25 and chance")
        Does BM25 rank better than chance?
        ...
        0
    """

    leftovers: list[EngineInterrupted] = []

    def command() -> int:
        try:
            return launch(experiment, argv, doc=doc, prog=prog, preset=preset).code
        except EngineLost as error:
            print_error(f"{error}. Nothing is lost: the same command resumes")
            return ENGINE_LOST
        except EngineInterrupted as interrupt:
            leftovers.append(interrupt)
            raise

    code = run_command(command, interrupted="interrupted; the same command resumes")
    if leftovers:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    return code


def launch(
    experiment: Experiment,
    argv: Sequence[str],
    *,
    doc: str | None = None,
    prog: str = "",
    preset: Preset | None = None,
    callbacks: Sequence[object] = (),
) -> "Outcome":
    """The outcome of a sweep's command line. Raises `BadInput`, and `EngineLost` where the engine
    or the storage is gone for good."""
    options = _options(experiment, argv, doc=doc, prog=prog, preset=preset)
    options = replace(options, callbacks=tuple(callbacks))
    from sweeps.launch.sweep import run_sweep

    heed_interrupts()
    return run_sweep(experiment.called(options.name), options, list(argv))


def dry_run(
    experiment: Experiment,
    argv: Sequence[str],
    *,
    doc: str | None = None,
    prog: str = "",
    preset: Preset | None = None,
) -> "DryRun":
    """The plan of a sweep's command line and its forecast; nothing is launched or written. Raises
    `BadInput` where the command would."""
    options = _options(experiment, argv, doc=doc, prog=prog, preset=preset)
    from sweeps.launch.sweep import plan_sweep

    return plan_sweep(experiment.called(options.name), options)


def check(
    experiment: Experiment,
    argv: Sequence[str],
    *,
    doc: str | None = None,
    prog: str = "",
    preset: Preset | None = None,
) -> None:
    """Raises `BadInput` where `launch` would before a trial runs; writes nothing."""
    options = _options(experiment, argv, doc=doc, prog=prog, preset=preset)
    from sweeps.launch.sweep import run_sweep

    run_sweep(experiment.called(options.name), options, list(argv), check=True)


def _options(
    experiment: Experiment,
    argv: Sequence[str],
    *,
    doc: str | None,
    prog: str,
    preset: Preset | None,
) -> Options:
    """The options of a sweep's command line, without secrets; the log goes to stderr from here."""
    logged = logging.StreamHandler()
    logged.setFormatter(_Lines())
    logging.basicConfig(handlers=[logged], level=logging.WARNING)
    logging.getLogger("rank_core.cache").setLevel(logging.INFO)  # the first run takes minutes
    program = prog or f"{experiment.name}.py"
    options = parse(argv, prog=program, description=doc or "", preset=preset)
    flags = ("collection", "backbone", "model", "init_from", "storage")
    texts = {FLAGS[name].flag: getattr(options, name) or "" for name in flags}
    refuse_secrets(texts | {k: str(v) for k, v in (options.settings | options.grids).items()})
    return options


def refuse_secrets(settings: Mapping[str, str]) -> None:
    """Raises `BadInput` for a setting that holds a secret: settings identify a trial, and are
    stored, shown and sent to MLflow unchanged."""
    for name, text in settings.items():
        if redact_text(text) != text:
            raise BadInput(
                f"settings must not contain secrets, got {name}={text}; credentials belong in "
                "environment variables or the service's own credential files"
            )
