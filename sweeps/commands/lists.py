"""`ranksweep settings`, `collections`, `sweeps` and `measures`: lists; `settings --markdown` prints
docs/settings.md."""

import ast
import re
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

from rank_core.data.load import COLLECTIONS
from rank_core.data.made import longembed, mldr, msmarco_far_relevant
from rank_core.data.named import NAMED
from rank_core.data.transforms.expression import TRANSFORMS
from rank_core.errors import BadInput
from rank_core.lines import put, put_program
from rank_core.own_code import announced
from rank_core.settings.config import Setting, declared_settings
from sweeps.commands.schema import SCHEMAS, schema_text
from sweeps.terminal.command_line import Need, Parser, needing
from sweeps.terminal.text import wrapped

KINDS = {int: "int", float: "float", str: "str", bool: "bool"}
LIST = "list[str]"
EMBEDDED = "embedded: built on this machine without a download"
SECTIONS = {
    "": "Settings of the whole trial",
    "model": "The ranker",
    "chunking": "How documents are cut, in tokens of the backbone",
    "training": "Training on groups of a query, a relevant document and negatives",
    "evaluation": "Reranking and measures",
    "chat": "The chat model of `rankgpt`",
}


def settings(argv: Sequence[str]) -> int:
    """List settings with type, default, description and Hugging Face name."""
    arguments = settings_parser().parse_args(argv)
    if arguments.json_schema:
        put_program(schema_text(arguments.json_schema))
        return 0
    if arguments.markdown:
        put_program(settings_page(), end="")
        return 0
    rows = []
    for setting in declared_settings():
        also = f" (Hugging Face: {', '.join(setting.aliases)})" if setting.aliases else ""
        kind = KINDS.get(setting.kind, LIST)
        rows.append((setting.name, f"{kind}, {_default(setting)}. {setting.text}{also}"))
    return _show(arguments, rows)


def settings_parser() -> Parser:
    """The arguments and flags of `ranksweep settings`."""
    parser = _list_parser("settings", settings.__doc__)
    page = parser.add_argument("--markdown", action="store_true", help="print docs/settings.md")
    needing(page, Need("word", without=True))
    schema = parser.add_argument(
        "--json-schema",
        nargs="?",
        const="sweep",
        choices=[*SCHEMAS],
        help="print the JSON schema of a TOML sweep (the default), or of another file",
    )
    needing(schema, Need("word", without=True), Need("markdown", without=True))
    return parser


def collections(argv: Sequence[str]) -> int:
    """List the named collections with their sources."""
    arguments = collections_parser().parse_args(argv)
    rows = [(name, _origin(name)) for name in COLLECTIONS]
    _show(arguments, [*rows, *announced("collection").items()])
    also = (
        "Also: a folder (docs/data.md), ir:ID of ir_datasets, module:function of your own "
        f"(docs/extending.md), NAME|{'|NAME|'.join(TRANSFORMS)}"
    )
    put(wrapped(also, indent=6))
    return 0


def collections_parser() -> Parser:
    """The arguments and flags of `ranksweep collections`."""
    return _list_parser("collections", collections.__doc__)


def sweep_files(argv: Sequence[str]) -> int:
    """List sweeps with their questions."""
    arguments = sweeps_parser().parse_args(argv)
    rows = []
    for path in sorted(Path(__file__).parents[1].glob("[!_]*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        rows.append((path.stem, text.partition("\n")[0]))
    return _show(arguments, rows)


def sweeps_parser() -> Parser:
    """The arguments and flags of `ranksweep sweeps`."""
    return _list_parser("sweeps", sweep_files.__doc__)


def measures(argv: Sequence[str]) -> int:
    """List the measures of ir_measures with their parameters and other names."""
    arguments = measures_parser().parse_args(argv)
    import ir_measures

    known = ir_measures.measures.registry
    ndeval = ir_measures.providers.registry["pyndeval"]
    subtopics = {measure.NAME for measure in ndeval.SUPPORTED_MEASURES}
    rows = []
    for name, measure in {measure.NAME: measure for measure in known.values()}.items():
        takes = ", ".join(
            f"{param} (needed)" if law.required else param
            for param, law in measure.SUPPORTED_PARAMS.items()
        )
        aliases = [alias for alias in known if alias != name and known[alias] is known[name]]
        text = re.split(r"(?<=\.) | \.\. ", " ".join((measure.__doc__ or "").split()))[0]
        also = f" (also {', '.join(aliases)})" if aliases else ""
        if name in subtopics:
            text = "Needs judgments of subtopics, which no file here has: compute it by ndeval"
        rows.append((name, f"{takes or 'no setting'}. {text}{also}"))
    _show(arguments, rows)
    put("a cutoff follows @, other parameters are in brackets: nDCG@10, AP(rel=2)@100")
    put("compare also reads the names of trec_eval: ndcg_cut_10, map")
    return 0


def measures_parser() -> Parser:
    """The arguments and flags of `ranksweep measures`."""
    return _list_parser("measures", measures.__doc__)


def _short(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def settings_page() -> str:
    """docs/settings.md."""
    from rank_core.encoders.shipped import SETTINGS, SHIPPED

    lines = [
        "# Settings",
        "",
        "This page lists every setting of a trial; `make docs` writes it from the declarations in "
        "`rank_core/settings`. On a command line, write `chunking.window=150`, or several values "
        "of a setting that the sweep varies: `chunking.window=75,150`. `ranksweep settings WORD` "
        "prints the lines that contain WORD.",
        "",
        f"The embedded backbones ({', '.join(map('`{}`'.format, SHIPPED))}) have other "
        "defaults, which the plan of a sweep prints: "
        + ", ".join(f"`{name}={_short(value)}`" for name, value in SETTINGS.items())
        + ".",
    ]
    for section, title in SECTIONS.items():
        lines += ["", f"## {section or 'collection, seed'}", "", f"{title}.", ""]
        lines += [
            "| setting | type | default | Hugging Face | what it is |",
            "|---|---|---|---|---|",
        ]
        for setting in declared_settings():
            if setting.name.rpartition(".")[0] == section:
                aliases = ", ".join(f"`{name}`" for name in setting.aliases)
                kind = KINDS.get(setting.kind, LIST)
                facts = kind, _default(setting), aliases, setting.text
                cells = (text.replace("|", r"\|") for text in (f"`{setting.name}`", *facts))
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _default(setting: Setting) -> str:
    value = setting.default
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return text.lower() if isinstance(value, bool) else text or "empty"


def _origin(name: str) -> str:
    hub = "https://huggingface.co/datasets/"
    if name in mldr.FOLDERS:
        return f"{mldr.FOLDERS[name]} of {hub}{mldr.REPOSITORY}"
    if name in longembed.NAMES:
        return f"test: {longembed.NAMES[name][0]} of {hub}{longembed.REPOSITORY}"
    if name == msmarco_far_relevant.NAME:
        return msmarco_far_relevant.URL
    if name not in NAMED:
        return EMBEDDED
    parts = NAMED[name].splits.items()
    return "; ".join(f"{split} ir:{', ir:'.join(p.dataset_id for p in of)}" for split, of in parts)


def _list_parser(name: str, doc: str | None) -> Parser:
    parser = Parser(f"ranksweep {name}", doc)
    parser.add_argument("word", nargs="?", default="", help="print only the lines with this word")
    return parser


def _show(arguments: Namespace, rows: Iterable[tuple[str, str]]) -> int:
    """Print the names and texts that contain the given word and return exit code 0."""
    shown = [row for row in rows if arguments.word.lower() in " ".join(row).lower()]
    if not shown:
        raise BadInput(f"no line contains {arguments.word!r}")
    width = max(len(name) for name, _ in shown) + 2
    for name, text in shown:
        put(wrapped(f"{name:<{width}}{text}", indent=width))
    return 0
