"""`ranksweep cluster-files`: the files of clusters, from an installed package."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from rank_core.errors import BadInput
from rank_core.files import new_folder
from rank_core.lines import beside, put
from rank_core.own_code import PACKAGES
from sweeps.terminal.command_line import Parser, check_writable

FILES = Path(__file__).parents[1] / "cluster_files"
IGNORED = shutil.ignore_patterns("__pycache__", ".*")


def main(argv: Sequence[str]) -> int:
    """Write a folder to start a cluster from: files for Ray's cluster launcher, Slurm and
    Kubernetes, the versions that all nodes install, and the code. The header of each file in
    DIR/cluster explains its use."""
    folder: Path = parser().parse_args(argv).folder.absolute()
    if folder.exists():
        raise BadInput(f"{folder} exists; remove it or name another folder")
    check_writable("DIR", folder)
    with new_folder(folder) as unfinished:
        shutil.copytree(FILES, unfinished, ignore=IGNORED, dirs_exist_ok=True)
        for name in PACKAGES:
            shutil.copytree(FILES.parents[1] / name, unfinished / name, ignore=IGNORED)
    names = ", ".join(sorted(path.name for path in (folder / "cluster").iterdir()))
    put(f"{folder / 'cluster'}: {names}")
    beside(f"Follow the header of your file in {folder}")
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep cluster-files`."""
    parser = Parser("ranksweep cluster-files", main.__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new folder")
    return parser
