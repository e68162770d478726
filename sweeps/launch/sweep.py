"""A sweep from the command line to the tested table."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rank_core.cache import cache_root, opened_anew
from rank_core.checkpoints.weights import WEIGHTS
from rank_core.errors import BadInput
from rank_core.machine import suited_precision, trial_device
from rank_core.secrets import redact_text
from rank_core.trial.trial import prepare
from sweeps.engine import EngineLost, local
from sweeps.engine.kept_weights import KeptWeights, lacking
from sweeps.engine.progress import Screen
from sweeps.engine.trial_events import TrialEvents
from sweeps.forecast.elsewhere import elsewhere_text, modelled
from sweeps.forecast.forecast import (
    Calibration,
    Forecast,
    calibrate,
    forecast,
    real_seconds,
    slots_of,
    this_machine,
)
from sweeps.launch.at_home import home_lines
from sweeps.launch.budget_limit import limit_to_budget, note_held_back
from sweeps.launch.confirmation import Shortlist, confirmation_records, find_shortlist
from sweeps.launch.plan_text import forecast_text, plan_text
from sweeps.launch.progress_file import ProgressFile
from sweeps.launch.published_plan import published_plan
from sweeps.launch.same_sweep import check_same_sweep
from sweeps.launch.search_from import started
from sweeps.launch.test_sets import (
    Tested,
    facts_of_sets,
    hours_spent,
    kept_weights,
    release_weights,
    test_set_line,
    tested_by,
    untested,
)
from sweeps.plan.description import (
    SPLIT,
    description_of,
    evaluated_qrels,
    query_facts,
    write_description,
)
from sweeps.plan.experiment import Experiment
from sweeps.plan.machines import Machines
from sweeps.plan.make_plan import make_plan, own_code
from sweeps.plan.next_command import our_command
from sweeps.plan.options import Options, cluster_address, cluster_file
from sweeps.plan.plan import Plan, Trial
from sweeps.plan.resources import MACHINE, resources_of
from sweeps.report.build import Report, write_report
from sweeps.search.race import race_price
from sweeps.search.search import Search, make_search
from sweeps.store.lock import only_driver
from sweeps.store.queries import QueryFacts
from sweeps.store.records import Records, State
from sweeps.store.storage import Storage, StorageAway
from sweeps.store.sweep_file import (
    FILE,
    INTERPOLATED,
    described,
    local_copy,
    read_sweep_file,
    send,
    sweep_on,
    update_sweep_file,
)
from sweeps.store.trial_status import TrialStatus
from sweeps.systems.access_log import ACCESS_FILE
from sweeps.systems.clusters import Queries, check_clusters, clusters_from
from sweeps.terminal.command_line import check_writable
from sweeps.terminal.live_text import LiveText, NotebookText, in_notebook, is_live_terminal
from sweeps.terminal.notation import names_text
from sweeps.terminal.text import numbered, say, warn
from sweeps.tracking.client import (
    default_tracking_uri,
    shown_name,
    tracking_uri_of,
)
from sweeps.tracking.thread import MlflowThread
from sweeps.tracking.trial_run import experiment_id

DONE, FAILED_TRIALS, OUT_OF_BUDGET = 0, 3, 4  # exit codes
DRAIN_SECONDS, INTERRUPTED_SECONDS = 60.0, 3.0  # for MLflow at the end, and after Ctrl-C


class DryRun(NamedTuple):
    """A plan with the time of its trials that are still to run; nothing was launched."""

    plan: Plan
    missing: tuple[Trial, ...]
    costs: tuple[Forecast, ...]  # of this machine, or of each that --for names
    calibration: Calibration
    machines: tuple[Machines, ...] = ()  # of --for


class Outcome(NamedTuple):
    """The exit code of a sweep's command, and the folder or URI of the sweep."""

    code: int
    where: str


@opened_anew()  # inputs of other sweeps of this process are not this one's to share
def run_sweep(
    experiment: Experiment, options: Options, argv: list[str], *, check: bool = False
) -> Outcome:
    """Plans and runs a sweep; with `check` plans it alone, and writes nothing. A confirmation is a
    sweep over the frozen pair of a finished one."""
    records = Records(Storage(options.storage), experiment.name)
    check_storage(records, options)
    if options.dry_run and (text := published_plan(experiment, options)):
        say(text)
        return Outcome(DONE, records.uri)
    try:
        if not options.confirm:
            return _sweep(experiment, options, argv, records, check=check)
        collection = experiment.settings.get("collection")
        first, records = confirmation_records(records, options, collection)
        shortlist = find_shortlist(first, records, options)
        options = replace(options, seeds=shortlist.seeds(options))
        own = shortlist.experiment(experiment)
        return _sweep(own, options, argv, records, shortlist, check=check)
    except StorageAway as error:
        raise EngineLost(str(error)) from None


def plan_sweep(experiment: Experiment, options: Options) -> DryRun:
    """The plan of a sweep and its forecast. Raises `BadInput` where its command would."""
    records = Records(Storage(options.storage), experiment.name)
    check_storage(records, options)
    if not options.machines:
        _check_machine(options)
    plan = make_plan(experiment, options)
    records = sweep_on(records, plan.inputs.collection)
    check_same_sweep(plan, options, records)
    plan = started(plan, records)
    reported_queries(plan, str(options.tests.clusters))
    known = Known(plan, records, options)
    dry = _dry(plan, known, options)
    _check_budget(plan, known, options, dry.costs)
    return dry


def _sweep(
    experiment: Experiment,
    options: Options,
    argv: list[str],
    records: Records,
    shortlist: Shortlist | None = None,
    *,
    check: bool = False,
) -> Outcome:
    """`records` are the confirmation's own, or the experiment's."""
    tracking_uri = tracking_uri_of(records, options.tracking_uri)
    if not (options.prepare or options.machines):
        _check_machine(options)
    plan = make_plan(experiment, options, shortlist.base if shortlist else None)
    options = replace(options, code=own_code(plan))
    if plan.search.kind.proposes and not (options.prepare or options.machines):
        plan = replace(plan, search=plan.search.filling(slots_of(options), len(plan.seeds)))
    if shortlist:
        shortlist.check(plan)
    else:
        records = sweep_on(records, plan.inputs.collection)
        check_same_sweep(plan, options, records)
        plan = started(plan, records)
    reported_queries(
        plan, str(options.tests.clusters)
    )  # refuses unknown clusters before anything runs
    tested = tested_by(plan, records, options)  # likewise a set that no model can rank
    if check:
        return Outcome(DONE, records.uri)
    if options.dry_run:
        _dry_run(plan, records, options, tested)
        return Outcome(DONE, records.uri)
    if options.prepare:
        for own in (plan, *(one.plan for one in tested)):
            _prepare(own, options)
        return Outcome(DONE, records.uri)
    records.storage.open()
    engine = partial(_run_engine, argv=argv, tracking_uri=tracking_uri)
    with only_driver(records):
        code, plan = engine(plan, records, options, tested=tested)
        if tested:
            code = _test(plan, records, options, code, engine)
    return Outcome(code, records.uri)


def _test(
    plan: Plan, records: Records, options: Options, code: int, engine: Callable[..., Any]
) -> int:
    """Ranks the test sets by the finished trials of a plan; returns the exit code of all."""
    if code == OUT_OF_BUDGET:
        say("test sets   wait: the budget is used up; the same command with a larger one goes on")
        return code
    codes, hours = [code], hours_spent(records, plan)
    states = records.states(trial.name for trial in plan.trials())
    finished = {name for name, state in states.items() if state.status.used}
    sets = tested_by(plan, records, options, finished)
    for one in sets:
        say(f"\n{test_set_line(one)}")
        left = options.max_gpu_hours and max(0.0, options.max_gpu_hours - hours)
        own = replace(options, max_gpu_hours=left, seeds=one.plan.seeds)
        with only_driver(one.records):
            codes.append(engine(one.plan, one.records, own, trained=records)[0])
        hours += hours_spent(one.records, one.plan)
    if not untested(sets):
        release_weights(plan, records, options)
    report = _report(plan, records, verbose=options.verbose)
    if report and report.text_of_sets:
        say(f"\n{report.text_of_sets}")
    return max(codes)


def check_storage(records: Records, options: Options) -> None:
    """Refuses an unusable storage before planning, which may take long."""
    if records.storage.is_memory and options.engine != "local":
        raise BadInput(
            "--storage must be where every process of a trial can write; memory:// is the memory "
            "of one process. Give a folder, a URI such as s3://bucket/path, or --engine local"
        )
    if records.storage.is_local and not options.dry_run:
        check_writable("--storage", Path(records.storage.root))
    records.storage.answered(lambda: records.storage.folders(records.sweep))


def _check_machine(options: Options) -> None:
    """Refuses trials that need more than this machine has, before anything is written; a cluster
    is asked once it is joined."""
    if options.engine == "local":
        local.check_machine(options)
    elif cluster_address() is None:
        resources_of(options, [this_machine()], place=MACHINE)


def _run_engine(
    plan: Plan,
    records: Records,
    options: Options,
    *,
    argv: list[str],
    tracking_uri: str,
    tested: Sequence[Tested] = (),
    trained: Records | None = None,
) -> tuple[int, Plan]:
    """Runs the sweep as its only driver; returns the exit code and the plan with what a search has
    added. Each step needs the ones before it: trials are found, the search decides, `sweep.json` is
    written, trials run, and they are reported. The weights of all trials are kept for the `tested`
    sets; a test set is ranked by the models of `trained`."""
    known = Known(plan, records, options, tested)
    search = make_search(plan, known.status, records)
    # From here on the search has the plan: what it proposes is added there.
    known.read(trial.name for trial in search.plan.trials())
    search.begin()
    # Where models were trained before, what no longer fits waits for a larger budget.
    budget = limit_to_budget(search, options, known.states, refuses=trained is None)
    _print_plan(search, known, whole=trained is None)
    home = "" if trained else "\n".join(home_lines(records, tracking_uri))
    if home:
        say(f"{home}\n")
    experiment = _experiment(records, options.experiment_prefix, tracking_uri)
    # Before the first trial: `status` of a sweep that runs or was killed reads it.
    before = described(records)
    known_precision = before.auto_precision if before else {}
    options = replace(options, auto_precision=_auto_precision() | {**known_precision})
    facts = facts_of_sets(plan, tested, trained)
    _describe(search, argv, options, budget=budget, experiment=experiment, **facts)
    sync = our_command("sync", records.uri, *_with_secrets(tracking_uri))
    thread = MlflowThread(records, tracking_uri, experiment)
    with copied_to_mlflow(thread, rest=f"This command sends the rest: {sync}") as mlflow:
        gives_up = bool(before and before.test_sets) and not tested
        _launch(search, known, mlflow, options, gives_up=gives_up)
        for name in known.damaged:  # the report needs sound files or none
            records.drop_damaged(name)
        states = _ended(search, known, options)
        held_back = note_held_back(search)
        report = _results(search.plan, records, verbose=options.verbose)
    say(report.text if report else "no report: no trial has finished")
    if home:
        say(f"\n{home}")
    return _ending(search, states, held_back), search.plan


def _auto_precision() -> dict[str, str]:
    """What `training.precision=auto` is by the devices of this machine, for all nodes of the sweep
    and all later commands. For the GPUs of a cluster the engine decides once it has joined."""
    here = {"cpu": torch.device("cpu")}
    if (device := trial_device()).type == "cuda" and not cluster_address():
        here["cuda"] = device
    return {kind: suited_precision(device) for kind, device in here.items()}


def _experiment(records: Records, prefix: str, tracking_uri: str) -> str:
    """The identity of the sweep's experiment. In the storage's own database it stays where the
    storage was moved or copied, and the experiment goes on."""
    now, before = experiment_id(prefix, records.sweep, records.identity), described(records)
    own = records.storage.is_local and tracking_uri == default_tracking_uri(records)
    if own and before and shown_name(before.experiment) == shown_name(now):
        return before.experiment
    return now


def _print_plan(search: Search, known: "Known", *, whole: bool) -> None:
    """Prints the plan, `whole` or what has ended of it; checkpoints of ended trials are dropped."""
    records, plan = search.records, search.plan
    ended = [trial.name for trial in plan.trials() if known.status(trial)]
    records.drop_checkpoints(ended)
    if whole:
        say(plan_text(plan, finished=len(ended)))
    elif ended:
        say(f"{len(ended)} of {numbered(plan.num_trials, 'trial')} done")
    if reused := sum(not known.states[name].attempts for name in ended):
        say(f"reused      {numbered(reused, 'trial')} of other sweeps in {records.storage.uri}")
    say("")


@contextmanager
def copied_to_mlflow(mlflow: MlflowThread, *, rest: str) -> Iterator[MlflowThread]:
    """The thread writes MLflow while the block runs; then says what MLflow lacks, and how it gets
    the `rest`."""
    mlflow.start()
    seconds = DRAIN_SECONDS
    try:
        yield mlflow
    except KeyboardInterrupt:
        say(f"interrupted: sending the remaining data to MLflow (up to {INTERRUPTED_SECONDS:g} s)")
        seconds = INTERRUPTED_SECONDS
        raise
    finally:
        lacking = mlflow.close(seconds)
    if lacking:
        why = f" ({mlflow.trouble})" if mlflow.trouble else ""
        say(f"warning: MLflow is missing {lacking}{why}. {rest}")


def _with_secrets(tracking_uri: str) -> list[str]:
    """The flag with a tracking URI whose secrets `sweep.json` lacks, to be filled in."""
    shown = redact_text(tracking_uri)
    return [] if shown == tracking_uri else ["--tracking-uri", shown]


def _ended(search: Search, known: "Known", options: Options) -> dict[str, State]:
    """The trials after the launch, with what the command has to say of them."""
    records = search.records
    states = records.states(trial.name for trial in search.plan.trials())
    if search.complete:
        stopped = [s.name for s in states.values() if s.status is TrialStatus.STOPPED]
        records.drop_checkpoints(stopped)
    known.compare(states)
    _print_weights(known.weights, options, search.plan)
    return states


def _describe(search: Search, argv: list[str], options: Options, **facts: Any) -> None:
    """Writes `sweep.json` and the judgments, for `status` and the report."""
    records = search.records
    queries, clusters = reported_queries(search.plan, str(options.tests.clusters))
    tests = replace(options.tests, clusters=clusters)
    described_now = description_of(search.plan, argv, options.asked, tests)
    before = described(records)
    if before is None and records.read_file(FILE) is not None:
        warn(f"{records.uri}/{FILE} was edited: it is rewritten")
    # Trials of earlier commands stay known, also where this one asks for fewer.
    trials = (*(before.trials if before else ()), *described_now.trials)
    description = replace(
        described_now,
        trials=tuple(dict.fromkeys(trials)),
        interpolate=options.interpolate,
        tracking_uri=options.tracking_uri or "",  # "": that of the reader
        auto_precision=options.auto_precision,
        **facts,
    )
    write_description(records, search.plan, description, queries)
    search.describe()


def reported_queries(plan: Plan, given: str) -> tuple[QueryFacts, str]:
    """The facts of the reported queries with their clusters, and what these are made of. Raises
    `BadInput` where `given`, of --clusters, does not know them."""
    facts = query_facts(plan, SPLIT)
    if not given:
        return facts, ""
    found = clusters_from(given, {"": Queries(facts, evaluated_qrels(plan, SPLIT))})
    check_clusters(found, {"": [*facts.text]})
    of = {query_id: found.of[""][query_id] for query_id in facts.text}
    return replace(facts, cluster=of), found.source


def _ending(search: Search, states: Mapping[str, State], held_back: str) -> int:
    """The exit code; prints the reason if a budget held trials back."""
    ahead = {trial.name for trial in search.unstarted} if held_back else set()
    chosen = [trial.name for trial in search.decision.wanted if trial.name not in ahead]
    status = {name: states[name].status for name in chosen}
    lost = [name for name in chosen if not status[name].used]
    lost = [name for name in lost if status[name] is not TrialStatus.STOPPED]
    if held_back:
        say(f"stopped     {held_back}")
    return FAILED_TRIALS if lost else OUT_OF_BUDGET if held_back else DONE


class Known:
    """The trials of a plan as a command finds them; it changes none. Finished ones are checked: a
    damaged one, or one that lacks a file which this command needs, runs again."""

    def __init__(
        self, plan: Plan, records: Records, options: Options, tested: Sequence[Tested] = ()
    ) -> None:
        self.records, self.states, self.damaged = records, dict[str, State](), list[str]()
        self.weights = kept_weights(plan, records, options, held=bool(tested))
        self._untested = untested(tested)
        self._stops = plan.search.kind.stops
        self.read(trial.name for trial in plan.trials())
        self._again = self._lacking(plan, options)
        if self._again:  # until then their values stay
            count = numbered(len(self._again), "finished trial")
            files = names_text(sorted({*self._again.values()}))
            say(f"running {count} again: {files} was not saved")

    def read(self, names: Iterable[str]) -> None:
        """Reads the trials that are not known yet."""
        new = [name for name in names if name not in self.states]
        states = self.records.states(new) if new else {}  # an object store would list them all
        for name, state in states.items():
            if damage := self.records.damage(state, thorough=True):
                say(f"warning: {name} is damaged ({damage}): running it again")
                state = replace(state, status=TrialStatus.PLANNED, facts={})
                self.damaged.append(name)
            self.states[name] = state

    def status(self, trial: Trial) -> str | None:
        """The status of a trial that has ended for good, by whatever command; else None."""
        self.read([trial.name])
        status = self.states[trial.name].status
        stopped = status is TrialStatus.STOPPED and self._stops
        return status if (status.over or stopped) and trial.name not in self._again else None

    def _lacking(self, plan: Plan, options: Options) -> dict[str, str]:
        """{finished trial: the file that it lacks}: one of every trial, the weights of the best
        seeds where the command sets `training.keep_weights`, or those that a test set needs."""
        trials = list(plan.trials())
        missing = lacking(trials, self.states)
        if options.settings.get("training.keep_weights") == "best":
            self.weights.take_in(self.states.values())
            missing |= dict.fromkeys(self.weights.missing(trials), WEIGHTS)
        for name in self._untested:
            if self.states[name].status.used and WEIGHTS not in self.states[name].files:
                missing[name] = WEIGHTS
        return missing

    def compare(self, states: Mapping[str, State]) -> None:
        """Warns of trials that ran again with other values than before."""
        for name in sorted(self._again):
            before, now = self.states[name].facts, states[name].facts
            if any(before.get(split) != now.get(split) for split in ("dev", "test")):
                say(
                    f"warning: {name} ran again with other values, because GPUs and other "
                    "machines may round differently: the new values count"
                )


def _print_weights(weights: KeptWeights, options: Options, plan: Plan) -> None:
    if num_kept := weights.num_kept(plan.trials()):
        say(
            f"weights     saved for {numbered(num_kept, 'trial')}. Export the choice:\n"
            f"            {our_command('export', weights.records.uri, '--to', 'model')}"
        )
    if weights.over_quota:
        say(
            f"weights     not saved for {numbered(len(weights.over_quota), 'cell')}: --weights-gib "
            f"{options.weights_gib:g} is full; the best on dev come first"
        )


def _dry_run(plan: Plan, records: Records, options: Options, tested: Sequence[Tested] = ()) -> None:
    """Prints the plan with its forecast, and those of its test sets; launches and writes
    nothing."""
    known = Known(plan, records, options, tested)
    missing = [trial for trial in plan.trials() if not known.status(trial)]
    say(plan_text(plan, finished=plan.num_trials - len(missing)))
    _check_budget(plan, known, options, _print_forecast(plan, known, options))
    for one in tested:
        say(f"\n{test_set_line(one)}")
        _print_forecast(one.plan, Known(one.plan, one.records, options), options)


def _print_forecast(plan: Plan, known: "Known", options: Options) -> Sequence[Forecast]:
    """Prints the time of the trials that are still to run; returns its forecasts."""
    dry = _dry(plan, known, options)
    if not dry.missing:
        return ()
    if options.machines:
        there = [*zip(options.machines, dry.costs, strict=True)]
        say("\n" + elsewhere_text(plan, dry.missing, there, dry.calibration))
    else:
        stops = plan.search.kind.stops
        race = race_price(plan) if len(dry.missing) == plan.num_trials else None
        text = forecast_text(dry.missing, dry.costs[0], dry.calibration, stops=stops, race=race)
        say(f"\n{text}")
    return dry.costs


def _dry(plan: Plan, known: "Known", options: Options) -> DryRun:
    """The time of the trials that are still to run, here or on the machines of --for."""
    missing = tuple(trial for trial in plan.trials() if not known.status(trial))
    if not missing:
        return DryRun(plan, (), (), calibrate([]))
    costs = _costs(plan, options, plan.num_trials - len(missing))
    if options.machines:
        return DryRun(plan, missing, costs, calibrate([]), options.machines)
    return DryRun(plan, missing, costs, calibrate(real_seconds(known.states.values(), costs[0])))


def _costs(plan: Plan, options: Options, num_ended: int) -> tuple[Forecast, ...]:
    """The forecasts of a plan here, or on the machines of --for."""
    if options.machines:
        return tuple(modelled(plan, own, options, num_ended) for own in options.machines)
    return (forecast(plan, options, num_ended),)


def _check_budget(plan: Plan, known: "Known", options: Options, costs: Sequence[Forecast]) -> None:
    """Raises `BadInput` for a budget that the run would refuse; writes nothing. `costs` are those
    of the plan, none where its trials have ended."""
    if options.max_gpu_hours is None:
        return
    search = make_search(plan, known.status, known.records)
    search.writes = False
    known.read(trial.name for trial in search.plan.trials())
    if search.begin().complete:
        return
    for own in costs or _costs(search.plan, options, search.num_ended):
        limit_to_budget(search, options, known.states, own)


def _prepare(plan: Plan, options: Options) -> None:
    """Prepares the inputs of all configurations on every node of the cluster, or on this machine.
    Finished files are kept; a killed preparation begins the others again."""
    configs = [cell.config for cell in plan.cells]
    if options.engine == "local" or cluster_address() is None:
        for config in dict.fromkeys(replace(config, seed=0) for config in configs):
            prepare(config)
    else:
        from sweeps.ray_engine.cluster import prepare_cluster

        prepare_cluster(configs, options.code)
    say(f"prepared    {plan.base.collection} for {plan.base.model.backbone} in {cache_root()}")


def _results(plan: Plan, records: Records, *, verbose: bool) -> Report | None:
    """Writes the report of the finished trials; None without any."""
    states = records.states(trial.name for trial in plan.trials())
    finished = [state for state in states.values() if state.status.used]
    if not finished:
        return None
    kinds: dict[str, dict[str, None]] = {}
    for state in finished:
        for name, version in state.facts["versions"].items():
            versions = state.devices if name == "device" else (version,)
            kinds.setdefault(name, {}).update(dict.fromkeys(versions))
    update_sweep_file(records, versions={name: ", ".join(kinds[name]) for name in kinds})
    shares = {
        what: 100 * max(state.facts[name] for state in finished)
        for what, name in (("evaluation", "padding_share"), ("training", "training_padding_share"))
    }
    shown = [(share, what) for what, share in shares.items() if round(share, 1)]
    if shown:
        (first, what), *others = shown
        also = "".join(f", {share:.1f}% in {name}" for share, name in others)
        say(f"padding     at most {first:.1f}% of a trial's tokens in {what}{also}")
    return _report(plan, records, verbose=verbose)


def _report(plan: Plan, records: Records, *, verbose: bool) -> Report | None:
    """Writes the report of a sweep with a finished trial, with its table over all test sets."""
    if not any(s.status.used for s in records.states(t.name for t in plan.trials()).values()):
        return None
    copy = local_copy(records, read_sweep_file(records))
    collection = plan.inputs.collection
    report = write_report(copy.folder, uri=records.uri, collection=collection, verbose=verbose)
    send(copy, "report", INTERPOLATED, ACCESS_FILE)
    return report


def _launch(
    search: Search, known: Known, mlflow: MlflowThread, options: Options, *, gives_up: bool
) -> None:
    """Runs the trials that the search selects, to the end of the search. Weights that were kept for
    test sets which this command `gives_up` go; other sweeps may need those of the same trials."""
    if gives_up or not search.over:
        known.weights.take_in(known.states.values())
        known.weights.prune([cell.cell for cell in search.plan.cells], search.eliminated)
    if search.over:
        if search.complete:
            say("nothing to launch: all trials have ended")
        return
    # A debugger needs the terminal; `ray submit` has another one.
    in_place = options.engine == "ray" and not cluster_file() and is_live_terminal()
    live = NotebookText() if in_notebook() else LiveText() if in_place else None
    primary = search.plan.base.evaluation.measures[0]
    screen = Screen(search, primary, known.states, live=live)
    events = TrialEvents(search.records, mlflow, search, screen, known.weights, options.callbacks)
    progress = ProgressFile(events)
    try:
        if options.engine == "local":
            local.run_trials(events, options)
        else:
            from sweeps.ray_engine.runner import run_trials

            run_trials(events, options)
        search.describe()
    except (KeyboardInterrupt, EngineLost) as end:
        progress.interrupted()
        events.interrupted()
        _note_stopped(search, str(end) or "interrupted")
        raise
    except StorageAway:
        raise  # what is noted would wait for it, too
    except Exception as error:
        _note_stopped(search, f"by an error: {type(error).__name__}: {error}")
        raise
    finally:
        screen.close()


def _note_stopped(search: Search, reason: str) -> None:
    """Records the reason for `status` and the report; never masks the original error."""
    with suppress(Exception):  # every filesystem has its own kinds
        update_sweep_file(search.records, stopped=redact_text(reason)[:300])
    with suppress(Exception):  # a search reads trials, which may be the error
        search.describe()
