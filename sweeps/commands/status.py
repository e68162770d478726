"""`ranksweep status`: the progress of a sweep, its driver, and the next step."""

import shutil
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from rank_core.errors import BadInput
from sweeps.engine.cell_table import ENOUGH_TO_ESTIMATE, TrialNow, cell_lines, counts_text
from sweeps.plan.groups import group_size
from sweeps.plan.next_command import asked_of, copied_from, our_command, resumed
from sweeps.store.failures import counted, lost_by_kind
from sweeps.store.lock import Driver, follow_driver
from sweeps.store.records import Records, State, trial_name
from sweeps.store.sweep_file import (
    FILE,
    NoSweep,
    SweepFile,
    advisable,
    command_in,
    find_sweep,
    read_sweep_file,
    stated_choice,
    sweeps_below,
)
from sweeps.store.trial_status import INTERRUPTED, LOST, USED, TrialStatus
from sweeps.systems.order import ranked
from sweeps.terminal.command_line import Parser
from sweeps.terminal.live_text import LiveText, is_live_terminal
from sweeps.terminal.text import LEAST_WIDTH, WIDTH, columns, duration, numbered, say
from sweeps.tracking.client import default_tracking_uri

DAMAGED = "damaged"  # the status of a trial with damaged files
SETTLED = (*USED, TrialStatus.DIVERGED, TrialStatus.STOPPED)  # the same command repeats none
WATCH_SECONDS = 5.0
WAIT_SECONDS = 1800.0  # for a sweep to begin
FIELD = 12  # width of the first column of the upper part


@dataclass(frozen=True)
class News:
    """The last thing that a trial's files tell."""

    time: float  # seconds since the epoch
    cell: str
    seed: int


@dataclass(frozen=True)
class Snapshot:
    """A sweep at a moment."""

    where: str  # as in the command
    file: SweepFile
    trials: tuple[TrialNow, ...]
    lost_attempts: Mapping[str, int]  # by kind; of the planned trials, over all commands
    spent: float  # seconds of the ended attempts of the planned trials
    others: int  # started trials that this plan lacks
    driver: Driver | None  # that lives
    news: News | None
    report: str | None  # the page, if there is one
    choice: str  # of the report of a sweep that has ended; "" before
    failures: str | None  # the folder of tracebacks, if there is one
    copied_from: str  # the folder that the sweep's command drives, if it is another one
    test_sets: Mapping[str, str]  # {name: counts of its trials}

    @property
    def labels(self) -> dict[str, str]:
        """{cell: its label}."""
        return {cell.cell: cell.label or cell.cell for cell in self.file.cells}


def main(argv: Sequence[str]) -> int:
    """Print the progress of a running, killed or finished sweep, or the sweeps below a folder;
    changes nothing."""
    args = parser().parse_args(argv)
    if args.watch is not None and not args.watch > 0:
        raise BadInput(f"--watch must be seconds above 0, got {args.watch:g}")
    if args.watch is not None:
        _wait_for_sweep(args.folder, args.watch)
    records = find_sweep(args.folder)
    if args.watch is None and records.read_file(FILE) is None:
        if lines := list(_sweeps_below(args.folder, records)):
            say("\n".join(lines))
            return 0
    live = LiveText() if is_live_terminal() else None
    try:
        while True:
            width, height = shutil.get_terminal_size((WIDTH, 24))
            snapshot = take_snapshot(args.folder, records)
            again = args.watch is not None and snapshot.driver is not None
            room = height if live and again else None
            text = status_text(
                snapshot, now=time.time(), width=max(LEAST_WIDTH, width), height=room
            )
            if live and again:
                live.show(text.splitlines())
            else:
                if live:
                    live.close(keep=False)
                say(text)
            if not again:
                return 0
            time.sleep(args.watch)
    finally:
        if live:
            live.close()


def parser() -> Parser:
    """The arguments and flags of `ranksweep status`."""
    parser = Parser("ranksweep status", main.__doc__)
    parser.add_argument(
        "folder", metavar="DIR", help="the folder or URI (s3://...) of one sweep or of several"
    )
    watch = "wait up to half an hour for the sweep to begin, then repeat until no command runs it "
    watch += "(default: every %(const)g seconds)"
    add = parser.add_argument
    add("--watch", metavar="SECONDS", type=float, nargs="?", const=WATCH_SECONDS, help=watch)
    return parser


def _sweeps_below(where: str, records: Records) -> Iterator[str]:
    """A line for each sweep below a folder, and the command for more of the first that can be read;
    nothing where none can."""
    rows: list[tuple[str, str, str]] = [("sweep", "trials", "")]
    readable: list[str] = []
    for name in sweeps_below(records):
        try:
            snapshot = take_snapshot(f"{where.rstrip('/')}/{name}")
            rows.append((name, counts_text(snapshot.trials), _driver(snapshot, time.time())))
            readable.append(name)
        except BadInput as error:  # its own; the others are listed
            rows.append((name, "unreadable", str(error)))
    if readable:
        yield from columns(rows, "lll")
        yield ""
        yield our_command("status", f"{where.rstrip('/')}/{readable[0]}")


def _wait_for_sweep(folder: str, seconds: float) -> None:
    """Returns once a sweep has begun in the folder; looks every `seconds`, for half an hour, as the
    name may be wrong."""
    waited = 0.0
    while True:
        try:
            take_snapshot(folder)
            return
        except NoSweep as error:
            if waited >= WAIT_SECONDS:
                raise BadInput(f"{error}; none began in {duration(waited)}") from None
        if not waited:
            most = duration(WAIT_SECONDS)
            say(f"waiting for a sweep to begin in {folder}, for {most} at most")
        waited += seconds
        time.sleep(seconds)


def status_text(snapshot: Snapshot, *, now: float, width: int, height: int | None = None) -> str:
    """The status in lines of at most `width` characters; paths and commands stay whole. With more
    than `height` lines, waiting and finished cells are omitted."""
    title = f"{snapshot.file.sweep}: {snapshot.file.question}"
    above = [*textwrap.wrap(title, width), ""]
    for name, text in _fields(snapshot, now):
        indent = " " * FIELD
        above += textwrap.wrap(f"{name:<{FIELD}}{text}", width, subsequent_indent=indent)
    below: list[str] = []
    lost = list(_losses(snapshot, width))
    if lost:
        below += ["", *lost]
    for name, text in _next_steps(snapshot):
        short = len(text) <= width - FIELD
        below += ["", f"{name:<{FIELD}}{text}"] if short else ["", name, text]
    room = None if height is None else height - len(above) - len(below) - 2
    cells = cell_lines(
        snapshot.labels, snapshot.trials, snapshot.file.primary, width=width, height=room
    )
    return "\n".join([*above, "", *cells, *below])


def _fields(snapshot: Snapshot, now: float) -> Iterator[tuple[str, str]]:
    yield "driver", _driver(snapshot, now)
    if snapshot.driver is None and snapshot.file.stopped:
        yield "stopped", snapshot.file.stopped
    yield "trials", _counts(snapshot)
    if snapshot.choice:
        yield "choice", snapshot.choice
    elif best := _best(snapshot):
        yield "best on dev", best
    if snapshot.lost_attempts:
        number = numbered(sum(snapshot.lost_attempts.values()), "attempt")
        yield "lost", f"{number}: {counted(snapshot.lost_attempts)}"
    if snapshot.news and snapshot.news.time:
        news = snapshot.news
        label = snapshot.labels.get(news.cell, news.cell)
        age = duration(max(0.0, now - news.time))
        yield "last event", f"{age} ago, from {label} seed {news.seed}"
    if workers := _workers(snapshot):
        yield "workers", workers
    yield "time", _time(snapshot)
    if budget := snapshot.file.budget:
        spent = snapshot.spent * budget["units"] / 3600
        hours = f"{budget['hours']:g} {budget['unit']}-hours"
        yield "budget", f"{spent:.3g} of {hours} in ended attempts"
    if snapshot.test_sets:
        yield "test sets", "; ".join(f"{k}: {counts}" for k, counts in snapshot.test_sets.items())
    if snapshot.file.trained_on:
        yield "tests", f"the models of {snapshot.file.trained_on}, beside this folder"
    uri = snapshot.file.tracking_uri
    yield "MLflow", "off" if uri == "none" else uri


def _driver(snapshot: Snapshot, now: float) -> str:
    if snapshot.driver is None:
        stopped = snapshot.file.stopped
        ended = not stopped and all(trial.status in SETTLED for trial in snapshot.trials)
        return "not running (finished)" if ended else "not running (incomplete)"
    driver = snapshot.driver
    return f"running, process {driver.pid} on {driver.host}, for {duration(now - driver.since)}"


def _workers(snapshot: Snapshot) -> str:
    """The range of the workers of a trial, and what running ones have; "" for a number."""
    typed = str(snapshot.file.flags.get("num_workers") or 1)
    now = ", ".join(str(trial.workers) for trial in snapshot.trials if trial.workers)
    return f"{typed} a trial{f'; {now} now' if now else ''}" if group_size(typed)[0] else ""


def _counts(snapshot: Snapshot) -> str:
    attempts = sum(trial.attempts for trial in snapshot.trials)
    cells, seeds = len(snapshot.file.cells), len(snapshot.file.seeds)
    spared = cells * seeds - len(snapshot.trials)
    less = f", {spared} saved by the search" if spared else ""
    text = f"{numbered(cells, 'cell')} x {numbered(seeds, 'seed')}{less} = {len(snapshot.trials)}: "
    text += f"{counts_text(snapshot.trials)}; {numbered(attempts, 'attempt')}"
    if snapshot.others:
        text += f"; {snapshot.others} more from other commands on this folder"
    return text


def _best(snapshot: Snapshot) -> str:
    """The best cell's mean on dev so far, and its standing to the first stage, which it has to beat
    there; test values are for the end. Nothing where costs count in the choice, which is another
    one then."""
    if snapshot.file.at_most or snapshot.file.cost_weights:
        return ""
    dev: dict[str, list[float]] = {}
    for trial in snapshot.trials:
        if trial.status in USED and trial.dev is not None:
            dev.setdefault(trial.cell, []).append(trial.dev)
    primary = snapshot.file.primary
    first = snapshot.file.first_stage_dev.get(primary)
    means = {cell: fmean(values) for cell, values in dev.items()}
    planned = [cell.cell for cell in snapshot.file.cells]
    for cell in ranked(means, planned, snapshot.file.eliminated)[:1]:
        seeds = numbered(len(dev[cell]), "seed")
        text = f"{primary} {means[cell]:.3f} by {snapshot.labels[cell]} ({seeds})"
        if first is None:
            return text
        from sweeps.terminal.notation import signed  # statistics, which help must not load

        return f"{text}, {signed(means[cell] - first)} over the first stage"
    return "" if first is None else f"{primary} {first:.3f} by the first stage, none by a cell yet"


def _time(snapshot: Snapshot) -> str:
    spent = sum(trial.seconds for trial in snapshot.trials if trial.seconds is not None)
    left = _seconds_left(snapshot)
    if left is None:
        return "unknown until a trial has made some steps"
    text = f"{duration(spent)} in finished trials" if spent else "by the steps so far"
    if left == 0:
        return text
    if snapshot.driver is None:
        return f"{text}; about {duration(left)} left, one at a time"
    at_a_time = max(1, sum(trial.status == "running" for trial in snapshot.trials))
    return f"{text}; about {duration(left / at_a_time)} left, {at_a_time} at a time"


def _seconds_left(snapshot: Snapshot) -> float | None:
    """The computing time of all trials that will still run, from the finished seeds of their cells,
    before the first one ends from the steps of running ones; for other cells in proportion to the
    tokens read per document, which dominate it."""
    finished: dict[str, list[float]] = {}
    running: dict[str, list[float]] = {}
    for trial in snapshot.trials:
        if trial.seconds is not None:
            finished.setdefault(trial.cell, []).append(trial.seconds)
        elif trial.expected is not None:
            running.setdefault(trial.cell, []).append(trial.expected)
    seconds = finished or running
    if not seconds:
        return None
    tokens = {c.cell: float(c.encoder_tokens_per_document or 1) for c in snapshot.file.cells}
    rate = sum(fmean(seconds[cell]) for cell in seconds) / sum(tokens[cell] for cell in seconds)
    left = 0.0
    for trial in snapshot.trials:
        # A failed trial is tried again by the next command, not by this one.
        ended = (*SETTLED, "failed") if snapshot.driver else SETTLED
        if trial.status in ended:
            continue
        total = fmean(seconds[trial.cell]) if trial.cell in seconds else rate * tokens[trial.cell]
        done = trial.step / trial.num_steps if trial.step and trial.num_steps else 0.0
        left += total * (1 - done)
    return left


def _losses(snapshot: Snapshot, width: int) -> Iterator[str]:
    """Each reason once, with its trials."""
    labels = snapshot.labels
    reasons: dict[tuple[str, str], list[TrialNow]] = {}
    for trial in snapshot.trials:
        if trial.status in (*LOST, DAMAGED):
            reasons.setdefault((trial.status, trial.reason), []).append(trial)
    for (status, reason), trials in reasons.items():
        first = (reason.splitlines() or ["no reason was recorded"])[0]
        yield from textwrap.wrap(f"{status}: {first}", width, subsequent_indent="    ")
        names = "; ".join(
            f"{labels[trial.cell]} seed {trial.seed} ({numbered(trial.attempts, 'attempt')})"
            for trial in trials
        )
        yield from textwrap.wrap(names, width, initial_indent="    ", subsequent_indent="    ")


def _next_steps(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Labelled paths and commands to copy; no command is needed while a driver runs."""
    if snapshot.report:
        yield "report", snapshot.report
    if snapshot.failures and any(trial.status == "failed" for trial in snapshot.trials):
        yield "tracebacks", snapshot.failures
    if snapshot.driver:
        yield "next", "nothing: the sweep is running"
        return
    # A budget removes trials from the plan.
    unfinished = any(trial.status not in SETTLED for trial in snapshot.trials)
    if unfinished or snapshot.file.stopped:
        file = snapshot.file
        if advisable(file.command):
            command = resumed(asked_of(file), file.command, stopped=bool(file.stopped))
            yield "resume", command_in(file.directory, command)
            if snapshot.copied_from:
                yield "works on", f"{snapshot.copied_from}, of which this folder is a copy"
    elif not snapshot.report:
        yield "aggregate", our_command("report", snapshot.where)


def take_snapshot(where: str, records: Records | None = None) -> Snapshot:
    """The sweep in a folder, or at a URI such as s3://bucket/path/window_stride/python-docs. Of the
    same `records` only what has changed is read again."""
    records = records or find_sweep(where)
    file = read_sweep_file(records)
    file = replace(file, tracking_uri=file.tracking_uri or default_tracking_uri(records))
    driver = follow_driver(records)
    planned = [
        trial_name(cell.cell, seed)
        for seed in file.seeds
        for cell in file.cells
        if seed == file.seeds[0] or cell.cell not in file.deterministic
    ]
    states = records.states(dict.fromkeys([*planned, *file.trials]))
    planned = [
        name
        for name in planned
        if states[name].num_attempts
        or (after := file.eliminated.get(states[name].cell)) is None
        or file.seeds.index(states[name].seed) < after
    ]
    trials = tuple(_now(records, states[name], file.primary) for name in planned)
    lost = [
        vars(attempt) | {"cell": states[name].cell, "seed": states[name].seed}
        for name in planned
        for attempt in states[name].attempts
        if attempt.lost
    ]
    ended = driver is None and all(trial.status in SETTLED for trial in trials)
    workers = int(file.budget.get("workers", 1))
    return Snapshot(
        where=where,
        file=file,
        trials=trials,
        lost_attempts=lost_by_kind(map(vars, trials), lost),
        spent=sum(states[name].slot_seconds(workers) for name in planned),
        others=sum(bool(states[name].attempts) for name in states.keys() - set(planned)),
        driver=driver,
        news=max(map(_news, states.values()), key=lambda news: news.time, default=None),
        report=_existing(records, "report/index.html"),
        choice=stated_choice(records) if ended else "",
        failures=_existing(records, "failures"),
        copied_from=copied_from(file, records),
        test_sets={name: _of_set(where, folder) for name, folder in file.test_sets.items()},
    )


def _of_set(where: str, folder: str) -> str:
    """The counts of the trials on a test set, whose folder is beside that of the sweep."""
    try:
        uri_of_set = f"{find_sweep(where).uri.rpartition('/')[0]}/{folder}"
        return counts_text(take_snapshot(uri_of_set).trials)
    except NoSweep:
        return "not begun"


def _now(records: Records, state: State, primary: str) -> TrialNow:
    now = TrialNow(state.cell, state.seed, state.status, state.num_attempts, state.reason)
    if state.status is TrialStatus.RUNNING and state.attempts[-1].ended is None:
        now = replace(now, workers=state.attempts[-1].workers)
    if damage := records.damage(state, thorough=False):
        return replace(now, status=DAMAGED, reason=f"{state.name}: {damage}")
    dev = state.dev.get(primary)
    if state.status.used:
        seconds = state.facts["train_seconds"] + state.facts["eval_seconds"]
        return replace(now, reason="", dev=dev, seconds=seconds)
    if state.status is TrialStatus.PLANNED and state.attempts:
        return replace(now, status=INTERRUPTED)
    if state.status is TrialStatus.RUNNING and (progress := state.progress):
        step, num_steps = progress["step"], progress["num_steps"]
        expected = _expected(progress, since=state.attempts[-1].begun / 1000)
        return replace(now, dev=dev, step=step, num_steps=num_steps, expected=expected)
    return now


def _expected(progress: Mapping[str, Any], since: float) -> float | None:
    """The seconds of all steps and validations of a trial, by the time between the steps that its
    attempt has made; None before a tenth of them. Those before a checkpoint were others'."""
    points = [point for point in progress.get("curve", ()) if point["seconds"] >= since]
    num_steps = progress["num_steps"] or 0
    made = points[-1]["step"] - points[0]["step"] if points else 0
    if not made or made < ENOUGH_TO_ESTIMATE * num_steps:
        return None
    return float((points[-1]["seconds"] - points[0]["seconds"]) / made * num_steps)


def _news(state: State) -> News:
    times = [time for attempt in state.attempts for time in (attempt.begun, attempt.ended or 0)]
    if state.attempts and state.progress:
        times.append(state.progress["time"])
    return News(max(times, default=0) / 1000, state.cell, state.seed)


def _existing(records: Records, name: str) -> str | None:
    there = records.storage.fs.exists(f"{records.storage.root}/{records.path(name)}")
    return f"{records.uri}/{name}" if there else None
