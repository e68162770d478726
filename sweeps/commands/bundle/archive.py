"""Zip files: the same bytes from the same files, safe to unpack from any source."""

import gzip
import hashlib
import shutil
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import pyarrow.parquet as pq

from rank_core.errors import BadInput, shown
from rank_core.files import atomic_write, file_sha256

SUMS = "SHA256SUMS"  # of every other file, for `sha256sum --check`
PACKED = (".gz", ".parquet", ".png")
"""Files that are compressed already."""
MOST_FILES = 1_000_000
EXPANSION = 200
FREE = 2**24
"""A file may unpack to `EXPANSION` times its size and `FREE` bytes more."""
_PIECE = 2**20


def files_of(folder: Path) -> list[str]:
    """The sorted relative paths of all files below a folder except the checksums."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in paths if name != SUMS)


def write_zip(out: Path, folder: Path) -> None:
    """Write all files of a folder and their checksums to `out`, whole or not at all, in the order
    of their names and without times; files are read in parts."""
    sums = []
    with atomic_write(out) as unfinished, ZipFile(unfinished, "w") as archive:
        for name in files_of(folder):
            sums.append(f"{_write(archive, folder / name, name)}  {name}\n")
        archive.writestr(_entry(SUMS), "".join(sums))


def _write(archive: ZipFile, path: Path, name: str) -> str:
    """Add a file and return its SHA-256."""
    entry, digest = _entry(name), hashlib.sha256()
    entry.file_size = path.stat().st_size  # decides whether the entry needs 64-bit sizes
    with path.open("rb") as source, archive.open(entry, "w") as target:
        for piece in _pieces(source):
            digest.update(piece)
            target.write(piece)
    return digest.hexdigest()


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name)  # of 1980
    entry.compress_type = ZIP_STORED if name.endswith(PACKED) else ZIP_DEFLATED
    entry.create_system = 3  # Unix on every machine
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


def unpack(path: Path, folder: Path) -> None:
    """Unpack an untrusted zip file into an empty folder. Raises `BadInput` before a byte is written
    where a name leads out of the folder, an entry is no plain file, or the contents are too large;
    and where the file is damaged."""
    if not path.is_file():
        raise BadInput(f"{path} does not exist; it must be a file that `bundle` wrote")
    folder.mkdir(exist_ok=True)
    try:
        with ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            _check(path, entries, shutil.disk_usage(folder).free)
            for entry in entries:
                target = folder / entry.filename
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, target.open("xb") as copy:
                    shutil.copyfileobj(source, copy, _PIECE)
    except BadInput:
        raise
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, FileExistsError,
            NotADirectoryError, IsADirectoryError, UnicodeError, ValueError) as error:  # fmt: skip
        raise BadInput(f"{path} must be a zip file as `bundle` wrote it: {error}") from None
    for file in folder.rglob("*"):
        _check_expansion(path, file)


def _check(path: Path, entries: list[ZipInfo], free: int) -> None:
    """Refuse contents that `bundle` never writes, from their list alone."""
    if len(entries) > MOST_FILES:
        raise BadInput(f"{path}: must hold at most {MOST_FILES:,} files, has {len(entries):,}")
    if len({entry.filename for entry in entries}) < len(entries):
        raise BadInput(f"{path}: must hold every file once")
    if (size := sum(entry.file_size for entry in entries)) > free:
        raise BadInput(f"{path}: unpacks to {size:,} bytes, and {free:,} are free")
    for entry in entries:
        name, mode = entry.filename, entry.external_attr >> 16
        plain = PurePosixPath(name)
        outside = plain.is_absolute() or ".." in plain.parts or "\\" in name or ":" in name
        if outside or str(plain) != name:
            raise BadInput(f"{path}: names must lead to files inside the bundle; got {shown(name)}")
        if (stat.S_IFMT(mode) and not stat.S_ISREG(mode)) or entry.flag_bits & 1:
            raise BadInput(f"{path}: must hold plain files only; {shown(name)} is none")
        if entry.file_size > EXPANSION * entry.compress_size + FREE:
            raise _too_large(path, name, entry.file_size)


def _check_expansion(path: Path, file: Path) -> None:
    """Refuse a compressed file that would fill the memory."""
    if not file.is_file():
        return
    allowed = EXPANSION * file.stat().st_size + FREE
    try:
        if file.suffix == ".gz":
            with gzip.open(file) as source:
                size = 0
                for piece in _pieces(source):
                    if (size := size + len(piece)) > allowed:
                        break
        elif file.suffix == ".parquet":
            facts = pq.read_metadata(file)
            size = 8 * facts.num_rows * facts.num_columns
        else:
            return
    except Exception as error:  # gzip, zlib and pyarrow have many kinds
        raise BadInput(f"{path}: {file.name} cannot be read: {error}") from None
    if size > allowed:
        raise _too_large(path, file.name, size)


def _too_large(path: Path, name: str, size: int) -> BadInput:
    return BadInput(f"{path}: {shown(name)} would unpack to {size:,} bytes, too many for its size")


def _pieces(source: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    return iter(lambda: source.read(_PIECE), b"")


def wrong_sums(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(file, stated SHA-256, actual SHA-256) where an unpacked bundle and its checksums disagree;
    "none" for a file that is missing or not stated."""
    path = folder / SUMS
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    stated = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    own = {name: file_sha256(folder / name) for name in files_of(folder)}
    for name in sorted({*stated, *own}):
        if stated.get(name) != own.get(name):
            yield name, stated.get(name, "none"), own.get(name, "none")
