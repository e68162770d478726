"""Files that are written whole or not at all, and their hashes."""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, in the same existing folder. When the block ends, the
    temporary file replaces `path`; when it fails, it is removed. No reader sees half a file."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yields an empty folder beside `folder`, a new or empty one. When the block ends, it becomes
    `folder`; when the block fails, it is removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.unfinished")
    unfinished.mkdir()
    try:
        yield unfinished
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def write_json(path: Path, content: Any) -> None:
    """Writes `content` as indented JSON, whole or not at all."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=1), encoding="utf-8")


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
