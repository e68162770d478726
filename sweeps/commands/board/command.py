"""`ranksweep board FOLDER --out DIR`: bundles from anyone as a static page of tied ranks."""

import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from rank_core.data.groups import read_clusters
from rank_core.errors import BadInput
from rank_core.lines import put_program
from rank_core.parsing import parsed_json
from sweeps.commands.board.pages import SYSTEMS, site
from sweeps.commands.board.submissions import FAILED, submissions
from sweeps.commands.bundle import (
    MISMATCH,
    add_limit,
    add_measure,
    check_limit,
    joined_judgments,
    own_measures,
)
from sweeps.report.build import write_files
from sweeps.systems.clusters import NONE, SOURCES
from sweeps.terminal.command_line import (
    CLUSTERS_HELP,
    CLUSTERS_OF,
    Need,
    Parser,
    check_writable,
    needing,
)
from sweeps.terminal.escape import is_web_link
from sweeps.terminal.text import say

WORKFLOW = Path(__file__).with_name("workflow.yml")
EDIT = "git+https://EDIT-host/EDIT-owner/ranksweep@EDIT-commit"
"""In place of an address that is not known; pip refuses it."""


def main(argv: Sequence[str]) -> int:
    """Verify every bundle (*.zip) below FOLDER as `ranksweep verify` does and write a static page:
    for each collection and measure, the systems in statistically indistinguishable groups, with
    intervals of their ranks, and a page for every system. Bundles with the same judgments share a
    table. Exit code 0: all pages are written; 3: they are, but some bundles are not as `bundle`
    wrote them; the pages name these bundles, and no table has their values."""
    given = _parser().parse_args(argv)
    check_limit(given.max_mib)
    if given.workflow:
        address = installed_from() or EDIT
        put_program(WORKFLOW.read_text(encoding="utf-8").replace("ADDRESS", address), end="")
        return 0
    if given.folder is None or given.out is None:
        raise BadInput("board needs a folder of bundles and --out DIR, or --workflow")
    if not given.folder.is_dir():
        raise BadInput(f"FOLDER must be a folder of bundles, got {given.folder}")
    if not is_web_link(given.link):
        raise BadInput(f"--link must be an address (http, https) or a path, got {given.link}")
    check_writable("--out", given.out)
    if given.clusters not in ("", NONE, *SOURCES):
        read_clusters(Path(given.clusters))  # refused before minutes of verification
    judgments = {}
    for text in given.qrels:
        name, _, files = text.partition("=")
        if not name or not files:
            raise BadInput(f"--qrels must be COLLECTION=FILE,..., got {text!r}")
        if name in judgments:
            raise BadInput(f"--qrels names all files of {name} at once: {name}=FILE,FILE")
        judgments[name] = joined_judgments(files.split(","))
    found = []
    with own_measures(given.measure):
        for bundle in submissions(given.folder, judgments, given.max_mib):
            reason = f": {bundle.reason}" if bundle.reason else ""
            say(f"{bundle.state:<14}{bundle.name}{reason}")
            found.append(bundle)
    if not found:
        raise BadInput(f"{given.folder} holds no bundle; `ranksweep bundle DIR --to FILE.zip`")
    for name in sorted(judgments.keys() - {bundle.collection for bundle in found}):
        say(f"warning: --qrels {name}: no verified bundle is of this collection")
    link = given.link.rstrip("/") or Path(os.path.relpath(given.folder, given.out)).as_posix()
    files = site(found, link, given.clusters)
    write_files(given.out, files)
    for path in (given.out / SYSTEMS).glob("*.html"):  # of an earlier board
        if f"{SYSTEMS}/{path.name}" not in files:
            path.unlink()
    say(f"Page: {given.out / 'index.html'}")
    return MISMATCH if any(bundle.state == FAILED for bundle in found) else 0


def _parser() -> Parser:
    parser = Parser("ranksweep board", main.__doc__)
    add = parser.add_argument
    add("folder", nargs="?", type=Path, metavar="FOLDER", help="a folder of bundles")
    add("--out", type=Path, metavar="DIR", help="the folder of the pages")
    qrels = "judgments of a collection whose bundles have only their hash; may be repeated"
    add("--qrels", action="append", default=[], metavar="COLLECTION=FILE,...", help=qrels)
    address = "address of the bundles for links (default: FOLDER, relative to the pages)"
    add("--link", default="", metavar="URL", help=address)
    clusters = f"{CLUSTERS_HELP}, or none (default: those of the sweeps' commands)"
    add("--clusters", default="", metavar=f"{CLUSTERS_OF}|none", help=clusters)
    add_measure(parser)
    add_limit(parser)
    workflow = "print a GitHub workflow that verifies the bundles of a pull request, then exit"
    needing(
        add("--workflow", action="store_true", help=workflow),
        *(
            Need(name, without=True)
            for name in ("folder", "out", "qrels", "link", "measure", "clusters")
        ),
    )
    return parser


def installed_from() -> str:
    """The address of the commit or the file that pip has installed this ranksweep from; "" for a
    folder (PEP 610)."""
    try:
        origin = parsed_json(distribution("ranksweep").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return ""
    if not str(origin.get("url", "")).startswith("https://"):
        return ""
    if commit := origin.get("vcs_info", {}).get("commit_id"):
        return f"git+{origin['url']}@{commit}"
    digest = origin.get("archive_info", {}).get("hashes", {}).get("sha256")
    return f"{origin['url']}#sha256={digest}" if digest else ""
