"""The nodes of a cluster. Each is checked and prepares its inputs when it joins, in a task without
a GPU; its trials start afterwards, and each checks it again. One that cannot work gets no trial,
and is named with the reason."""

import math
import platform
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from errno import EHOSTUNREACH
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import NODE_ID_LABEL_KEY
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rank_core.cache import cache_root, restored_by
from rank_core.checkpoints import Cadence
from rank_core.chunking.inputs import Inputs, content_hashes, load_inputs
from rank_core.encoders.backbones import num_parameters
from rank_core.errors import BadInput
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import prepare
from rank_core.units import MEBIBYTE, size_text
from sweeps.plan.resources import Node, workers_on
from sweeps.ray_engine.driver_disk import PIECE, storage_here
from sweeps.store.failures import reason_of
from sweeps.store.prepared import Prepared
from sweeps.store.records import Records
from sweeps.store.storage import DRIVER, Storage, StorageAway
from sweeps.terminal.command_line import check_writable
from sweeps.terminal.text import duration, numbered, say

ASK_SECONDS = 120.0  # for the first process on each node
LINE_SECONDS = 30.0  # between lines about the nodes that still prepare
PACKAGES = ("ranksweep", "torch", "transformers", "tokenizers", "numpy", "ir-measures")
"""Packages whose versions may change a trial's numbers."""
PROBE_BYTES = 2 * PIECE  # written to measure the way to the storage


def versions() -> tuple[str, ...]:
    """Python and packages of this process. Builds of one version for other devices are equal."""
    python = ".".join(platform.python_version_tuple()[:2])
    return (f"python {python}", *(f"{name} {version(name).partition('+')[0]}" for name in PACKAGES))


@dataclass(frozen=True)
class Expected:
    """What a node must reach and have, as the driver does."""

    storage: str
    sweep: str
    command: str  # the token of the driver
    versions: tuple[str, ...] = field(default_factory=versions)


def expected_of(records: Records) -> Expected:
    """What the nodes of a sweep's cluster must have."""
    return Expected(records.storage.uri, records.sweep, records.command)


@dataclass(frozen=True)
class Unfit:
    """The report of a process on a node that cannot work."""

    node: str  # Ray's id
    host: str
    reason: str
    for_now: bool = False  # it still prepares its inputs


class NotReady(BadInput):
    """This node has joined and still prepares its inputs."""


def check_ready(ready: Collection[str]) -> None:
    """Raises `NotReady` on a node that is none of these: a trial that waited for any node is placed
    on a new one the moment that it joins."""
    if ray.get_runtime_context().get_node_id() not in ready:
        raise NotReady("it prepares its inputs")


@lru_cache(maxsize=1)
def check_node(expected: Expected) -> None:
    """Raises `BadInput` where this node has other versions, no cache that it can write, or does not
    reach the storage, and `StorageAway` where that is full or away on the driver's host."""
    if others := [one for one in versions() if one not in expected.versions]:
        raise BadInput(f"it has {', '.join(others)}; the driver has {', '.join(expected.versions)}")
    check_writable("RANKSWEEP_CACHE", cache_root())
    storage = storage_here(expected.storage, expected.sweep, expected.command)
    if not storage.startswith(DRIVER):
        Storage(storage).open()
        return
    try:
        Storage(storage, opened=True).now()
    except StorageAway as away:
        if getattr(away.__cause__, "errno", None) == EHOSTUNREACH:
            raise BadInput(str(away)) from None
        raise  # no fault of this node: every other one would wait, too


def check_inputs(config: TrialConfig, contents: tuple[str, str]) -> None:
    """Raises `BadInput` where this node's collection or backbone is not that of the plan, or a file
    that a setting names is missing."""
    if contents_of(load_inputs(config.collection, config.model.backbone)) != contents:
        raise BadInput(
            f"its {config.collection} or {config.model.backbone} has another content than the "
            "driver's"
        )
    content_hashes(config)


def contents_of(inputs: Inputs) -> tuple[str, str]:
    """The hashes of a collection and a backbone."""
    return inputs.collection.content_hash, inputs.backbone.content_hash


def unfit_here(error: BadInput) -> Unfit:
    """The report of this process."""
    node, host = ray.get_runtime_context().get_node_id(), socket.gethostname()
    return Unfit(node, host, str(error), for_now=isinstance(error, NotReady))


def avoiding(nodes: Sequence[str]) -> dict[str, str]:
    """Ray's selector of a node that is none of these."""
    return {NODE_ID_LABEL_KEY: f"!in({','.join(nodes)})"} if nodes else {}


def _join(expected: Expected | None, settings: Sequence[dict[str, Any]]) -> tuple[float, bool]:
    """Checks a node and prepares its inputs; returns the bytes per second that it writes to the
    storage, and whether that is through Ray."""
    rate, through_ray = math.inf, False
    if expected:
        check_node(expected)
        storage = storage_here(expected.storage, expected.sweep, expected.command)
        through_ray = storage.startswith(DRIVER)
        rate = _bytes_per_second(Storage(storage))
        with restored_by(Prepared(Storage(storage, opened=True)).restore):
            _prepare_all(settings)
    else:
        _prepare_all(settings)
    return rate, through_ray


def _has(file: str) -> bool:
    """Whether this node's cache has a file."""
    return (cache_root() / file).exists()


def _prepare_all(settings: Sequence[dict[str, Any]]) -> None:
    for values in settings:
        config = TrialConfig().override(values)
        content_hashes(config)
        prepare(config)


def _bytes_per_second(storage: Storage) -> float:
    """The rate at which this node writes; infinite where that could not be measured, as on a disk
    with less room."""
    probe = f".speed-{socket.gethostname()}"
    begun = time.monotonic()
    try:
        storage.write(probe, bytes(PROBE_BYTES), wait=False)
        seconds = time.monotonic() - begun
        storage.remove(probe)
    except Exception:  # every filesystem has its own kinds; a trial waits for the storage
        return math.inf
    return PROBE_BYTES / seconds


def checkpoint_bytes(backbone: Path) -> int:
    """The bytes of a checkpoint at most: weights and two moments, and the best weights, in fp32."""
    return 4 * 4 * num_parameters(backbone)


@dataclass(frozen=True)
class CheckpointLoad:
    """The checkpoints of a trial."""

    bytes: int = 0  # of one; 0: none
    minutes: float = 0.0  # between two; 0: none

    def per_second(self, slots: int) -> float:
        """The bytes that so many trials at a time write."""
        return slots * self.bytes / (60 * self.minutes) if self.minutes else 0.0

    def lost_seconds(self, rate: float, slots: int, nodes: int) -> float:
        """The seconds that the loss of a node costs a trial, on average."""
        return Cadence(self.minutes).lost_seconds(self.bytes, rate, slots, nodes)


@dataclass(frozen=True)
class _Check:
    node: str
    host: str


class Nodes:
    """The nodes that have joined, and those that cannot work."""

    def __init__(
        self,
        expected: Expected | None = None,
        configs: Sequence[TrialConfig] = (),
        checkpoint: CheckpointLoad | None = None,
        needs: Node | None = None,
    ) -> None:
        self.needs = needs or {}  # of a worker; a node without them runs none
        self.checkpoint = checkpoint or CheckpointLoad()
        self.expected = expected  # None: on one machine, or to prepare it alone
        self.unfit: dict[str, str] = {}  # {Ray's id: the host's name and the reason}
        self.own_caches = False  # or nodes that may join have
        self.ready: set[str] = set()  # those that have prepared their inputs, by Ray's ids
        self.waiting: dict[str, str] = {}  # {Ray's id: host} of those that have not yet
        # Bytes per second to the storage, whether through Ray, host.
        self.slowest: tuple[float, bool, str] = (math.inf, False, "")
        # Seeds share their inputs.
        distinct = dict.fromkeys(replace(config, seed=0) for config in configs)
        self._settings = [config.settings() for config in distinct]
        self._known: set[str] = set()
        self._told = False  # how nodes reach the storage
        self._line_due = math.inf  # on nodes that prepare
        self._checks: dict[Any, _Check] = {}

    @property
    def without_trials(self) -> frozenset[str]:
        """The nodes that cannot work, or not yet, by Ray's ids."""
        return frozenset(self.unfit.keys() | self.waiting.keys())

    def reasons(self) -> str:
        """Which nodes cannot work and why, in words."""
        return "; ".join(sorted(set(self.unfit.values())))

    def reject(self, unfit: Unfit) -> str:
        """Takes a node out; returns what to say of it, "" where that was said."""
        known = unfit.node in self.unfit
        self.unfit[unfit.node] = f"{unfit.host} gets no trial: {unfit.reason}"
        return "" if known else self.unfit[unfit.node]

    def prepare(self, slots: int = 0, *, may_grow: bool = False) -> None:
        """Checks and prepares the living nodes, a task for each; says which ones it waits for, and
        how they reach the storage. The driver prepares first, without a GPU, where others can
        restore what it has made."""
        nodes = [node for node in ray.nodes() if node["Alive"]]
        if self.expected or len(nodes) < 2:
            _prepare_all(self._settings)
        if self.expected:
            self.own_caches = may_grow if len(nodes) < 2 else self._has_own_caches(nodes)
            if self.own_caches:
                self._share(Prepared(Storage(self.expected.storage, opened=True)))
        if len(nodes) < 2:
            self._known |= {node["NodeID"] for node in nodes}
            self.ready |= self._known
            return
        say(f"preparing   inputs on {numbered(len(nodes), 'node')}")
        start = told = time.monotonic()
        self._check(nodes)
        while self._checks:
            for line in self._answers(timeout=1.0):
                say(line)
            if self._checks and time.monotonic() - told >= LINE_SECONDS:
                told = time.monotonic()
                hosts = ", ".join(sorted(check.host for check in self._checks.values()))
                say(f"preparing   for {duration(told - start)}, still on {hosts}")
        for line in self._way(slots):
            say(f"storage     {line}")

    def _share(self, prepared: Prepared) -> None:
        """Puts what this command has prepared into the storage; without it nodes make their own."""
        try:
            missing = prepared.missing()
            if not missing:
                return
            begun = time.monotonic()
            size = size_text(sum(missing.values()))
            say(f"preparing   {size} of inputs go to the storage, for caches of other nodes")
            prepared.put(missing)
            say(f"prepared    in the storage after {duration(time.monotonic() - begun)}")
        except Exception as error:  # every filesystem has its own kinds
            say(f"preparing   on each node: the storage does not take inputs: {reason_of(error)}")

    def _has_own_caches(self, nodes: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a node's cache is not the driver's."""
        mark = f".driver-{uuid.uuid4().hex}"
        cache_root().mkdir(parents=True, exist_ok=True)
        (cache_root() / mark).touch()
        try:
            asked = [_on(node, _has).remote(mark) for node in nodes]
            return not all(ray.get(asked, timeout=ASK_SECONDS))
        except ray.exceptions.RayError:  # a node that is lost, or cannot work: it is checked
            return True
        finally:
            (cache_root() / mark).unlink(missing_ok=True)

    def look(self, slots: int) -> Iterator[str]:
        """Begins to check nodes that have joined; yields what is known of others by now."""
        if self.expected:
            nodes = [node for node in ray.nodes() if node["Alive"]]
            self._check(nodes)
            yield from self._answers(timeout=0.0)
            yield from self._way(slots)
            yield from self._waits(nodes)

    def _waits(self, nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Which nodes for trials still prepare, where that takes long."""
        done = self.ready | self.unfit.keys()
        used = [n for n in nodes if not self.needs or workers_on(n["Resources"], self.needs)]
        hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in used}
        self.waiting = {node: host for node, host in hosts.items() if node not in done}
        if not self.waiting:
            self._line_due = math.inf
            return
        now = time.monotonic()
        self._line_due = min(self._line_due, now + LINE_SECONDS)
        if now >= self._line_due:
            self._line_due = now + LINE_SECONDS
            names = ", ".join(sorted(self.waiting.values()))
            yield f"preparing inputs on {names}, without a GPU; trials start there afterwards"

    def _way(self, slots: int) -> Iterator[str]:
        """How nodes reach the storage, once it is measured."""
        rate, through_ray, host = self.slowest
        if self._told or not self.expected or rate == math.inf:
            return
        self._told = True
        way = "through Ray, as it does not see this host's folder" if through_ray else "itself"
        text = f"{host} writes it {way}: {size_text(rate)}/s"
        size, load = self.checkpoint.bytes, self.checkpoint.per_second(slots)
        if size and self.checkpoint.minutes:
            takes = duration(size / rate) if size > rate else "less than 1 s"
            text += f"; a checkpoint of {size_text(size)} at most takes {takes}"
            nodes = max(1, min(slots, len(self.ready)))
            lost = duration(self.checkpoint.lost_seconds(rate, slots, nodes))
            text += f"; a lost node costs each of its trials about {lost} of work"
        yield text
        if load > rate:
            remedy = "; a URI such as s3://bucket/path carries more" if through_ray else ""
            yield (
                f"checkpoints of {numbered(slots, 'slot')} are {size_text(load)}/s at "
                f"--checkpoint-minutes {self.checkpoint.minutes:g}, more than that: they will be "
                f"rarer{remedy}"
            )

    def _check(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        for node in nodes:
            if node["NodeID"] in self._known:
                continue
            self._known.add(node["NodeID"])
            check = _Check(node["NodeID"], node["NodeManagerHostname"])
            # An autoscaler ends nodes of which nothing is in use.
            join = _on(node, _join, memory=MEBIBYTE)
            self._checks[join.remote(self.expected, self._settings)] = check

    def _answers(self, timeout: float) -> Iterator[str]:
        """What the checks say that have ended, a line for each node that cannot work."""
        if not self._checks:
            return
        for task in ray.wait(list(self._checks), num_returns=1, timeout=timeout)[0]:
            check = self._checks.pop(task)
            try:
                self.slowest = min(self.slowest, (*ray.get(task), check.host))
                self.ready.add(check.node)
            except ray.exceptions.RayTaskError as error:
                cause = error.cause
                if isinstance(cause, StorageAway):
                    self._known.discard(check.node)  # it is checked again
                    yield f"{check.host} waits for the storage: {cause}"
                    continue
                reason = str(cause) if isinstance(cause, BadInput) else reason_of(cause)
                yield self.reject(Unfit(check.node, check.host, reason))
            except ray.exceptions.RayError:  # its trials run on others
                self.ready.add(check.node)  # if it lives, they prepare it
                yield f"{check.host}: lost while it prepared its inputs"


def _on(node: Mapping[str, Any], work: Callable[..., Any], memory: int = 0) -> Any:
    """A task on a node, by its id and not by its address: several nodes of a test may share a
    host. It takes no CPU and no GPU, and so many bytes of memory."""
    where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task: Any = ray.remote(work)
    resources = {"num_cpus": 0, "memory": memory or None}
    return task.options(max_retries=0, scheduling_strategy=where, **resources)


def prepare_nodes(configs: Sequence[TrialConfig]) -> None:
    """Prepares the configurations on all nodes of the connected cluster; nodes with a shared cache
    folder prepare everything once. Raises `BadInput` for inputs that a node cannot read."""
    nodes = Nodes(configs=configs)
    nodes.prepare()
    if nodes.unfit:
        raise BadInput(nodes.reasons())
