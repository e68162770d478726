"""The Ray cluster of a sweep: its nodes, their inputs, and the resources of a trial."""

import logging
import math
import os
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from rank_core.errors import BadInput
from rank_core.parsing import parsed_json
from rank_core.settings.config import TrialConfig
from sweeps.plan.options import Options, cluster_address, cluster_file
from sweeps.plan.resources import CLUSTER, KIND, OF_KIND, Node, Resources, resources_of, workers_on
from sweeps.ray_engine.drain import draining_nodes
from sweeps.ray_engine.nodes import LINE_SECONDS, prepare_nodes
from sweeps.ray_engine.start import BELOW, keep_secrets_from_ray, ray_folder, workers_path
from sweeps.ray_engine.trial_process import PEER_SECONDS, WAIT_SECONDS
from sweeps.store.failures import first_line
from sweeps.terminal.text import duration, numbered, print_error, say

T = TypeVar("T")
CONNECT_SECONDS = 5.0
START_SECONDS, WARN_SECONDS = 200, 50
NODE_SECONDS = 2.0  # between looks at the nodes of a cluster without workers
NO_ANSWER = 1  # exit code
_RULE = "RAY_ADDRESS must be that of a running Ray cluster"
OBJECT_STORE_BYTES = 200 * 2**20  # trials pass no large objects
WITHOUT_BF16 = {"K80", "P4", "P100", "V100", "T4"}
"""Ray's names of the GPUs before Ampere, which have no bf16 in hardware."""
WITH_BF16 = re.compile(r"A\d+G?|L\d+S?|H\d+|G?B\d+")
"""Those from Ampere on; Ray's names of other cards, such as RTX, are of several generations."""
_DEATH = "RAY_timeout_ms_task_wait_for_death_info"
OF_PROCESSES = {
    # Ray shows all GPUs of a node to processes that reserved none, unless this is set in them.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    # After a second Ray takes a dead process, of which a busy machine has not told it yet, for one
    # that is out of reach, as on a lost node.
    _DEATH: os.environ.get(_DEATH, f"{1000 * PEER_SECONDS:.0f}"),
}
"""Environment variables of every process of a sweep."""
_CHECKS = "RAY_health_check_failure_threshold"
MISSED_CHECKS = 60
"""Checks of its raylet, of 10 s each, that a Ray of this machine may miss in a row before it counts
as dead. A busy machine misses Ray's default of five; of a process that has ended this command
learns from the process table."""
_own_folders: list[Path] = []  # of the Ray that this process has started


def connect(num_workers: int, code: Sequence[str] = ()) -> None:
    """Join the cluster of this command, or start Ray on this machine; every worker gets a copy of
    the `code`: files and folders outside the package. Raises `BadInput` where there is no Ray."""
    os.environ.setdefault("RAY_worker_niceness", "0")  # 15 starves trials on a shared machine
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # With the default of 2 s, trials of several workers end seven seconds late.
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.update(OF_PROCESSES)
    keep_secrets_from_ray()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = cluster_address()
    env: dict[str, Any] = {"py_modules": list(code)} if code else {}
    at_sigterm = signal.getsignal(signal.SIGTERM)
    with _bounded():
        if address:
            _check_reachable(address)
            try:
                # What a client passes is read by its server, which has no code of ours.
                job: dict[str, Any] = (
                    {} if address.startswith("ray://") else {"job_config": workers_path()}
                )
                env = {"env_vars": OF_PROCESSES} | env
                ray.init(address=address, runtime_env=env, **job, **quiet)
            except ConnectionError as error:
                raise BadInput(f"{_RULE}, got {address}: {first_line(error)}") from None
        else:
            _start_ray(
                # Only Ray Train needs the dashboard, to find placement groups to free.
                include_dashboard=num_workers > 1,
                runtime_env=env or None,
                **quiet,
            )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, at_sigterm)  # Ray's handler aborts the process


@contextmanager
def _bounded() -> Iterator[None]:
    """Ends this process with a sentence if the block takes longer than `START_SECONDS`: where the
    GCS dies, Ray waits in calls that no signal ends. As after a kill, nothing is lost."""
    over = threading.Event()

    def watch() -> None:
        for waited in range(WARN_SECONDS, START_SECONDS + 1, WARN_SECONDS):
            if over.wait(WARN_SECONDS):
                return
            say(f"Ray has not answered for {duration(waited)} of at most {duration(START_SECONDS)}")
        print_error("Ray does not answer; the same command resumes, or runs with --engine local")
        os._exit(NO_ANSWER)

    threading.Thread(target=watch, daemon=True, name="ray-start").start()
    try:
        yield
    finally:
        over.set()


def _check_reachable(address: str) -> None:
    """Refuse the address of a dead head, which Ray would try for a quarter of an hour."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return  # such as `auto`, which Ray refuses at once
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise BadInput(f"{_RULE}, got {address}: {error.strerror or error}") from None


def _start_ray(**options: Any) -> None:
    """Starts Ray on this machine. A busy machine exceeds Ray's fixed 30 s: it is tried twice."""
    folder = ray_folder()
    _own_folders.append(folder)
    os.environ.setdefault(_CHECKS, str(MISSED_CHECKS))
    for last in (False, True):
        try:
            ray.init(
                address="local",
                object_store_memory=OBJECT_STORE_BYTES,
                job_config=workers_path(),
                _temp_dir=str(folder / BELOW),
                **options,
            )
        except Exception as error:  # Ray has no class for it
            ray.shutdown()
            if last:
                raise BadInput(
                    f"Ray does not start on this machine ({first_line(error)}); the same command "
                    "with --engine local runs without Ray, one trial after the other"
                ) from error
            say(f"Ray did not start ({first_line(error)}): trying once more")
        else:
            return


def disconnect(*, keep_files: bool = False) -> None:
    """Leave the cluster, or end the Ray that this command started and remove its files; where they
    are kept, to look for the cause of an error, a line says where."""
    ray.shutdown()
    while _own_folders:
        folder = _own_folders.pop()
        if keep_files:
            say(f"Ray's files are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class RayFiles:
    """Whether the files of a Ray on this machine are kept after its end."""

    keep: bool = False


@contextmanager
def connected(num_workers: int, code: Sequence[str] = ()) -> Iterator[RayFiles]:
    """The cluster of this command, or a Ray on this machine; its files are kept where the block
    asks for it and after an error that is none of the user's input."""
    files = RayFiles()
    try:
        connect(num_workers, code)
        yield files
    except BadInput:
        raise
    except Exception:
        files.keep = True
        raise
    finally:
        disconnect(keep_files=files.keep)


def trial_resources(options: Options) -> Resources:
    """The resources of a trial. Raises `BadInput` for those that the cluster can never provide; one
    that may grow to --max-slots is waited for until it holds a trial."""
    try:
        resources = _resources_now(options)
    except BadInput:
        if cluster_address() is None or options.max_slots is None:
            raise
        resources = _wait_for_a_node(options)
    return replace(resources, slots=slots_now(resources)[1])


def _wait_for_a_node(options: Options) -> Resources:
    """Waits until the cluster holds a trial; an autoscaler starts nodes for what is asked for."""
    needed = {"CPU": options.cpus_per_worker, "GPU": options.gpus_per_worker or 0.0}
    needed |= {f"{KIND}{options.accelerator}": OF_KIND} if options.accelerator else {}
    bundle = {name: float(amount) for name, amount in needed.items() if amount}
    # An autoscaler starts nodes only for what is asked for, and no trial asks before its resources
    # are known.
    request = placement_group([bundle] * (options.min_workers or options.num_workers))
    begun, told = time.monotonic(), -math.inf
    try:
        while (waited := time.monotonic() - begun) < WAIT_SECONDS:
            with suppress(BadInput):
                return _resources_now(options)
            if waited - told >= LINE_SECONDS:
                told = waited
                of = f"{duration(waited)} of {duration(WAIT_SECONDS)}"
                say(f"waiting for a first node that can run a trial: {of}")
            time.sleep(NODE_SECONDS)
    finally:
        remove_placement_group(request)
    return _resources_now(options)


def _resources_now(options: Options) -> Resources:
    living, startable = living_nodes(), _startable_nodes()
    if options.gpus_per_worker is None and any(node.get("GPU") for node in startable):
        options = replace(options, gpus_per_worker=1.0)  # also where the head alone lives
    try:
        return resources_of(options, living, place=CLUSTER)
    except BadInput:
        if not startable:
            raise
        return resources_of(options, startable, place=CLUSTER)


def slots_now(resources: Resources, unfit: Collection[str] = ()) -> tuple[int, int]:
    """(The trials that the living nodes hold, but for those that are `unfit`; the trials to start
    at a time): more where nodes may join, up to the limit of an autoscaler, which starts nodes for
    trials that wait, or --max-slots."""
    here = resources.fit(living_nodes(unfit))
    most = max(here, resources.fit(_startable_nodes()))
    if resources.max_slots is not None:
        here = min(here, resources.max_slots)
        most = resources.max_slots if cluster_address() else here
    return here, most


def living_nodes(unfit: Collection[str] = ()) -> list[Node]:
    """The resources of the nodes that live, but for the `unfit` and those that go soon."""
    left_out = {*unfit, *draining_nodes()}
    nodes = (node for node in ray.nodes() if node["Alive"])
    return [node["Resources"] for node in nodes if node["NodeID"] not in left_out]


def _startable_nodes() -> list[Node]:
    """The resources of all nodes that an autoscaler may start, with its head: an autoscaled cluster
    may have no worker before a trial requests one."""
    config = _cluster_config()
    nodes: list[Node] = []
    for name, node in config.get("available_node_types", {}).items():
        limit = config["max_workers"]
        # There is one head, whatever its type allows.
        is_head = name == config.get("head_node_type")
        count = 1 if is_head else min(node.get("max_workers", limit), limit)
        nodes += [node["resources"]] * count
    return nodes


def _cluster_config() -> dict[str, Any]:
    """The configuration of the autoscaler that started this cluster; empty without one."""
    path = cluster_file()
    config: dict[str, Any] = parsed_json(path.read_text()) if path else {}
    return config


def precision_of_gpus(accelerator: str = "") -> str:
    """The precision in 16 bits that this kind of GPU has in hardware, or all kinds of the cluster,
    also of those that its autoscaler may start; "" where that is not known of all kinds."""
    types = _cluster_config().get("available_node_types", {})
    kinds = {name for node in types.values() for name in node["resources"]}
    kinds |= {name for node in ray.nodes() if node["Alive"] for name in node["Resources"]}
    found = {name.removeprefix(KIND) for name in kinds if name.startswith(KIND)}
    found = {accelerator} if accelerator else found
    if found & WITHOUT_BF16:
        return "fp16"
    return "bf16" if found and all(map(WITH_BF16.fullmatch, found)) else ""


def slots_of_cluster(options: Options) -> int:
    """The number of trials that run at a time on the cluster."""
    with connected(options.num_workers, options.code):
        return trial_resources(options).slots


def on_a_slot(work: Callable[[], T], options: Options, num_trials: int = 1) -> tuple[Resources, T]:
    """The resources that so many trials are estimated with, and the result of `work` on one slot of
    the cluster."""
    try:
        with connected(options.num_workers, options.code):
            resources = trial_resources(options).estimated(living_nodes(), num_trials)
            task = ray.remote(work).options(
                num_cpus=resources.cpus,
                num_gpus=resources.gpus,
                resources={n: x for n, x in resources.needs.items() if n.startswith(KIND)},
                max_retries=0,
            )
            return resources, ray.get(task.remote())
    except ray.exceptions.WorkerCrashedError:
        raise BadInput(
            "a trial exceeds a node's memory: the task that measured it was killed. Lower the "
            "sizes, or raise --cpus-per-worker so that fewer run at a time"
        ) from None


def hosts() -> dict[str, str]:
    """{Ray's id of a node, alive or dead: its host's name}."""
    return {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}


def free_workers(needs: Mapping[str, float], unfit: Collection[str] = ()) -> int:
    """The workers for which living nodes, but for the `unfit`, have free resources now, also beside
    what others run on the cluster. A client, which cannot know, gets those of empty nodes."""
    if ray.util.client.ray.is_connected():
        return sum(workers_on(node, needs) for node in living_nodes(unfit))
    # The public sum over all nodes has parts of nodes in it that hold no worker.
    from ray._private.state import available_resources_per_node

    left_out = {*unfit, *draining_nodes()}
    free = available_resources_per_node().items()
    return sum(workers_on(amounts, needs) for node, amounts in free if node not in left_out)


def can_run(resources: Resources, unfit: Collection[str] = ()) -> bool:
    """True if the living nodes, but for the `unfit`, hold a trial with its fewest workers, free or
    not."""
    return resources.workers(living_nodes(unfit)) >= resources.least


def free_text(needs: Mapping[str, float]) -> str:
    """What of the needed resources is free in the cluster now, in words."""
    free = ray.available_resources()
    amounts = [
        f"{free.get(name, 0.0):g} {name}" for name, amount in needs.items() if amount > OF_KIND
    ]
    return f"{' and '.join(amounts)} free"


def free_groups(*, of_dead: bool) -> int:
    """Removes the placement groups of this command's job: all of them, or those `of_dead` actors.
    Ray keeps a group to the end of its job where Ray Train's controller dies before its workers
    live; the workers of later attempts would wait for its resources. Returns how many of the
    others' groups wait for resources."""
    # The public table does not say who asked for a group.
    from ray._private.state import actors, state
    from ray.core.generated import gcs_pb2

    table: Any = vars(gcs_pb2)["PlacementGroupTableData"]  # made when it is imported

    if ray.util.client.ray.is_connected():
        return 0  # a client has no table
    waiting, job = 0, ray.get_runtime_context().get_job_id()
    for serialized in state._connect_and_get_accessor().get_placement_group_table():
        group = table.FromString(serialized)
        removed = group.state == table.REMOVED
        if removed or group.is_detached or group.creator_job_id.hex() != job:
            continue
        creator = ray.ActorID(group.creator_actor_id)  # nil: this process, that is Tune
        dead = not creator.is_nil() and actors(creator.hex()).get("State", "DEAD") == "DEAD"
        if dead or not of_dead:
            identity = ray.PlacementGroupID(group.placement_group_id)
            remove_placement_group(PlacementGroup(identity))
        elif not creator.is_nil():
            waiting += group.state == table.PENDING
    return waiting


def node_of(actor_id: str) -> tuple[str, bool]:
    """(Ray's id of an actor's node or "", whether the actor lives)."""
    # The public API needs the dashboard.
    from ray._private.state import actors

    actor = actors(actor_id) if actor_id else {}
    return actor.get("Address", {}).get("NodeID") or "", actor.get("State") == "ALIVE"


def idle_text(resources: Resources) -> str:
    """A line on GPUs that no trial can use; "" where all can be used."""
    idle = resources.idle_gpus(living_nodes())
    if not idle:
        return ""
    return (
        f"{numbered(idle, 'GPU')} idle: with {resources.cpus:g} CPU a worker, the CPUs of their "
        "nodes hold fewer workers than the GPUs; lower --cpus-per-worker"
    )


def prepare_cluster(configs: Sequence[TrialConfig], code: Sequence[str]) -> None:
    """Prepares the configurations' inputs on every node of the cluster."""
    with connected(num_workers=1, code=code):
        prepare_nodes(configs)
