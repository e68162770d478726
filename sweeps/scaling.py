"""How much faster do training and validation run with more workers?

Paper: none; the question is about machines, not about ranking.
Cells: one configuration (MaxP, without dropout) and one seed, trained by Ray Train on 1, 2, 4, ...
workers, GPUs or CPU processes. The global batch is the same for all, so that a number of workers
changes the speed alone: in fp32 the loss curves must be equal within rounding, which is checked; in
half precision their difference is reported.
Size: for each number of workers three groups of fresh processes (`--repeats`), and in each six
epochs of five steps, each followed by a validation. Rates are medians over the epochs after the
first (`training.num_epochs`, `training.epoch_steps`), intervals are over the processes. What a
group measured is kept when it ends; the same command measures what is missing. With `--weak` each
number of workers is measured a second time, with the batch of one worker for each of them.
A second table says what a step is made of, in the last epoch: `data` is waiting for a batch,
`compute` passes and update, `all-reduce` the sum of gradients that the backward pass did not hide,
`waiting` that for the slowest worker. MFU is the share of a GPU's dense bf16 rate, if it is known.
Expected: the speed-up is below the ideal line, further below it for a smaller batch or backbone.
Workers add up gradients once per optimiser step, 4 bytes a trained parameter, during the backward
pass of their last micro-batch; within micro-batches no worker waits. They share a batch by its
tokens. In validation they share the queries and gather the scores once, at the end; each then
computes the measures of the whole run, a serial part that matters for small models alone.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import sweeps  # noqa: F401 - first: Ctrl-C is quiet while the others are imported
from rank_core.chunking.inputs import Inputs, cell_of, load_inputs
from rank_core.errors import BadInput
from rank_core.machine import versions
from rank_core.models import model_class
from rank_core.models.checks import check_model
from rank_core.models.ranker import Ranker
from rank_core.models.reading import ignored_settings
from rank_core.own_code import travelling
from rank_core.secrets import redact, redact_text
from rank_core.settings.config import TrialConfig
from rank_core.training.train import num_training_steps, validation_interval
from rank_core.trial.trial import own_paths, portable_config
from sweeps.forecast.elsewhere import shape_of
from sweeps.launch.sweep import check_storage, copied_to_mlflow
from sweeps.plan.experiment import Experiment, Grid, model_and_windows, suited
from sweeps.plan.flags import FLAGS, add_flags
from sweeps.plan.make_plan import base_config
from sweeps.plan.options import Options, add_settings, check_gpus, parse
from sweeps.plan.resources import Resources
from sweeps.ray_engine.cluster import connected, trial_resources
from sweeps.ray_engine.train_group import GroupFailed, Timed, timed
from sweeps.speedup.kept import Kept, identity
from sweeps.speedup.report import (
    FILES,
    QUESTION,
    advice,
    group_values,
    losses_text,
    mixed_devices,
    same_losses,
    scaling_rows,
    tables_text,
    write_scaling,
)
from sweeps.store.lock import only_driver
from sweeps.store.records import SCALING, Records
from sweeps.store.storage import Storage
from sweeps.terminal.command_line import Parser, heed_interrupts, run_command
from sweeps.terminal.text import numbered, say, wrapped
from sweeps.tracking.client import tracking_uri_of
from sweeps.tracking.group_runs import GroupRuns
from sweeps.tracking.thread import MlflowThread
from sweeps.tracking.trial_run import experiment_id

CONFIGURATION = Experiment(
    name="scaling",
    question=QUESTION,
    swept=(),
    grid=lambda base, backbone: Grid(points=({},), baseline={}),
    label=model_and_windows,
    defaults={"model.dropout": 0.0, "training.epoch_steps": 5, "training.num_epochs": 6},
)
SMOKE = {"training.epoch_steps": 1, "training.num_epochs": 2}
SHARED = (
    *("collection", "backbone", "model", "profile", "seeds", "engine", "cpus_per_worker"),
    *("gpus_per_worker", "accelerator", "storage", "smoke_test", "tracking_uri"),
    "experiment_prefix",
)
"""Flags of the other sweeps that this one has."""
REST = "The same command measures nothing twice and sends the rest."


def main(argv: Sequence[str]) -> int:
    """Measure, print the table, write the files, and return the exit code (3: losses differ, or
    some workers failed)."""
    heed_interrupts()
    return run_command(
        lambda: _scale(parser().parse_intermixed_args(list(argv))),
        interrupted="interrupted: what each group measured is kept; the same command goes on",
    )


def parser() -> Parser:
    """The arguments and flags of `ranksweep run scaling`."""
    parser = Parser("ranksweep run scaling", __doc__)
    few = "numbers of workers (default: 1, 2, 4, ... as far as the cluster goes)"
    parser.add_argument("--num-workers", metavar="1,2,4", help=few)
    help = "groups of fresh processes for each number of workers (default: 3; 1 in a smoke test)"
    parser.add_argument("--repeats", metavar="N", help=help)
    help = "also measure n workers with n times the batch: the work of each stays the same"
    parser.add_argument("--weak", action="store_true", help=help)
    add_flags(parser, SHARED)
    add_settings(parser)
    return parser


def _scale(args: argparse.Namespace) -> int:
    options = _options(args)
    records = Records(Storage(options.storage), SCALING)
    check_storage(records, options)
    tracking_uri = tracking_uri_of(records, options.tracking_uri)
    repeats = _repeats(args.repeats, options)
    numbers = _numbers(args.num_workers)
    check_gpus(options.gpus_per_worker, num_workers=max(numbers, default=2))
    config = _configuration(options, most=max(numbers, default=1))
    with connected(1, travelling(own_paths(config))):
        groups = _groups(numbers, options, config.training.batch_size)
        records.storage.open()
        experiment = experiment_id(options.experiment_prefix, records.sweep, records.identity)
        thread = MlflowThread(records, tracking_uri, experiment, GroupRuns)
        with only_driver(records), copied_to_mlflow(thread, rest=REST) as mlflow:
            inputs = load_inputs(config.collection, config.model.backbone)
            tasks = [Task(group, config, inputs, records) for group in groups]
            if args.weak:
                tasks += [task.weak() for task in tasks if task.group.num_workers > 1]
            shape = shape_of(inputs.backbone.folder)
            operations = shape.operations if shape else None
            measured, failed = list[MeasuredGroup](), list[FailedGroup]()
            for one in _measured(tasks, repeats):
                if isinstance(one, FailedGroup):
                    failed.append(one)
                    continue
                measured.append(one)
                mlflow.reported(one.name, one.report(measured, operations))
            if not measured:
                return 3
            lawful = _reported(measured, failed, operations)
    return 0 if lawful and len(measured) == repeats * len(tasks) else 3


def _reported(
    measured: Sequence["MeasuredGroup"],
    failed: Sequence["FailedGroup"],
    operations: Callable[[float], float] | None,
) -> bool:
    """Prints and writes what was measured; returns whether the losses are as they must be."""
    first = measured[0]
    config, timed_group = first.task.config, first.timed
    ordered = sorted((one.timed.timing for one in measured), key=lambda own: own.num_workers)
    batch = config.training.batch_size
    timings = [one for one in ordered if one.batch_size in (0, batch)]
    weak = [one for one in ordered if one.batch_size not in (0, batch)]
    precision = timed_group.precision
    rows = scaling_rows(timings, weak=weak, operations=operations, precision=precision)
    unjudged = _unjudged(config, precision)
    sentences = {"losses": losses_text(rows, unjudged=unjudged), "use": advice(rows)}
    sentences |= {"warning": mixed} if (mixed := mixed_devices(rows)) else {}
    reasons = [f"{one.task.workers(first.task)} ({one.reason})" for one in failed]
    sentences |= {"failed": "; ".join(reasons)} if reasons else {}
    lines = [wrapped(f"{name:<12}{text}", 12) for name, text in sentences.items()]
    say("\n".join(["", tables_text(rows), "", *lines]))
    facts = {
        "cell": first.task.cell,
        "label": model_and_windows(config),
        "settings": redact(config.settings()),
        "versions": timed_group.versions,
        "precision": precision,
        "failed": [one.listed for one in failed],
    }
    records = first.task.records
    write_scaling(records, timings, weak, rows, facts, sentences)
    say(f"files       {records.uri}: {', '.join(FILES)}")
    return bool(unjudged) or same_losses(rows)


def _unjudged(config: TrialConfig, precision: str) -> str:
    """The reason why loss curves may differ; "" where they must not."""
    if config.model.dropout:
        return f"with model.dropout={config.model.dropout:g} every worker draws its own masks"
    if precision != "float32":
        return f"rounding in {precision} grows with every step; use training.precision=fp32"
    return ""


def _options(args: argparse.Namespace) -> Options:
    """The flags that this sweep shares with the others, checked as theirs."""
    if args.engine != "ray":
        raise BadInput(f"scaling compares numbers of Ray's workers, got --engine {args.engine}")
    flags = {name: vars(args)[name] for name in SHARED if vars(args)[name] not in (None, False)}
    words = [f"{FLAGS[name].flag}={value}" for name, value in {"seeds": "1", **flags}.items()]
    words = [word.removesuffix("=True") for word in words]
    options = parse([*words, *args.settings], prog="scaling.py", description="")
    if len(options.seeds) > 1:
        raise BadInput(f"--seeds must be one seed, the same for all workers, got {args.seeds}")
    return options


def _configuration(options: Options, most: int) -> TrialConfig:
    """The configuration, with windows that suit its backbone; refuses settings that cannot be
    timed, also on `most` workers."""
    defaults = dict(CONFIGURATION.defaults) | (SMOKE if options.smoke_test else {})
    configuration = replace(CONFIGURATION, defaults=defaults, profile=options.profile)
    base = portable_config(base_config(configuration, options))
    if not issubclass(model_class(base.model.name), Ranker):
        raise BadInput(f"the model must be one that is trained, got {base.model.name}")
    inputs = load_inputs(base.collection, base.model.backbone)
    windows = {} if "chunking.window" in options.settings else suited(base, inputs.backbone)
    config = base.override(
        {**windows, **options.settings, "seed": options.seeds[0], "training.patience": 0}
    )
    check_model(config, inputs.backbone)
    training = config.training
    epochs = training.epoch_steps and training.num_epochs
    if not epochs or num_training_steps(training, 0) <= validation_interval(training, 0):
        raise BadInput(
            "training.epoch_steps >= 1 and a second validation must hold, because nothing is timed "
            f"before the first; got epoch_steps={training.epoch_steps}, "
            f"num_epochs={training.num_epochs}, max_steps={training.max_steps}, "
            f"validate_every={training.validate_every}"
        )
    if most > training.batch_size:
        raise BadInput(
            "--num-workers <= training.batch_size must hold, because the workers share the groups "
            f"of a step; got {most} workers and training.batch_size={training.batch_size}"
        )
    return config


def _numbers(given: str | None) -> list[int]:
    """The numbers of workers of the flag, rising; empty for as many as the cluster has."""
    if given is None:
        return []
    parts = [part.strip() for part in given.split(",")]
    numbers = sorted({int(part) for part in parts if part.isdecimal()})
    if not all(part.isdecimal() for part in parts) or numbers[0] != 1:
        raise BadInput(f"--num-workers must be whole numbers from 1 on, as 1,2,4, got {given!r}")
    return numbers


def _groups(numbers: list[int], options: Options, batch_size: int) -> list[Resources]:
    """The resources for each number of workers; raises `BadInput` for one that cannot fit."""
    if numbers:
        return [trial_resources(replace(options, num_workers=n)) for n in numbers]
    groups = [trial_resources(options)]
    with suppress(BadInput):
        while (n := 2 * groups[-1].num_workers) <= batch_size:
            groups.append(trial_resources(replace(options, num_workers=n)))
    return groups


def _repeats(given: str | None, options: Options) -> int:
    """The number of groups of fresh processes for each number of workers."""
    if given is None:
        return 1 if options.smoke_test else 3
    if not (given.isdecimal() and int(given)):
        raise BadInput(f"--repeats must be a whole number from 1 on, got {given!r}")
    return int(given)


@dataclass(frozen=True)
class Task:
    """A configuration to be measured on a group of workers."""

    group: Resources
    config: TrialConfig
    inputs: Inputs
    records: Records

    @property
    def cell(self) -> str:
        """The name of the configuration."""
        return cell_of(self.config, self.inputs)

    @property
    def kept(self) -> Kept:
        """Its measurements."""
        return Kept(self.records, identity(self.cell, self.config, versions()))

    def workers(self, first: "Task") -> str:
        """Its workers, and its batch where that is not the one of `first`."""
        batch, text = self.config.training.batch_size, numbered(self.group.num_workers, "worker")
        same = batch == first.config.training.batch_size
        return text if same else f"{text} with {batch} groups a step"

    def weak(self) -> "Task":
        """The same with a batch for each worker."""
        batch = self.config.training.batch_size * self.group.num_workers
        return replace(self, config=self.config.override({"training.batch_size": batch}))


@dataclass(frozen=True)
class MeasuredGroup:
    """What a group of workers measured in one of the repeats."""

    task: Task
    repeat: int
    name: str
    timed: Timed

    def report(
        self, before: Sequence["MeasuredGroup"], operations: Callable[[float], float] | None
    ) -> dict[str, Any]:
        """Its run in MLflow, beside that of one worker in its repeat, if there is one `before` it;
        the first of these is of one worker."""
        config, group, timing = self.task.config, self.task.group, self.timed.timing
        alone = (one for one in before if one.task.group.num_workers == 1)
        single = next((one.timed.timing for one in alone if one.repeat == self.repeat), None)
        ignored = ignored_settings(config)
        settings = {key: text for key, text in config.settings().items() if key not in ignored}
        workers = {"num_workers": group.num_workers, "threads": group.threads, **group.needs}
        label = f"{model_and_windows(config)}, {self.task.workers(before[0].task)}"
        values = group_values(timing, single, operations=operations, precision=self.timed.precision)
        return {
            "label": label,
            "turn": self.repeat,
            "settings": {**settings, **workers, "repeat": self.repeat},
            "values": values,
            "versions": self.timed.versions,
        }


@dataclass(frozen=True)
class FailedGroup:
    """A group of workers that failed in one of the repeats, and has no turn in later ones."""

    task: Task
    repeat: int
    reason: str

    @property
    def listed(self) -> dict[str, Any]:
        """It in `scaling.json`."""
        batch, workers = self.task.config.training.batch_size, self.task.group.num_workers
        about = {"num_workers": workers, "batch_size": batch, "repeat": self.repeat}
        return {**about, "reason": self.reason}


def _measured(tasks: Sequence[Task], repeats: int) -> Iterator[MeasuredGroup | FailedGroup]:
    """The results of all groups, each kept as it ends; without the first there is no speed-up.
    Every number of workers has its turn in each repeat, so that a machine that slows down does so
    for all."""
    first = tasks[0].config
    shared = f"{first.training.batch_size} groups a step, seed {first.seed}"
    say(f"trains      {model_and_windows(first)} on {first.collection}, {shared}")
    failed: set[int] = set()
    for repeat in range(1, repeats + 1):
        for at, task in enumerate(tasks):
            group, config, kept = task.group, task.config, task.kept
            if at in failed:
                continue
            workers = task.workers(tasks[0])
            turn = f", {repeat} of {repeats}" if repeats > 1 else ""
            needs = {"needs": group.needs, "threads": group.threads}
            about = {"num_workers": group.num_workers, **needs}
            name = kept.name(about, repeat)
            if found := kept.find(about, repeat):
                say(f"measured    {workers}{turn}: by an earlier command")
                yield MeasuredGroup(task, repeat, name, found)
                continue
            each = f"{group.gpus:g} GPU" if group.gpus else numbered(group.threads, "thread")
            say(f"running     {workers} with {each} each{turn}")
            try:
                found = timed(config, group)
            except GroupFailed as error:
                reason = redact_text(str(error))
                say(f"failed      {workers}: {reason}")
                yield FailedGroup(task, repeat, reason)
                if at == 0 and repeat == 1:
                    return
                failed.add(at)
                continue
            kept.keep(about, repeat, found)
            yield MeasuredGroup(task, repeat, name, found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
