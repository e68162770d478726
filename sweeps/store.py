"""The trial store: finished trials by content-addressed name, in a folder or any fsspec URI.

`runs/<cell>-seed<seed>/result.json` is written last, so its presence means that a trial is whole.
"""

import os
import shutil
import uuid
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from rank_core.cache import cache_root
from rank_core.errors import BadInput
from rank_core.seeding import derive

RESULT = "result.json"
HISTORY = "history.jsonl"  # what the trial reported on its way, a line each
ARRIVING = ".arriving-"


class Store:
    """One sweep's results. `folder` is where the driver reads and writes them: the storage itself
    where that is a folder, else a mirror on the local disk that `push` and `pull` keep in step."""

    def __init__(self, storage: str, sweep: str) -> None:
        self.storage, self.sweep = storage, sweep
        if not storage:
            raise BadInput("--storage must be a folder or a URI such as s3://bucket/path, got ''")
        try:
            self.fs, root = fsspec.core.url_to_fs(storage)
        except (ImportError, ValueError) as error:
            raise BadInput(
                f"--storage must be a folder or a URI such as s3://bucket/path, got {storage}: "
                f"{error}"
            ) from None
        self.is_local = isinstance(self.fs, LocalFileSystem)
        if self.is_local:
            self.storage = os.path.abspath(root)  # trials run in other working directories
        self.root = f"{os.path.abspath(root) if self.is_local else root.rstrip('/')}/{sweep}"
        mirror = cache_root() / "mirrors" / f"{derive(0, self.root):016x}"
        self.folder = Path(self.root) if self.is_local else mirror

    @property
    def identity(self) -> str:
        """Six hex digits that name this store among all others."""
        return f"{derive(0, self.fs.protocol[0], self.root):016x}"[:6]

    def open(self) -> None:
        """Makes the folder and proves that it can be written."""
        probe = f"{self.root}/.writable-{uuid.uuid4().hex[:8]}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.fs.makedirs(self.root, exist_ok=True)
            self.fs.pipe_file(probe, b"ok")
            self.fs.rm_file(probe)
            for leftover in self.fs.glob(f"{self.root}/runs/{ARRIVING}*"):
                self.fs.rm(leftover, recursive=True)  # of a process that was killed on the way
        except Exception as error:  # every filesystem has its own kinds
            raise BadInput(
                f"--storage must be writable, got {self.storage}: {type(error).__name__}: {error}"
            ) from None

    def finished(self) -> set[str]:
        """Names of the trials that are whole."""
        self.fs.invalidate_cache()
        paths = self.fs.glob(f"{self.root}/runs/*/{RESULT}")
        names = {path.rstrip("/").split("/")[-2] for path in paths}
        return {name for name in names if not name.startswith(ARRIVING)}

    def publish(self, workdir: Path, name: str) -> None:
        """Puts a finished trial's folder into the store; whole or not at all, and at most once."""
        target = f"{self.root}/runs/{name}"
        if self.is_local:
            arriving = Path(f"{self.root}/runs/{ARRIVING}{name}-{uuid.uuid4().hex[:8]}")
            shutil.copytree(workdir, arriving)
            if Path(target).exists() and not (Path(target) / RESULT).exists():
                shutil.rmtree(target)
            try:
                arriving.rename(target)
            except OSError:
                # Another process finished the same trial first: same content, keep that one.
                shutil.rmtree(arriving)
            return
        for path in sorted(workdir.iterdir(), key=lambda path: path.name == RESULT):
            self.fs.put_file(str(path), f"{target}/{path.name}")

    def pull(self, names: set[str]) -> None:
        """Brings finished trials and the ledger into `folder`."""
        if self.is_local:
            return
        for name in names:
            folder = self.folder / "runs" / name
            if not (folder / RESULT).exists():
                self.fs.get(f"{self.root}/runs/{name}/", f"{folder}/", recursive=True)

    def pull_file(self, name: str) -> Path:
        """A file of the sweep as a local path, which may not exist."""
        path = self.folder / name
        if not self.is_local and self.fs.exists(f"{self.root}/{name}"):
            self.fs.get_file(f"{self.root}/{name}", str(path))
        return path

    def push(self, *names: str) -> None:
        """Sends files and folders that the driver wrote in `folder` to the storage."""
        if self.is_local:
            return
        for name in names:
            path = self.folder / name
            if path.is_dir():
                self.fs.put(f"{path}/", f"{self.root}/{name}/", recursive=True)
            elif path.exists():
                self.fs.put_file(str(path), f"{self.root}/{name}")
