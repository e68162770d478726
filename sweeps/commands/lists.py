"""`ranksweep settings`, `collections`, `sweeps` and `measures`: lists, or JSON; `settings
--markdown` prints docs/settings.md."""

import ast
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rank_core.data.load import COLLECTIONS
from rank_core.data.named import NAMED
from rank_core.data.transforms.expression import TRANSFORMS
from rank_core.errors import BadInput
from rank_core.own_code import announced
from rank_core.settings.config import Setting, declared_settings
from sweeps.plan.command_line import Parser
from sweeps.plan.terminal import wrapped

KINDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}
EMBEDDED = "embedded: built on this machine without a download"
SECTIONS = {
    "": "Of a trial as a whole",
    "model": "The ranker",
    "chunking": "The cut of documents, in tokens of the backbone",
    "training": "Training on groups of a query, a relevant document and negatives",
    "evaluation": "Reranking and measures",
    "chat": "The chat model of `rankgpt`",
}

Row = dict[str, Any]


def settings(argv: Sequence[str]) -> int:
    """List settings with type, default, description and Hugging Face name."""
    parser = _parser("settings", settings.__doc__)
    parser.add_argument("--markdown", action="store_true", help="print docs/settings.md")
    arguments = parser.parse_args(argv)
    if arguments.markdown:
        print(settings_page(), end="")
        return 0
    rows = [_setting_row(setting) for setting in declared_settings()]
    return _show(arguments, rows, lambda row: f"{row['type']}, {_default(row)}. {_text(row)}")


def collections(argv: Sequence[str]) -> int:
    """List the named collections with their sources."""
    arguments = _parser("collections", collections.__doc__).parse_args(argv)
    rows = [{"name": name, "text": _origin(name)} for name in COLLECTIONS]
    rows += [{"name": name, "text": path} for name, path in announced("collection").items()]
    code = _show(arguments, rows, lambda row: row["text"])
    if not arguments.json:
        also = (
            "Also: a folder (docs/data.md), ir:ID of ir_datasets, module:function of your own "
            f"(docs/extending.md), NAME|{'|NAME|'.join(TRANSFORMS)}"
        )
        print(wrapped(also, indent=6))
    return code


def sweep_files(argv: Sequence[str]) -> int:
    """List sweeps with their questions."""
    arguments = _parser("sweeps", sweep_files.__doc__).parse_args(argv)
    files = sorted(Path(__file__).parents[1].glob("[!_]*.py"))
    rows = [{"name": path.stem, "text": _first_line(path)} for path in files]
    return _show(arguments, rows, lambda row: row["text"])


def measures(argv: Sequence[str]) -> int:
    """List the measures of ir_measures with their parameters and other names."""
    arguments = _parser("measures", measures.__doc__).parse_args(argv)
    import ir_measures

    known = ir_measures.measures.registry
    registry = {measure.NAME: measure for measure in known.values()}
    rows = [
        {
            "name": name,
            "aliases": [alias for alias in known if alias != name and known[alias] is known[name]],
            "takes": [*measure.SUPPORTED_PARAMS],
            "needs": [param for param, law in measure.SUPPORTED_PARAMS.items() if law.required],
            "text": re.split(r"(?<=\.) | \.\. ", " ".join((measure.__doc__ or "").split()))[0],
        }
        for name, measure in registry.items()
    ]
    code = _show(arguments, rows, _measure_text)
    if not arguments.json:
        print("a cutoff follows @, other parameters are in brackets: nDCG@10, AP(rel=2)@100")
        print("compare also reads the names of trec_eval: ndcg_cut_10, map")
    return code


def settings_page() -> str:
    """docs/settings.md."""
    from rank_core.encoders.shipped import SETTINGS, SHIPPED

    lines = [
        "# Settings",
        "",
        "Every setting of a trial, made by `make docs` from the declarations in "
        "`rank_core/settings`. On a command line: `chunking.window=150`, or several values of a "
        "setting that a sweep varies: `chunking.window=75,150`. `ranksweep settings WORD` prints "
        "those with WORD in them.",
        "",
        f"The embedded backbones ({', '.join(map('`{}`'.format, SHIPPED))}) have other "
        "defaults, which the plan of a sweep prints: "
        + ", ".join(f"`{name}={value:g}`" for name, value in SETTINGS.items())
        + ".",
    ]
    for section, title in SECTIONS.items():
        lines += ["", f"## {section or 'collection, seed'}", "", f"{title}.", ""]
        lines += [
            "| setting | type | default | Hugging Face | what it is |",
            "|---|---|---|---|---|",
        ]
        for row in map(_setting_row, declared_settings()):
            if row["name"].rpartition(".")[0] == section:
                aliases = ", ".join(f"`{name}`" for name in row["hugging_face"])
                cells = (f"`{row['name']}`", row["type"], _default(row), aliases, row["text"])
                lines.append(
                    f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
                )
    return "\n".join([*lines, ""])


def _setting_row(setting: Setting) -> Row:
    default = setting.default
    return {
        "name": setting.name,
        "type": KINDS.get(setting.kind, "list of texts"),
        "default": list(default) if isinstance(default, tuple) else default,
        "text": setting.text,
        "hugging_face": list(setting.aliases),
    }


def _default(row: Row) -> str:
    value = row["default"]
    if isinstance(value, list):
        value = ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value) or "empty"


def _text(row: Row) -> str:
    aliases = row["hugging_face"]
    also = f" (Hugging Face: {', '.join(aliases)})" if aliases else ""
    return f"{row['text']}{also}"


def _measure_text(row: Row) -> str:
    takes = [f"{name} (needed)" if name in row["needs"] else name for name in row["takes"]]
    also = f" (also {', '.join(row['aliases'])})" if row["aliases"] else ""
    return f"{', '.join(takes) or 'no setting'}. {row['text']}{also}"


def _origin(name: str) -> str:
    if name not in NAMED:
        return EMBEDDED
    parts = NAMED[name].splits.items()
    return "; ".join(f"{split} ir:{', ir:'.join(p.dataset_id for p in of)}" for split, of in parts)


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def _parser(name: str, doc: str | None) -> Parser:
    parser = Parser(f"ranksweep {name}", doc)
    parser.add_argument("word", nargs="?", default="", help="only lines with this word")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _show(arguments: Any, rows: list[Row], text: Any) -> int:
    """Print the rows that contain the given word and return exit code 0."""
    shown = [row for row in rows if arguments.word.lower() in str([*row.values()]).lower()]
    if not shown:
        raise BadInput(f"none of the {len(rows)} lines contains {arguments.word!r}")
    if arguments.json:
        print(json.dumps(shown, indent=1))
        return 0
    width = max(len(row["name"]) for row in shown) + 2
    for row in shown:
        print(wrapped(f"{row['name']:<{width}}{text(row)}", indent=width))
    return 0
