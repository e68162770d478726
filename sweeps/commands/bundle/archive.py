"""Zip files with checksums: the same bytes from the same files."""

import hashlib
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from rank_core.errors import BadInput
from rank_core.files import atomic_write, file_sha256

SUMS = "SHA256SUMS"  # of every other file, for `sha256sum --check`
PACKED = (".gz", ".parquet", ".png")
"""Files that are compressed already."""
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
            entry, digest = _entry(name), hashlib.sha256()
            entry.file_size = (folder / name).stat().st_size  # decides about 64-bit sizes
            with (folder / name).open("rb") as source, archive.open(entry, "w") as target:
                for piece in iter(lambda: source.read(_PIECE), b""):
                    digest.update(piece)
                    target.write(piece)
            sums.append(f"{digest.hexdigest()}  {name}\n")
        archive.writestr(_entry(SUMS), "".join(sums))


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name)  # of 1980
    entry.compress_type = ZIP_STORED if name.endswith(PACKED) else ZIP_DEFLATED
    entry.create_system, entry.external_attr = 3, 0o100644 << 16  # as on Unix everywhere
    return entry


def unpack(path: Path, folder: Path) -> None:
    """Unpack a zip file, from any source, into a folder; no entry leads out of it. Raises
    `BadInput` where the file is damaged or too large for the disk."""
    try:
        with ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > (free := shutil.disk_usage(folder).free):
                raise BadInput(f"{path}: unpacks to {size:,} bytes, and {free:,} are free")
            if not all(archive.namelist()):
                raise BadZipFile("a file in it has no name")
            archive.extractall(folder)
    except (OSError, BadZipFile, zlib.error, NotImplementedError, ValueError) as error:
        raise BadInput(f"{path} must be a zip file as `bundle` wrote it: {error}") from None


def wrong_sums(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(file, stated SHA-256, actual SHA-256) where an unpacked bundle and its checksums disagree;
    "none" for a file that is missing or not stated."""
    path = folder / SUMS
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    stated = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    own = {name: file_sha256(folder / name) for name in files_of(folder)}
    for name in sorted({*stated, *own}):
        if stated.get(name) != own.get(name):
            yield name, stated.get(name, "none"), own.get(name, "none")
