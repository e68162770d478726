"""`ranksweep storage URI`: what a storage holds, who uses it, and the removal of what can go."""

import argparse
import time
from collections.abc import Iterator, Sequence

from rank_core.cache import CacheEntry, cache_entries, cache_root, remove_folder
from rank_core.errors import BadInput
from rank_core.units import size_text
from sweeps.plan.flags import FLAGS
from sweeps.plan.next_command import our_command
from sweeps.store.inventory import (
    DONE,
    HALF,
    Inventory,
    StoredSweep,
    remove_sweep,
    remove_trials,
    take_inventory,
)
from sweeps.store.records import TRIALS
from sweeps.store.storage import Storage
from sweeps.terminal.command_line import Parser
from sweeps.terminal.text import columns, duration, numbered, say
from sweeps.tracking.cleaning import forget_sweep, leftovers, own_database, remove_leftovers

DAY = 86_400.0
LISTED = 20  # orphans in a list


def main(argv: Sequence[str]) -> int:
    """List the sweeps, trials and caches of a storage with their sizes and users, and remove what
    can go. Without --yes nothing is removed: the command shows what would be. What a sweep uses is
    never removed, and nothing of a sweep that runs; a removal that was killed is repeated by the
    same command."""
    args = parser().parse_args(argv)
    if args.yes and not (args.remove or args.orphans or args.cache is not None):
        raise BadInput("--yes needs --remove SWEEP, --orphans or --cache DAYS")
    if args.cache is not None and not args.cache >= 1:
        raise BadInput(f"--cache must be 1 day or more, got {args.cache:g}")
    storage = Storage(args.storage)
    inventory = take_inventory(storage)
    if not inventory.sweeps and not inventory.trials:
        raise BadInput(
            f"{storage.uri} is not a storage of sweeps: it has neither sweeps nor {TRIALS}/; give "
            "the folder or URI of --storage"
        )
    chosen = [inventory.sweep(name) for name in dict.fromkeys(args.remove or ())]
    for line in _listing(inventory):
        say(line)
    _check(inventory, chosen, args)
    for line in (
        _removals(inventory, chosen, args) if args.yes else _plan(inventory, chosen, args, argv)
    ):
        say(line)
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep storage`."""
    parser = Parser("ranksweep storage", main.__doc__)
    add = parser.add_argument
    default = FLAGS["storage"].default
    add("storage", metavar="DIR|URI", nargs="?", default=default,
        help="the folder or URI of --storage (default: %(default)s)")  # fmt: skip
    add("--remove", metavar="SWEEP", nargs="+",
        help="remove these sweeps, with the trials that no other sweep uses")  # fmt: skip
    add("--orphans", action="store_true", help="remove the trials that no sweep uses")
    add("--cache", metavar="DAYS", type=float,
        help="remove what was not used for DAYS days from this machine's cache")  # fmt: skip
    add("--yes", action="store_true", help="remove; without it, the command only lists")
    return parser


def _check(inventory: Inventory, chosen: Sequence[StoredSweep], args: argparse.Namespace) -> None:
    """Refuses what must stay, before anything is removed."""
    for sweep in chosen:
        if sweep.driver:
            raise BadInput(
                f"{inventory.storage.uri}/{sweep.name} is driven by {sweep.driver.text()}; end it "
                "there first"
            )
    names = {sweep.name for sweep in chosen}
    others = tuple(sweep for sweep in inventory.sweeps if sweep.name not in names)
    if chosen or args.orphans:
        kept = others if not args.orphans else inventory.sweeps
        Inventory(inventory.storage, kept, inventory.trials).check_removable()


def _listing(inventory: Inventory) -> Iterator[str]:
    """What there is: sweeps, orphans, MLflow and the cache."""
    storage, now = inventory.storage, time.time()
    yield (
        f"storage     {storage.uri}: {numbered(len(inventory.sweeps), 'sweep')}, "
        f"{numbered(len(inventory.trials), 'trial')}, {size_text(inventory.num_bytes)}"
    )
    rows = [("sweep", "trials", "exclusive", "their size", "sweep files", "last change", "")]
    for sweep in inventory.sweeps:
        exclusive = inventory.only_of(sweep)
        there = len(sweep.trials & inventory.trials.keys())
        alone = str(len(exclusive)), size_text(sum(trial.num_bytes for trial in exclusive))
        state = "runs" if sweep.driver else "damaged" if sweep.problem else ""
        age = f"{duration(max(0.0, now - sweep.modified))} ago"
        rows.append((sweep.name, str(there), *alone, size_text(sweep.num_bytes), age, state))
    yield from ["", *columns(rows, "lrrrrrl")]
    shared = [name for name in inventory.trials if len(inventory.users(name)) > 1]
    if shared:
        size = size_text(sum(inventory.trials[name].num_bytes for name in shared))
        yield f"\nshared      {numbered(len(shared), 'trial')} of several sweeps, {size}"
    half = [name for name, trial in inventory.trials.items() if trial.status == HALF]
    orphans = inventory.orphans
    if orphans:
        size = size_text(sum(trial.num_bytes for trial in orphans))
        yield f"\norphans     {numbered(len(orphans), 'trial')} that no sweep uses, {size}"
        yield from _trial_lines(inventory, [trial.name for trial in orphans], now)
    used = [name for name in half if name not in {trial.name for trial in orphans}]
    if used:
        yield f"\nincomplete  {numbered(len(used), 'trial')} of sweeps: files without a result"
        yield from _trial_lines(inventory, used, now)
    if others := [f"{name} {size_text(size)}" for name, size in inventory.others.items() if size]:
        yield f"\nother       {', '.join(others)}"
    yield from ["", *_cache_lines(list(cache_entries()), now)]


def _trial_lines(inventory: Inventory, names: Sequence[str], now: float) -> Iterator[str]:
    words = {DONE: "", HALF: "incomplete: files without a result"}
    rows = [("  trial", "size", "last change", "")]
    for name in names[:LISTED]:
        trial = inventory.trials[name]
        age = f"{duration(max(0.0, now - trial.modified))} ago"
        users = ", ".join(inventory.users(name))
        what = words.get(trial.status, "unfinished")
        about = ", ".join(filter(None, [users and f"of {users}", what]))
        rows.append((f"  {name}", size_text(trial.num_bytes), age, about))
    yield from columns(rows, "lrrl")
    if len(names) > LISTED:
        yield f"  and {len(names) - LISTED} more"


def _cache_lines(entries: Sequence[CacheEntry], now: float) -> Iterator[str]:
    size = size_text(sum(entry.num_bytes for entry in entries))
    yield f"cache       {cache_root()}, of this machine: {size}, built again when needed"
    rows = [("  kind", "", "size", "last used")]
    for kind in dict.fromkeys(entry.kind for entry in entries):
        of_kind = [entry for entry in entries if entry.kind == kind]
        ages = sorted(max(0.0, now - entry.used) for entry in of_kind)
        used = f"{duration(ages[0])} ago"
        used += f", the oldest {duration(ages[-1])} ago" if len(of_kind) > 1 else ""
        size = size_text(sum(entry.num_bytes for entry in of_kind))
        rows.append((f"  {kind}", numbered(len(of_kind), "folder"), size, used))
    yield from columns(rows, "lrrl") if entries else []


def _plan(
    inventory: Inventory,
    chosen: Sequence[StoredSweep],
    args: argparse.Namespace,
    argv: Sequence[str],
) -> Iterator[str]:
    """What the flags would remove."""
    yield ""
    if not (chosen or args.orphans or args.cache is not None):
        if inventory.orphans:
            yield f"remove the orphans: {our_command('storage', *argv, '--orphans')}"
        yield f"remove a sweep:     {our_command('storage', *argv, '--remove')} SWEEP"
        return
    gone: set[str] = set()
    for sweep in chosen:
        exclusive = inventory.only_of(sweep)
        gone |= {trial.name for trial in exclusive}
        size = sweep.num_bytes + sum(trial.num_bytes for trial in exclusive)
        kept = len(sweep.trials & inventory.trials.keys()) - len(exclusive)
        stay = f"; {numbered(kept, 'trial')} of other sweeps are kept" if kept else ""
        alone = f"{numbered(len(exclusive), 'trial')}, {size_text(size)}"
        yield f"to remove   {sweep.name} with {alone}{stay}"
    if args.orphans:
        gone |= {trial.name for trial in inventory.orphans}
        text = size_text(sum(trial.num_bytes for trial in inventory.orphans))
        yield f"to remove   {numbered(len(inventory.orphans), 'orphan')}, {text}"
    if (chosen or args.orphans) and (runs := leftovers(inventory.storage, gone)):
        text = size_text(sum(run.num_bytes for run in runs))
        yield f"to remove   {numbered(len(runs), 'MLflow run')} of trials that are gone, {text}"
    if args.cache is not None:
        old = _old(args.cache)
        text = size_text(sum(entry.num_bytes for entry in old))
        yield f"to remove   {numbered(len(old), 'folder')} of the cache, {text}"
    yield f"Nothing was removed. To carry it out: {our_command('storage', *argv, '--yes')}"


def _removals(
    inventory: Inventory, chosen: Sequence[StoredSweep], args: argparse.Namespace
) -> Iterator[str]:
    """Removes, and says what is gone."""
    storage = inventory.storage
    yield ""
    for sweep in chosen:
        *trials, _ = remove_sweep(storage, sweep.name)
        forget_sweep(storage, sweep.name)
        yield f"removed     {sweep.name} with {numbered(len(trials), 'trial')}"
    if args.orphans:
        now = take_inventory(storage)  # a sweep may have begun, another is gone
        now.check_removable()
        names = [trial.name for trial in now.orphans]
        yield f"removed     {numbered(len(list(remove_trials(storage, names))), 'orphan')}"
    if (chosen or args.orphans) and own_database(storage):
        yield f"removed     {numbered(remove_leftovers(storage), 'MLflow run')} of gone trials"
    if args.cache is not None:
        old = _old(args.cache)
        for entry in old:
            remove_folder(entry.kind, entry.path.name)
        yield f"removed     {numbered(len(old), 'folder')} of the cache"


def _old(days: float) -> list[CacheEntry]:
    """What the cache has not used for some days."""
    before = time.time() - days * DAY
    return [entry for entry in cache_entries() if entry.used < before]
