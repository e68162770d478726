"""`python -m sweeps status`: how far a sweep is, who drives it, and what to do next."""

import os
import shlex
import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev

from rank_core.errors import BadInput
from sweeps.commands.snapshot import DAMAGED, Snapshot, TrialNow, take_snapshot
from sweeps.plan.command_line import Parser
from sweeps.plan.terminal import duration
from sweeps.store.failures import counted
from sweeps.store.sweep_file import SweepFile
from sweeps.store.trial_status import LOST, USED, TrialStatus

SETTLED = (
    *USED,
    TrialStatus.DIVERGED,
    TrialStatus.STOPPED,
)  # the same command would not run them again
STATES = {
    "done": "done",
    "collapsed": "collapsed",
    "running": "running",
    "failed": "failed",
    "diverged": "diverged",
    "stopped": "stopped early",
    "interrupted": "interrupted",
    "damaged": "damaged",
    "planned": "waiting",
}
"""The log's words, in the order they are told, and a person's."""
NARROW = 80
WATCH_SECONDS = 5.0
CLEAR = "\x1b[2J\x1b[H"  # a terminal's screen
SILENT_SECONDS = 180.0  # trials report, or Ray's death is noticed, long before
FIELD = 11  # width of the first column of the upper part


def main(argv: Sequence[str]) -> int:
    """Prints how far a running, killed or finished sweep is; changes nothing."""
    parser = Parser("python -m sweeps status", main.__doc__)
    parser.add_argument("folder", metavar="DIR", help="a sweep's folder, or its URI (s3://...)")
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=float,
        nargs="?",
        const=WATCH_SECONDS,
        help="print it again and again, until no command drives the sweep (default: every "
        "%(const)g seconds)",
    )
    arguments = parser.parse_args(argv)
    if arguments.watch is not None and not 0 < arguments.watch < float("inf"):
        raise BadInput(f"--watch must be seconds above 0, got {arguments.watch:g}")
    while True:
        width = max(NARROW, shutil.get_terminal_size((NARROW, 24)).columns)
        snapshot = take_snapshot(arguments.folder)
        again = arguments.watch is not None and snapshot.driver == "alive"
        if again and sys.stdout.isatty():
            print(CLEAR, end="")
        print(status_text(snapshot, now=time.time(), width=width), flush=True)
        if not again:
            return 0
        time.sleep(arguments.watch)


def status_text(snapshot: Snapshot, *, now: float, width: int) -> str:
    """The page, in lines of at most `width` letters (a command to copy stays whole)."""
    title = f"{snapshot.file.sweep}: {snapshot.file.question}"
    lines = [*textwrap.wrap(title, width), ""]
    for name, text in _fields(snapshot, now):
        indent = " " * FIELD
        lines += textwrap.wrap(f"{name:<{FIELD}}{text}", width, subsequent_indent=indent)
    lines += ["", *_table(snapshot, width)]
    lost = list(_losses(snapshot, width))
    if lost:
        lines += ["", *lost]
    for name, text in _next_steps(snapshot, now):
        short = len(text) <= width - FIELD
        lines += ["", f"{name:<{FIELD}}{text}"] if short else ["", name, text]
    return "\n".join(lines)


def _fields(snapshot: Snapshot, now: float) -> Iterator[tuple[str, str]]:
    yield "driver", _driver(snapshot, now)
    if snapshot.driver != "alive" and snapshot.file.stopped:
        yield "stopped", snapshot.file.stopped
    yield "trials", _counts(snapshot)
    if snapshot.lost_attempts:
        number = _times(sum(snapshot.lost_attempts.values()))
        yield "lost", f"{number}: {counted(snapshot.lost_attempts)}"
    if snapshot.news:
        news = snapshot.news
        label = _labels(snapshot).get(news.cell, news.cell)
        yield "last news", f"{_age(now - news.time / 1000)}, from {label} seed {news.seed}"
    yield "time", _time(snapshot)
    yield "MLflow", _mlflow(snapshot)


def _driver(snapshot: Snapshot, now: float) -> str:
    if snapshot.driver == "gone":
        stopped = snapshot.file.stopped
        ended = not stopped and all(trial.status in SETTLED for trial in snapshot.trials)
        return "none: the sweep has ended" if ended else "none: the sweep stands still"
    writer = snapshot.writer
    who = f"running, process {writer['pid']} on {writer['host']}" if writer else "running"
    if snapshot.started is not None:
        who += f", for {duration(now - snapshot.started)}"
    silent = _silent(snapshot, now)
    return f"{who}; it has been silent for {duration(silent)}" if silent else who


def _silent(snapshot: Snapshot, now: float) -> float:
    """Seconds since a living driver has recorded anything; 0 where it did so a while ago."""
    last = max(snapshot.news.time / 1000 if snapshot.news else 0.0, snapshot.started or 0.0)
    return now - last if snapshot.driver == "alive" and 0 < last < now - SILENT_SECONDS else 0.0


def _counts(snapshot: Snapshot) -> str:
    counts = Counter(trial.status for trial in snapshot.trials)
    words = [f"{counts[state]} {word}" for state, word in STATES.items() if counts[state]]
    attempts = sum(trial.attempts for trial in snapshot.trials)
    cells, seeds = len(snapshot.file.cells), len(snapshot.file.seeds)
    spared = cells * seeds - len(snapshot.trials)
    less = f", {spared} spared by the search" if spared else ""
    text = f"{cells} cells x {seeds} seeds{less} = {len(snapshot.trials)}: {', '.join(words)}"
    text += f"; {attempts} attempt{'' if attempts == 1 else 's'}"
    if snapshot.others:
        text += f"; {snapshot.others} more of other commands on this folder"
    return text


def _time(snapshot: Snapshot) -> str:
    spent = sum(trial.seconds for trial in snapshot.trials if trial.seconds is not None)
    left = _seconds_left(snapshot)
    if left is None:
        return "not known before a trial has finished"
    text = f"{duration(spent)} in finished trials"
    if left == 0:
        return text
    if snapshot.driver != "alive":
        return f"{text}; about {duration(left)} to do, one by one"
    side_by_side = max(1, sum(trial.status == "running" for trial in snapshot.trials))
    return f"{text}; about {duration(left / side_by_side)} left, {side_by_side} side by side"


def _seconds_left(snapshot: Snapshot) -> float | None:
    """Computing time of what will still run, as the finished seeds of a cell took; cells without
    any count by the tokens they read per document, which nearly all of their time goes into."""
    took: dict[str, list[float]] = {}
    for trial in snapshot.trials:
        if trial.seconds is not None:
            took.setdefault(trial.cell, []).append(trial.seconds)
    if not took:
        return None
    tokens = {
        cell.cell: float(cell.encoder_tokens_per_document or 1) for cell in snapshot.file.cells
    }
    rate = sum(fmean(took[cell]) for cell in took) / sum(tokens[cell] for cell in took)
    left = 0.0
    for trial in snapshot.trials:
        # A failed trial is tried again by the next command, not by this one.
        ended = (*SETTLED, "failed") if snapshot.driver == "alive" else SETTLED
        if trial.status in ended:
            continue
        whole = fmean(took[trial.cell]) if trial.cell in took else rate * tokens[trial.cell]
        done = trial.step / trial.num_steps if trial.step and trial.num_steps else 0.0
        left += whole * (1 - done)
    return left


def _mlflow(snapshot: Snapshot) -> str:
    uri = snapshot.file.tracking_uri
    if uri == "none":
        return "off"
    if snapshot.pending is None:
        return f"not known on this machine ({uri})"
    if snapshot.pending == 0:
        return f"has taken everything ({uri})"
    events = f"{snapshot.pending} event{'s' * (snapshot.pending > 1)}"
    return f"{events} not taken yet ({uri}), safe in events.jsonl"


def _table(snapshot: Snapshot, width: int) -> list[str]:
    """A line per cell: seeds with a result, their mean on dev, attempts, and what is unusual."""
    labels = _labels(snapshot)
    primary = f"dev {snapshot.file.primary}"
    room = min(max(map(len, labels.values())), width // 2 - 10)
    value = max(len(primary), 6)
    head = f"{'cell':<{room}}  seeds  {primary:>{value}}    SD  attempts"
    lines = [f"{head}  now"]
    for cell, label in labels.items():
        trials = [trial for trial in snapshot.trials if trial.cell == cell]
        dev = [trial.dev for trial in trials if trial.status in USED and trial.dev is not None]
        used = sum(trial.status in USED for trial in trials)
        seeds = f"{used}/{len(trials)}"
        mean = f"{fmean(dev):.3f}" if dev else ""
        spread = f"{stdev(dev):.3f}".removeprefix("0") if len(dev) > 1 else ""
        attempts = sum(trial.attempts for trial in trials)
        line = f"{_cut(label, room):<{room}}  {seeds:>5}  {mean:>{value}}  {spread:>4}  "
        line += f"{attempts or '':>8}  {_unusual(trials)}"
        lines.append(_cut(line.rstrip(), width))
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def _unusual(trials: Sequence[TrialNow]) -> str:
    """What of a cell is neither done nor waiting."""
    running = [f"seed {trial.seed} {_step(trial)}" for trial in trials if trial.status == "running"]
    seeds: dict[str, list[int]] = {}
    for trial in trials:
        if trial.status not in ("done", "running", "planned"):
            seeds.setdefault(STATES[trial.status], []).append(trial.seed)
    rest = [
        f"seed{'s' * (len(which) > 1)} {', '.join(map(str, which))} {state}"
        for state, which in seeds.items()
    ]
    return "; ".join([*running, *rest])


def _step(trial: TrialNow) -> str:
    if trial.step is None:
        return "starting"
    of = f"/{trial.num_steps}" if trial.num_steps else ""
    dev = "" if trial.dev is None else f" (dev {trial.dev:.3f})"
    return f"step {trial.step}{of}{dev}"


def _losses(snapshot: Snapshot, width: int) -> Iterator[str]:
    """Each reason once, with the trials that it ended."""
    labels = _labels(snapshot)
    reasons: dict[tuple[str, str], list[TrialNow]] = {}
    for trial in snapshot.trials:
        if trial.status in (*LOST, DAMAGED):
            reasons.setdefault((trial.status, trial.reason), []).append(trial)
    for (status, reason), trials in reasons.items():
        first = (reason.splitlines() or ["no reason was recorded"])[0]
        yield from textwrap.wrap(f"{status}: {first}", width, subsequent_indent="    ")
        who = "; ".join(
            f"{labels[trial.cell]} seed {trial.seed} ({_times(trial.attempts)})" for trial in trials
        )
        yield from textwrap.wrap(who, width, initial_indent="    ", subsequent_indent="    ")


def _next_steps(snapshot: Snapshot, now: float) -> Iterator[tuple[str, str]]:
    """Commands to copy; none is needed while a driver lives."""
    if snapshot.report:
        yield "report", snapshot.report
    if snapshot.failures and any(trial.status == "failed" for trial in snapshot.trials):
        yield "tracebacks", snapshot.failures
    if snapshot.driver == "alive":
        works = "nothing: the driver works on it"
        stuck = "read its output; Ctrl-C loses nothing, and the same command goes on"
        yield "to do", stuck if _silent(snapshot, now) else works
        return
    # A budget takes the seeds and configurations that it held back out of the plan.
    todo = any(trial.status not in SETTLED for trial in snapshot.trials)
    if todo or snapshot.file.stopped:
        yield "go on", _resume(snapshot.file)
    elif snapshot.pending:
        yield "send", f"python -m sweeps sync {snapshot.where}"
    elif not snapshot.report:
        yield "aggregate", f"python -m sweeps report {snapshot.where}"


def _resume(file: SweepFile) -> str:
    """The sweep's own command, which works where it was typed: paths, and modules, stand there."""
    if file.directory in ("", os.getcwd()):
        return file.command
    return f"cd {shlex.quote(file.directory)} && {file.command}"


def _labels(snapshot: Snapshot) -> dict[str, str]:
    return {cell.cell: cell.label or cell.cell for cell in snapshot.file.cells}


def _times(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def _age(seconds: float) -> str:
    return f"{duration(max(0.0, seconds))} ago"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
