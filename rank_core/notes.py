"""What a user should know of data that is read. A process prints a note once; what was made of the
data keeps its notes, and whoever opens it prints them again, so that a file is noted at every door
and not only at the one that read it first."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rank_core.lines import beside

FILE = ".notes.txt"
"""The file of the notes in a folder that was made of data."""
_said: set[str] = set()
_kept: list[list[str]] = []  # of the readings under way, the outermost first


def say(note: str) -> None:
    """Prints a note, once in a process."""
    for notes in _kept:
        notes.append(note)
    if note not in _said:
        _said.add(note)
        beside(f"note: {note}")


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Writes the notes of the block into a folder."""
    notes: list[str] = []
    _kept.append(notes)
    try:
        yield
    finally:
        _kept[:] = [own for own in _kept if own is not notes]
    if notes:
        lines = (" ".join(note.split()) for note in dict.fromkeys(notes))
        (folder / FILE).write_text("\n".join(lines), encoding="utf-8", errors="replace")


def say_again(folder: Path) -> None:
    """Prints the notes that a folder keeps."""
    file = folder / FILE
    if file.is_file():
        for note in file.read_text(encoding="utf-8").splitlines():
            say(note)
