"""The trial store: finished trials by content-addressed name, in a folder or any fsspec URI.

A sweep has the folder STORAGE/EXPERIMENT/COLLECTION, such as `results/window_stride/python-docs`.
`runs/<cell>-seed<seed>/result.json` is written last, so its presence means that a trial is whole.
"""

import os
import re
import shutil
import uuid
from collections.abc import Iterable
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from rank_core.cache import cache_root
from rank_core.checkpoints.weights import WEIGHTS
from rank_core.errors import BadInput
from rank_core.models import model_class
from rank_core.models.list_rankers import ListRanker
from rank_core.records import Collection
from rank_core.seeding import derive
from rank_core.settings.config import TrialConfig
from sweeps.store.checksums import RESULT, SCORES, damage
from sweeps.store.sweep_file import FILE, SweepFile, parse_sweep_file

if TYPE_CHECKING:
    from sweeps.plan.plan import Trial

HISTORY = "history.jsonl"  # the reports of the trial, a line each
ARRIVING = ".arriving-"
ASIDE = ".damaged-"  # and a number, after the name of a trial that was set aside
CHECKPOINTS = "checkpoints"
SCHEMES = ("file", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hdfs", "memory")
"""Schemes whose files can be written, listed and replaced."""
LEFT_FOR_OTHERS = {
    "training.keep_weights": WEIGHTS,
    "training.keep_run": "train.run.gz",
    "evaluation.keep_chunk_scores": "chunk_scores.parquet",
}
"""Settings that change a trial's files, but no number: an equal trial may lack them."""


class Store:
    """The results of a sweep, or of an experiment with a folder for each collection. The driver
    works in `folder`: the storage itself if it is a folder, else a local mirror, which `push` and
    `pull` synchronise."""

    def __init__(self, storage: str, sweep: str) -> None:
        self.storage, self.sweep = storage, sweep
        if not storage:
            raise BadInput("--storage must be a folder or a URI such as s3://bucket/path, got ''")
        scheme = storage.partition("://")[0] if "://" in storage else "file"
        try:
            if scheme not in SCHEMES or "::" in storage:
                raise ValueError(f"unknown scheme; known: {', '.join(SCHEMES)}")
            self.fs, root = fsspec.core.url_to_fs(storage)
        except Exception as error:  # every filesystem has its own kinds
            raise BadInput(
                f"--storage must be a folder or a URI such as s3://bucket/path, got {storage}: "
                f"{error}{_extra(storage)}"
            ) from None
        self.is_local = isinstance(self.fs, LocalFileSystem)
        self.is_memory = isinstance(self.fs, MemoryFileSystem)
        if self.is_local:
            self.storage = os.path.abspath(root)  # trials run in other working directories
        self.all_sweeps = os.path.abspath(root) if self.is_local else root.rstrip("/")
        self.root = f"{self.all_sweeps}/{sweep}"
        mirror = cache_root() / "mirrors" / f"{derive(0, self.root):016x}"
        self.folder = Path(self.root) if self.is_local else mirror

    def of(self, collection: Collection) -> "Store":
        """The store of this experiment on a collection, named as the collection; with six more
        digits if that folder has a collection of other contents."""
        name = folder_name(collection.name)
        plain, apart = (
            Store(self.storage, f"{self.sweep}/{name}{suffix}")
            for suffix in ("", f"-{collection.content_hash[:6]}")
        )
        return plain if plain._contents() in ("", collection.content_hash) else apart

    def _contents(self) -> str:
        """The hash of the sweep's collection; empty without a readable sweep."""
        file = self.described()
        return str(file.collection.get("content_hash", "")) if file else ""

    def described(self) -> SweepFile | None:
        """The description in the sweep's folder; None if there is no sweep or it cannot be
        read."""
        try:
            return parse_sweep_file(self.read_file(FILE) or b"", self.root)
        except BadInput:
            return None

    def collections(self) -> list[str]:
        """The names of the folders with a sweep that this experiment's folder holds."""
        self.fs.invalidate_cache()
        paths = self.fs.glob(f"{self.root}/*/{FILE}")
        return sorted(str(path).split("/")[-2] for path in paths)

    @property
    def uri(self) -> str:
        """The folder or URI of this sweep, as messages name it."""
        return self.root if self.is_local else str(self.fs.unstrip_protocol(self.root))

    @property
    def identity(self) -> str:
        """Six hex digits that name this store among all others."""
        return f"{derive(0, self.fs.protocol[0], self.root):016x}"[:6]

    def open(self) -> None:
        """Make the folder and check that it is writable."""
        probe = f"{self.root}/.writable-{uuid.uuid4().hex[:8]}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.fs.makedirs(self.root, exist_ok=True)
            self.fs.pipe_file(probe, b"ok")
            self.fs.rm_file(probe)
        except Exception as error:  # every filesystem has its own kinds
            raise BadInput(
                f"--storage must be writable, got {self.storage}: {type(error).__name__}: {error}"
            ) from None

    def drop_arrivals(self) -> None:
        """Removes incomplete uploads of killed processes; for its only driver."""
        for leftover in self.fs.glob(f"{self.root}/runs/{ARRIVING}*"):
            self.fs.rm(leftover, recursive=True)

    def require(self) -> None:
        """Raise if the sweep's folder is unavailable: it would seem empty, and a mount point
        without its mount would accept writes. An object store raises by itself."""
        if self.is_local:
            os.stat(self.root)

    def finished(self) -> set[str]:
        """The names of the complete trials."""
        names = {path.split("/")[-2] for path in self._results(self.root, 0)}
        return {name for name in names if _is_trial(name)}

    def _results(self, folder: str, *depths: int) -> list[str]:
        """The paths of the results in the `runs` so many folders below. An object store lists a
        thousand files per request; folder by folder it would need a request per trial."""
        self.fs.invalidate_cache()
        if self.is_local:
            patterns = [f"{folder}/{'*/' * depth}runs/*/{RESULT}" for depth in depths]
            return [str(path) for pattern in patterns for path in sorted(self.fs.glob(pattern))]
        files = [
            (path.removeprefix(f"{folder}/").split("/"), path)
            for path in sorted(map(str, self.fs.find(folder)))
            if path.endswith(f"/{RESULT}")
        ]
        return [
            path
            for depth in depths
            for parts, path in files
            if len(parts) == depth + 3 and parts[-3] == "runs"
        ]

    def damage(self, name: str) -> str:
        """The damage of a finished trial, "" for none. Damaged files of a mirror are fetched again
        first."""
        self.pull({name})
        folder = self.folder / "runs" / name
        damaged = damage(folder, thorough=True)
        if damaged and not self.is_local:
            shutil.rmtree(folder)
            self.pull({name})
            damaged = damage(folder, thorough=True)
        if damaged:
            self.require()  # otherwise all seem to be missing
        return damaged

    def set_aside(self, name: str) -> str:
        """Rename a damaged trial, which then no longer counts; return its new name."""
        names = {str(path).rpartition("/")[2] for path in self.fs.glob(f"{self.root}/runs/*")}
        aside = next(new for n in count(1) if (new := f"{name}{ASIDE}{n}") not in names)
        if self.is_local:
            Path(f"{self.root}/runs/{name}").rename(f"{self.root}/runs/{aside}")
        else:
            self.fs.mv(f"{self.root}/runs/{name}", f"{self.root}/runs/{aside}", recursive=True)
            shutil.rmtree(self.folder / "runs" / name, ignore_errors=True)
        return aside

    def publish(self, workdir: Path, name: str) -> None:
        """Publish a finished trial's folder in the store, atomically and at most once."""
        if self.is_local:
            self._publish_folder(workdir, name)
            return
        for path in sorted(workdir.iterdir(), key=_result_last):
            self.fs.put_file(str(path), f"{self.root}/runs/{name}/{path.name}")

    def _publish_folder(self, folder: Path, name: str, *, link: bool = False) -> None:
        self.require()
        target = Path(f"{self.root}/runs/{name}")
        arriving = Path(f"{self.root}/runs/{ARRIVING}{name}-{uuid.uuid4().hex[:8]}")
        arriving.mkdir(parents=True)  # by the umask: a trial's own folder is private
        for path in sorted(folder.iterdir(), key=_result_last):
            (_link if link else shutil.copyfile)(path, arriving / path.name)
        aside = ""
        if target.exists() and (not (target / RESULT).exists() or _left_more(arriving, target)):
            aside = self.set_aside(name)
        try:
            arriving.rename(target)
        except OSError:
            # Another process finished the same trial first, with the same content.
            shutil.rmtree(arriving)
        if aside and _same_values(target, old := target.with_name(aside)):
            shutil.rmtree(old)

    def adoptable(self, trials: Iterable["Trial"]) -> set[str]:
        """The names of trials that another sweep of this storage has finished, with all files
        needed here. A trial's name identifies everything that affects its numbers."""
        folders = self._elsewhere
        return {
            trial.name
            for trial in trials
            if trial.name in folders
            and all(self.fs.exists(f"{folders[trial.name]}/{file}") for file in _left(trial))
        }

    def lacking(self, trials: Iterable["Trial"], finished: set[str]) -> set[str]:
        """The finished trials without all files that their settings require. These settings are not
        part of a trial's name and may have changed since."""
        return {
            trial.name
            for trial in trials
            if trial.name in finished
            and not all(self.fs.exists(f"{self.root}/runs/{trial.name}/{f}") for f in _left(trial))
        }

    def with_weights(self) -> set[str]:
        """The names of the trials whose weights are in the storage."""
        self.fs.invalidate_cache()
        runs = f"{self.root}/runs"
        paths = self.fs.glob(f"{runs}/*/{WEIGHTS}") if self.is_local else self.fs.find(runs)
        return {str(path).split("/")[-2] for path in paths if str(path).endswith(f"/{WEIGHTS}")}

    def remove_weights(self, name: str) -> None:
        """Removes the weights of a finished trial, which is complete without them."""
        self.fs.rm_file(f"{self.root}/runs/{name}/{WEIGHTS}")

    def adopt(self, trials: Iterable["Trial"]) -> set[str]:
        """Copies the adoptable trials that are missing here and undamaged; returns their names."""
        adopted = self.adoptable(trials)
        if adopted:
            adopted -= self.finished()
        for name in sorted(adopted):
            self._take(self._elsewhere[name], name)
            if self.damage(name):
                self.fs.rm(f"{self.root}/runs/{name}", recursive=True)
                adopted.discard(name)
        return adopted

    @cached_property
    def _elsewhere(self) -> dict[str, str]:
        """{name: folder} of the trials that other sweeps had finished at the first use."""
        folders: dict[str, str] = {}
        for path in self._results(self.all_sweeps, 2, 1):  # 1: version 0.1 had no collection folder
            folder = path.rpartition("/")[0]
            name = folder.rpartition("/")[2]
            if not folder.startswith(f"{self.root}/") and _is_trial(name):
                folders.setdefault(name, folder)
        return folders

    def seek(self, name: str) -> bool:
        """True if another experiment on this collection has finished a trial by now, even after the
        listing."""
        self.fs.invalidate_cache()
        collection = self.sweep.rpartition("/")[2]
        for experiment in self.fs.ls(self.all_sweeps, detail=False):
            folder = f"{str(experiment).rstrip('/')}/{collection}/runs/{name}"
            if not folder.startswith(f"{self.root}/") and self.fs.exists(f"{folder}/{RESULT}"):
                self._elsewhere[name] = folder
                return True
        return False

    def _take(self, folder: str, name: str) -> None:
        """Copies another sweep's trial into this one, atomically."""
        if self.is_local:
            self._publish_folder(Path(folder), name, link=True)
            return
        paths = [str(path) for path in self.fs.find(folder)]
        for path in sorted(paths, key=lambda path: path.endswith(f"/{RESULT}")):
            self.fs.cp_file(path, f"{self.root}/runs/{name}{path.removeprefix(folder)}")

    def checkpoint_folder(self, name: str) -> str:
        """The folder of a running trial's checkpoints, a path or URI that every node can open."""
        folder = f"{self.root}/{CHECKPOINTS}/{name}"
        return folder if self.is_local else str(self.fs.unstrip_protocol(folder))

    def has_checkpoints(self, name: str) -> bool:
        """True if a trial that has paused or died can resume."""
        from rank_core.checkpoints.checkpoint import (
            SUFFIX,  # with torch, which `status` does not need
        )

        self.fs.invalidate_cache()
        return bool(self.fs.glob(f"{self.root}/{CHECKPOINTS}/{name}/*{SUFFIX}"))

    def drop_checkpoints(self, names: set[str]) -> None:
        """Removes checkpoints of finished trials whose process died before it removed them."""
        self.fs.invalidate_cache()
        for path in self.fs.glob(f"{self.root}/{CHECKPOINTS}/*"):
            if str(path).rstrip("/").rpartition("/")[2] in names:
                self.fs.rm(path, recursive=True)

    def pull(self, names: set[str]) -> None:
        """Fetch finished trials into `folder`, without their large weights (see `pull_file`)."""
        if self.is_local:
            return
        for name in names:
            folder = self.folder / "runs" / name
            if not (folder / RESULT).exists():
                paths = [str(path) for path in self.fs.find(f"{self.root}/runs/{name}")]
                if files := [path for path in paths if not path.endswith(f"/{WEIGHTS}")]:
                    folder.mkdir(parents=True, exist_ok=True)
                    self.fs.get(files, [str(folder / file.rpartition("/")[2]) for file in files])
                if (folder / RESULT).exists():
                    os.utime(folder / RESULT)  # nothing was changed after it

    def pull_file(self, name: str) -> Path:
        """The local path of a file of the sweep, which may not exist."""
        path = self.folder / name
        if not self.is_local and self.fs.isfile(f"{self.root}/{name}"):
            self.fs.get_file(f"{self.root}/{name}", str(path))
        return path

    def pull_folder(self, name: str) -> None:
        """Fetch a folder of the sweep into `folder`, if it exists."""
        if not self.is_local and self.fs.exists(f"{self.root}/{name}"):
            self.fs.get(f"{self.root}/{name}/", f"{self.folder / name}/", recursive=True)

    def read_file(self, name: str, *, live: bool = False) -> bytes | None:
        """The content of a file of the sweep; None if it does not exist. The disk of a `live`
        driver is ahead of a remote storage."""
        mirror = self.folder / name
        if live and mirror.exists():
            return mirror.read_bytes()
        try:
            return bytes(self.fs.cat_file(f"{self.root}/{name}"))
        except (FileNotFoundError, NotADirectoryError):
            return mirror.read_bytes() if mirror.exists() else None
        except Exception as error:  # every filesystem has its own kinds
            raise BadInput(
                f"DIR must be readable, got {self.uri}: {type(error).__name__}: {error}"
            ) from None

    def push(self, *names: str) -> None:
        """Send files and folders that the driver wrote in `folder` to the storage."""
        if self.is_local:
            return
        for name in names:
            path = self.folder / name
            if path.is_dir():
                self.fs.put(f"{path}/", f"{self.root}/{name}/", recursive=True)
            elif path.exists():
                self.fs.put_file(str(path), f"{self.root}/{name}")


def folder_name(collection: str) -> str:
    """A collection's name as a valid folder name: `python-docs-debias-seed-2` for
    `python-docs|debias(seed=2)`."""
    return re.sub(r"[^\w.+-]+", "-", collection).strip("-.")[:80] or "collection"


def _extra(storage: str) -> str:
    """The command that installs the packages of a URI's scheme; "" if unknown."""
    scheme = storage.partition("://")[0]
    extra = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}.get(scheme)
    if extra is None or find_spec({"s3": "s3fs", "gcs": "gcsfs"}[extra]):
        return ""
    return f"; pip install 'ranksweep[{extra}]' brings it"


def _is_trial(name: str) -> bool:
    return not name.startswith(ARRIVING) and ASIDE not in name


def _result_last(path: Path) -> tuple[bool, str]:
    return path.name == RESULT, path.name


def _left(trial: "Trial") -> list[str]:
    """The files that a trial's settings require, except the weights of a cell's best seed."""
    settings = trial.config.settings()
    files = [file for name, file in LEFT_FOR_OTHERS.items() if settings[name] in (True, "all")]
    return files if files and is_trained(trial.config) else []


def is_trained(config: TrialConfig) -> bool:
    """True if a trial can leave weights: those of one model, not of several folds."""
    has_weights = not issubclass(model_class(config.model.name), ListRanker)
    return has_weights and not config.evaluation.folds


def _left_more(folder: Path, other: Path) -> bool:
    """True if a trial has a file for others that its twin lacks."""
    files = LEFT_FOR_OTHERS.values()
    return any((folder / file).exists() and not (other / file).exists() for file in files)


def _same_values(folder: Path, other: Path) -> bool:
    """True if two runs of a trial gave the same values, to the last bit."""
    files = (RESULT, SCORES, "dev.run.gz", "test.run.gz")
    if not all((run / file).exists() for run in (folder, other) for file in files):
        return False
    return all((folder / f).read_bytes() == (other / f).read_bytes() for f in files[1:])


def _link(source: Path, target: Path) -> None:
    """Links a file under another name, or copies it if the disk has no links. Files of a finished
    trial are never written again."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
