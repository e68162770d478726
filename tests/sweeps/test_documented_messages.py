"""Every message of docs/troubleshooting.md is one that the code can print."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sweeps.commands.compare.output import PAIR_COLUMNS
from sweeps.plan.command_line import BAD_INPUT, INTERRUPTED, UNREAD
from sweeps.report.results import COMPARISON_COLUMNS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
VALUE = "\0"


def texts(node: ast.AST) -> Iterator[str]:
    """The string literals of a module, with `VALUE` for what an f-string puts in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else VALUE for part in node.values]
        yield "".join(map(str, parts))
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


def test_every_message_stands_in_the_code():
    table = PAGE.partition("## Messages")[2].partition("\n## ")[0]
    messages = re.findall(r"^\| `(.*?)` \|", table, re.M)
    paths = [path for top in ("rank_core", "sweeps") for path in (ROOT / top).rglob("*.py")]
    known = "\n".join(text for path in paths for text in texts(ast.parse(path.read_text())))
    parts = [(one, part.strip()) for one in messages for part in one.split("...")]
    assert [message for message, part in parts if part not in known] == []
    assert len(messages) > 20


def test_every_column_of_the_comparisons_is_explained():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = page.partition("## Comparisons")[2].partition("\n\nA field")[0]
    named = [name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in row.split(", ")]
    assert sorted(name.strip("`") for name in named) == sorted(COMPARISON_COLUMNS)
    assert set(PAIR_COLUMNS) <= {*COMPARISON_COLUMNS, "p_queries_tukey"}
    assert "`p_queries_tukey`" in page


def test_every_exit_code_is_explained():
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.M)}
    assert codes == {0, 1, BAD_INPUT, 3, 4, INTERRUPTED, UNREAD}
