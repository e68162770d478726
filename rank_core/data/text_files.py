"""Text files line by line: UTF-8, gzip where the name ends in `.gz`, one error per broken law."""

import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from rank_core.errors import BadInput
from rank_core.files import atomic_write

MAX_NAME = 1000  # characters of an id; the longest in use are URLs
_SHOWN = 80  # characters of what was found
_GZIP = b"\x1f\x8b"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ufeff]")  # and the byte order mark, which nobody sees


def is_identifier(name: str) -> bool:
    """Whether `name` survives a file whose columns are split at white space, and can be read."""
    return name.split() == [name] and len(name) <= MAX_NAME and not _CONTROL.search(name)


def require_identifier(place: str, kind: str, name: str) -> None:
    """Refuse a name that is no word; `place` is a file, or a file and a line."""
    if is_identifier(name):
        return
    law = f"{place}: a {kind} must be one word without white space"
    if len(name) > MAX_NAME:
        raise BadInput(f"{law} of at most {MAX_NAME} characters, found {len(name)}: {shown(name)}")
    if name.split() == [name]:
        raise BadInput(f"{law} or control characters, found {shown(name)}")
    raise BadInput(f"{law}, found {shown(name)}")


def shown(text: str) -> str:
    """What was found, on one line however long or strange it is."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def read_content(path: Path) -> bytes:
    """The bytes of a file, decompressed where its name ends in `.gz`."""
    try:
        content = path.read_bytes()
        if path.suffix != ".gz":
            return content
        if not content:
            raise EOFError("it is empty")
        return gzip.decompress(content)
    except FileNotFoundError:
        found = "; it is a symbolic link to nowhere" if path.is_symlink() else ""
        raise BadInput(f"{path} does not exist{found}") from None
    except IsADirectoryError:
        raise BadInput(f"{path} must be a file, found a folder") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(f"{path} must be one whole gzip file: {error}") from None
    except OSError as error:
        raise BadInput(f"{path} must be readable: {error.strerror or error}") from None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """(line number, line) of a UTF-8 file, from 1; lines of white space alone are left out."""
    content = read_content(path)
    _refuse_other_formats(path, content)
    try:
        text = content.decode("utf-8-sig")  # Windows editors write a byte order mark
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"{path}:{number}: text must be UTF-8, found byte 0x{content[error.start]:02x}"
        ) from None
    # Not splitlines(): that also splits at separators which may stand inside a text.
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if "\r" in line:
            raise BadInput(
                f"{path}:{number}: a line must end in LF or CR LF, found a carriage return (CR) "
                f"inside: {shown(line)}"
            )
        if line.strip():
            yield number, line


def _refuse_other_formats(path: Path, content: bytes) -> None:
    if content.startswith(_GZIP):
        raise BadInput(f"{path} must be text, found gzip; a gzip file's name ends in .gz, once")
    place = content.find(0)
    if place >= 0:
        number = content.count(b"\n", 0, place) + 1
        column = place - content.rfind(b"\n", 0, place)
        raise BadInput(
            f"{path}:{number}: text must be UTF-8 without NUL bytes, found one at byte {column} "
            "of the line (UTF-16, or no text at all?)"
        )


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write UTF-8 lines so that `path` never holds half of them, gzip where it ends in `.gz`."""
    content = "".join(f"{line}\n" for line in lines).encode()
    if path.suffix == ".gz":
        packed = io.BytesIO()
        # No name and no time in the header: the same lines give the same bytes.
        with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as stream:
            stream.write(content)
        content = packed.getvalue()
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(content)
