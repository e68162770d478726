"""A sweep from the command line to the tested table."""

import math
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from rank_core.errors import BadInput, shown
from sweeps.driver.budget_limit import Budgeted, note_held_back, within_budget
from sweeps.driver.confirmation import Shortlist, confirmation_stores, find_shortlist, freeze
from sweeps.driver.plan_text import forecast_text, plan_text
from sweeps.driver.results import log_results, write_results
from sweeps.driver.webhook import announced, check_webhook
from sweeps.engine import EngineLost, local
from sweeps.engine.progress import Monitor
from sweeps.engine.trial_task import GIBIBYTE
from sweeps.forecast.forecast import calibrate, forecast, real_seconds, slots_of
from sweeps.plan.experiment import Experiment
from sweeps.plan.live_text import LiveText, is_live_terminal
from sweeps.plan.make_plan import make_plan, own_code
from sweeps.plan.options import BOOTSTRAP, Options
from sweeps.plan.plan import Plan, Trial
from sweeps.plan.secrets import redact_text
from sweeps.plan.terminal import numbered, say
from sweeps.search.search import Known, Search, make_search, search_class
from sweeps.store.checksums import read_result
from sweeps.store.driver_lock import only_driver
from sweeps.store.kept_weights import KeptWeights
from sweeps.store.plan_description import manifest, write_description
from sweeps.store.storage_retry import answered, patient_read
from sweeps.store.sweep_file import FIRST_STAGE, update_sweep_file
from sweeps.store.trial_status import TrialStatus
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import TrialTable
from sweeps.tracking.uploader import Uploader
from sweeps.tracking.uri import check_database, check_tracking_uri, default_tracking_uri

DONE, FAILED_TRIALS, OUT_OF_BUDGET = 0, 3, 4  # exit codes
DRAIN_SECONDS = 60.0
Means = Mapping[str, Mapping[str, float]]  # {split: {measure: mean}}


def run_sweep(experiment: Experiment, options: Options, argv: list[str]) -> int:
    """Plans and runs a sweep; returns the exit code. A confirmation is a sweep over the frozen pair
    of a finished one."""
    store = Store(options.storage, experiment.name)
    _check_storage(store, options)
    check_webhook()
    if not options.confirm:
        return _sweep(experiment, options, argv, store)
    first, store = confirmation_stores(store, options)
    shortlist = find_shortlist(first, store, options)
    options = replace(options, seeds=shortlist.seeds(options))
    return _sweep(shortlist.experiment(experiment), options, argv, store, shortlist)


def _sweep(
    experiment: Experiment,
    options: Options,
    argv: list[str],
    store: Store,
    shortlist: Shortlist | None = None,
) -> int:
    """`store` is the confirmation's own, or the experiment's."""
    uri = options.tracking_uri
    tracking_uri = default_tracking_uri(store) if uri is None else uri
    check_tracking_uri(tracking_uri)
    if uri is not None:
        check_database(tracking_uri)
    plan = make_plan(experiment, options, shortlist.base if shortlist else None)
    options = replace(options, code=own_code(plan))
    if plan.search.kind.proposes:
        plan = replace(plan, search=plan.search.filling(slots_of(options), len(plan.seeds)))
    if shortlist:
        shortlist.check(plan)
    else:
        store = store.of(plan.inputs.collection)
        _check_same_sweep(experiment, store)
    _check_smoke_test(options, store)
    if options.dry_run:
        _dry_run(plan, store, options)
        return DONE
    answered(store, store.open)
    with only_driver(store):
        store.drop_arrivals()
        if shortlist:
            freeze(store, shortlist)
        table = TrialTable(store)
        with table.kept():
            drive = partial(_drive, plan, store, table, options, argv, tracking_uri)
            return announced(store, table, drive)


def _check_same_sweep(experiment: Experiment, store: Store) -> None:
    """Refuses a folder that holds another sweep of the same name."""
    stored = store.described()
    if stored and (stored.question, stored.swept) != (experiment.question, experiment.swept):
        raise BadInput(
            f"{store.root} holds another sweep called {experiment.name}, with the question "
            f"{shown(stored.question)} and swept {', '.join(stored.swept) or 'nothing'}; this one "
            f"has {shown(experiment.question)} and {', '.join(experiment.swept)}. Give it another "
            "name or another --storage"
        )


def _check_smoke_test(options: Options, store: Store) -> None:
    """Refuses a smoke test that would replace the description and report of a whole sweep."""
    if options.smoke_test and (stored := store.described()) and not stored.is_smoke_test:
        raise BadInput(
            f"{store.root} holds a sweep that is no smoke test; give --smoke-test another --storage"
        )


def _check_storage(store: Store, options: Options) -> None:
    """Refuse an unusable storage before planning, which may take long."""
    if store.is_memory and options.engine != "local":
        raise BadInput(
            "--storage must be where every process of a trial can write; memory:// is the memory "
            "of one process. Give a folder, a URI such as s3://bucket/path, or --engine local"
        )
    if not store.is_local:
        answered(store, store.collections)


def _drive(
    plan: Plan,
    store: Store,
    table: TrialTable,
    options: Options,
    argv: list[str],
    tracking_uri: str,
) -> int:
    """Runs the sweep as its only driver; returns the exit code."""
    table.begin(plan)
    finished = Finished(store)
    store.drop_checkpoints(finished.names)
    weights = _weights(plan, store, options)
    finished.run_again(_incomplete(plan, finished.names, weights, options))
    search = make_search(plan, _known_status(table, finished), store)
    plan = search.plan
    finished.check(trial.name for trial in plan.trials())
    adopted = finished.adopt(plan.trials())
    feed = within_budget(search, options, table)
    done = plan.num_trials - len(table.plan(plan, finished.names, search.resting()))
    say(plan_text(plan, finished=done))
    if adopted:
        say(f"reused      {numbered(len(adopted), 'trial')} of other sweeps in {store.storage}")
    say("")
    _describe(search, store, argv, options)
    if isinstance(feed, Budgeted) and feed.budget.device_hours < math.inf:
        update_sweep_file(store.folder, budget=feed.described())
        store.push("sweep.json")
    # Also trials of other plans and machines, whose files this command sends to MLflow.
    patient_read(store, lambda: store.pull(finished.names & table.state.trials.keys()))
    name = experiment_name(options, store)
    uploader = Uploader(store.folder, tracking_uri, name)
    uploader.start()
    try:
        if not feed.over:
            _launch(search, feed, store, table, options, weights)
        elif search.over:
            say("nothing to launch: all trials have ended")
        if search.over:
            store.drop_checkpoints(set(search.resting()))  # no trial resumes from them
        finished.compare()
        _print_weights(weights, options, search.plan)
        held_back = note_held_back(feed, store)
        report = write_results(search.plan, store, table)
    finally:
        pending = uploader.close(DRAIN_SECONDS)
    if pending:
        why = f" ({uploader.trouble})" if uploader.trouble else ""
        say(
            f"warning: MLflow has not received {numbered(pending, 'event')}{why}; they are safe in "
            f"{table.log.path}. Send them later: ranksweep sync {store.uri}"
        )
    elif report:
        log_results(store, table.state.trials, tracking_uri, name)
    say(report.text if report else "no report: no trial has finished")
    return _ending(search, table, held_back)


def _describe(search: Search, store: Store, argv: list[str], options: Options) -> None:
    """Writes `sweep.json` and the judgments, for `status` and the report."""
    description = replace(
        manifest(search.plan, argv),
        alpha=options.alpha,
        interpolate=options.interpolate,
        experiment=experiment_name(options, store),
        tracking_uri=redact_text(options.tracking_uri or ""),  # "": that of the reader
    )
    write_description(store.folder, search.plan, description)
    search.describe()
    store.push("sweep.json", "qrels", FIRST_STAGE)


def _ending(search: Search, table: TrialTable, held_back: str) -> int:
    """The exit code; prints the reason if a budget held trials back."""
    ahead = {trial.name for trial in search.ahead} if held_back else set()
    chosen = [trial for trial in search.decision.wanted if trial.name not in ahead]
    rests = {
        trial.name
        for trial in chosen
        if trial.epochs and table.status(trial) is TrialStatus.STOPPED
    }
    lost = [t for t in chosen if t.name not in rests and not table.status(t).used]
    if held_back:
        say(f"stopped     {held_back}")
    return FAILED_TRIALS if lost else OUT_OF_BUDGET if held_back else DONE


class Finished:
    """The trials with a result when a command begins. Each is checked first: a damaged one is set
    aside and runs again."""

    def __init__(self, store: Store) -> None:
        self.store, self.names = store, store.finished()
        self._checked: set[str] = set()
        self._before: dict[str, Means] = {}  # of trials that run again

    def check(self, names: Iterable[str]) -> None:
        """Removes damaged trials, with a warning."""
        for name in sorted((self.names & set(names)) - self._checked):
            self._checked.add(name)
            damage = patient_read(self.store, partial(self.store.damage, name))
            if damage:
                folder = patient_read(self.store, partial(self.store.set_aside, name))
                self.names.discard(name)
                say(f"warning: {name} is damaged ({damage}): kept as runs/{folder}, runs again")

    def adopt(self, trials: Iterable[Trial]) -> set[str]:
        """Takes over trials that other sweeps have finished; returns their names."""
        adopted = patient_read(self.store, partial(self.store.adopt, list(trials)))
        self.names |= adopted
        self._checked |= adopted
        return adopted

    def run_again(self, names: set[str]) -> None:
        """Mark trials with missing files to run again; until then the store has their values."""
        self.check(names)
        names = names & self.names
        for name in sorted(names):
            self._before[name] = self._values(name)
            if not self.store.is_local:  # the new one will be pulled
                shutil.rmtree(self.store.folder / "runs" / name)
        self.names -= names
        if names:
            say(
                f"rerun {numbered(len(names), 'finished trial')} without a file that this command "
                "needs"
            )

    def compare(self) -> None:
        """Warn of trials that ran again with other values than before."""
        for name, before in self._before.items():
            if (now := self._values(name)) != before:
                say(
                    f"warning: {name} ran again with other values ({_means(now)}; before "
                    f"{_means(before)}), because GPUs and other machines may round differently: "
                    "the new values count"
                )

    def _values(self, name: str) -> Means:
        patient_read(self.store, partial(self.store.pull, {name}))
        facts = read_result(self.store.folder / "runs" / name).facts
        return {split: facts.get(split, {}) for split in ("dev", "test")}


def _means(values: Means) -> str:
    means = [f"{split} {m} {v:.4f}" for split, of in values.items() for m, v in of.items()]
    return ", ".join(means)


def _weights(plan: Plan, store: Store, options: Options) -> KeptWeights:
    measure = plan.base.evaluation.measures[0]
    return KeptWeights(store, measure, int(options.weights_gib * GIBIBYTE))


def _print_weights(weights: KeptWeights, options: Options, plan: Plan) -> None:
    if num_kept := weights.num_kept(plan.trials()):
        say(
            f"weights     of {numbered(num_kept, 'trial')} kept; the winner as a model:\n"
            f"            ranksweep export {weights.store.uri} --to FOLDER"
        )
    if weights.over_quota:
        say(
            f"weights     of {numbered(len(weights.over_quota), 'cell')} not kept: --weights-gib "
            f"{options.weights_gib:g} is full; the best on dev come first"
        )


def _incomplete(plan: Plan, finished: set[str], weights: KeptWeights, options: Options) -> set[str]:
    """The finished trials of the plan that lack a file: one of every trial, or the weights of the
    best seeds where the command sets `training.keep_weights`."""
    trials = [trial for trial in plan.trials() if trial.name in finished]
    lacking = weights.store.lacking(trials, finished)
    if options.settings.get("training.keep_weights") == "best":
        names = {trial.name for trial in trials}
        patient_read(weights.store, partial(weights.store.pull, names))
        weights.take_in(sorted(names))
        lacking |= weights.missing(trials)
    return lacking


def _known_status(table: TrialTable, finished: Finished) -> Known:
    """A function from a trial to its status before this command."""

    def known(trial: Trial) -> str | None:
        finished.check([trial.name])
        if trial.name not in finished.names:
            finished.adopt([trial])  # a new proposal
        if trial.name in finished.names:
            table.finished(trial)
        status = table.status(trial)
        # The log has the end of a trial even if its result is lost.
        over = status.over and not (status.used and trial.name not in finished.names)
        return status if over else None

    return known


def experiment_name(options: Options, store: Store) -> str:
    """MLflow's experiment of the sweep, specific to storage and collection."""
    return f"{options.experiment_prefix}/{store.sweep.replace('/', '-')}-{store.identity}"


def _dry_run(plan: Plan, store: Store, options: Options) -> None:
    """Print the plan with its forecast; launch and write nothing."""
    finished = store.finished()
    again = _incomplete(plan, finished, _weights(plan, store, options), options)
    done = (finished | store.adoptable(plan.trials())) - again
    say(plan_text(plan, finished=sum(trial.name in done for trial in plan.trials())))
    most = search_class(plan.search.name).costliest_trials(plan)
    missing = [trial for trial in most if trial.name not in done]
    if missing:
        costs = forecast(plan, options)
        real = real_seconds(plan.trials(), finished, store, costs)
        calibration = calibrate(real)
        say("\n" + forecast_text(missing, costs, calibration))


def _launch(
    search: Search,
    feed: Search | Budgeted,
    store: Store,
    table: TrialTable,
    options: Options,
    weights: KeptWeights,
) -> None:
    weights.take_in(sorted(store.finished() & table.state.trials.keys()))
    weights.prune()
    # A debugger needs the terminal; `ray submit` has another one.
    live = options.engine == "ray" and not BOOTSTRAP.expanduser().exists() and is_live_terminal()
    monitor = Monitor(
        table, feed, search.plan.base.evaluation.measures[0], weights, LiveText() if live else None
    )
    try:
        _engine(options)(feed, store=store, options=options, monitor=monitor)
    except (KeyboardInterrupt, EngineLost) as end:
        monitor.interrupted()
        _note_stopped(store, str(end) or "interrupted")
        raise
    except Exception as error:
        _note_stopped(store, f"by an error: {type(error).__name__}: {error}")
        raise
    finally:
        monitor.close()


def _engine(options: Options) -> Callable[..., None]:
    if options.engine == "local":
        return local.run_trials
    from sweeps.ray_engine.runner import run_trials

    return run_trials


def _note_stopped(store: Store, reason: str) -> None:
    """Records the reason for `status` and the report; a failure to do so hides no other error."""
    with suppress(Exception):  # every filesystem has its own kinds
        update_sweep_file(store.folder, stopped=redact_text(reason)[:300])
        store.push("sweep.json")
