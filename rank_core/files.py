"""Files that are whole or not there."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to. What was written there takes the place of `path`
    when the block ends, and is removed when it fails: a reader, or a process killed on the way,
    never leaves or sees half a file. The folder must be there."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Writes `content` as indented JSON, whole or not at all."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=1), encoding="utf-8")
