"""`ranksweep bundle DIR`: a finished sweep as one file that anyone can check."""

import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rank_core.data.transforms.expression import base_of, folder_and_fields
from rank_core.errors import BadInput
from sweeps.commands.bundle.archive import files_of, write_zip
from sweeps.commands.bundle.contents import (
    FORMAT,
    Manifest,
    collection_of,
    ended,
    installed,
    qrels_mode,
    stage,
)
from sweeps.commands.bundle.crate import described
from sweeps.plan.command_line import INTERPOLATE, Parser, check_writable
from sweeps.plan.terminal import say
from sweeps.report.access import ACCESS_FILE, record_access
from sweeps.report.load import load_sweep
from sweeps.store.opened_sweep import opened
from sweeps.store.storage_retry import answered

QRELS = ("include", "hash")


def main(argv: Sequence[str]) -> int:
    """Write a finished sweep into one zip file: settings, versions, runs, per-query values, report,
    checksums, RO-Crate metadata and a CITATION.cff. `ranksweep verify FILE` recomputes all of its
    numbers. The same sweep gives the same bytes.

    Judgments that come with ranksweep are included; those of ir_datasets have licences of their own
    and are only hashed; those of your own folder are hashed unless --qrels include is given."""
    parser = Parser("ranksweep bundle", main.__doc__)
    add = parser.add_argument
    add("sweep", metavar="DIR", help="the folder or URI of one sweep")
    add("--to", type=Path, required=True, metavar="FILE.zip", help="a new file")
    add("--qrels", choices=QRELS, default="", help="the judgments, or their SHA-256 alone")
    add("--interpolate", choices=INTERPOLATE, default="", help="as for `report`")
    add("--author", action="append", default=[], metavar="NAME", help="whom to cite; repeatable")
    add("--license", default="", metavar="SPDX", help="of your results, such as CC-BY-4.0")
    given = parser.parse_args(argv)
    if given.to.suffix != ".zip":
        raise BadInput(f"--to must be a file whose name ends in .zip, got {given.to}")
    if given.to.exists():
        raise BadInput(f"--to must be a new file, {given.to} exists")
    check_writable("the folder of --to", given.to.parent)
    with opened(given.sweep, trials=True) as store, tempfile.TemporaryDirectory() as temporary:
        sweep, folder = load_sweep(store.folder), Path(temporary)
        record_access(sweep, shlex.join(["ranksweep", "bundle", *argv]))
        answered(store, lambda: store.push(ACCESS_FILE))
        manifest = Manifest(
            format=FORMAT,
            qrels=qrels_mode(collection_of(sweep), given.qrels),
            interpolate=given.interpolate or sweep.interpolate,
            date=ended(store.folder),
            license=given.license,
            authors=tuple(given.author),
            made_with=installed(),
        )
        stage(sweep, folder, manifest)
        manifest.write(folder)
        for name, text in described(folder, manifest, files_of(folder)).items():
            (folder / name).write_text(text, encoding="utf-8")
        given.to.parent.mkdir(parents=True, exist_ok=True)
        write_zip(given.to, folder)
        number = len(files_of(folder))
    place = folder_and_fields(base_of(collection_of(sweep)))[0]
    if Path(place).is_absolute():
        say(f"warning: config.json of every trial names the folder of your documents: {place}")
    judgments = {"include": "with its judgments", "hash": "with the hash of its judgments"}
    say(
        f"bundled     {given.to}: {number} files, {given.to.stat().st_size:,} bytes, "
        f"{judgments[manifest.qrels]}; ranksweep verify {given.to}"
    )
    return 0
