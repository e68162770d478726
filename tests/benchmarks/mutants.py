"""The strength of the tests: how many planted faults and mutants do the quick ones notice?

A planted fault (planted_faults.toml) undoes a repair of this repository's history; a mutant
(mutants.jsonl) is a drawn statement with one small change. Both are texts that another layout can
be searched for (`find`), so that the same faults are run before and after code moves. Each is
written into a copy of the tracked files, in which the tests run that reach the changed lines.

    python -m pytest -n 2 --cov=rank_core --cov=sweeps --cov-context=test --junitxml=times.xml
    python -m tests.benchmarks.mutants draw
    python -m tests.benchmarks.mutants run --coverage .coverage --times times.xml
    python -m tests.benchmarks.mutants table

`run` appends to proof.jsonl and goes on where it ended. It needs `coverage`, the first line
`pytest-cov` (neither is a requirement of the package).
"""

import argparse
import ast
import collections
import copy
import json
import random
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MUTANTS, FAULTS = HERE / "mutants.jsonl", HERE / "planted_faults.toml"
RESULTS, PAGE = HERE / "proof.jsonl", HERE / "proof.md"
ROOMS = {
    **{f"rank_core/{room}/": 1.5 for room in ("chunking", "ranking", "stats", "training")},
    **{f"rank_core/{room}/": 1.5 for room in ("trial", "checkpoints", "settings")},
    **{"rank_core/models/": 1.2, "rank_core/data/": 0.7, "rank_core/": 1.0},
    **{"sweeps/search/": 1.5, "sweeps/engine/": 1.0, "sweeps/plan/": 0.7, "sweeps/report/": 0.6},
}
"""The weight of a statement in the draw; the first fit counts, other rooms are not drawn from."""
LEAVING = (
    *("rank_core/testing/", "rank_core/data/made/", "rank_core/encoders/docstrings.py"),
    *("rank_core/encoders/tiny.py", "sweeps/search/halving.py", "sweeps/report/published.py"),
)

HEADERS = (ast.FunctionDef, ast.If, ast.While, ast.For, ast.With)
SIMPLE = (
    *(ast.Return, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Raise),
    *(ast.Continue, ast.Break),
)
COMPARISONS: dict[Any, tuple[Any, ...]] = {
    **{ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt)},
    **{ast.GtE: (ast.Gt, ast.LtE), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,)},
    **{ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,)},
}
OPERATORS: dict[Any, Any] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.USub: ast.UAdd},
}
TEXTS = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)


def statements(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, Any]]:
    """Every statement that can be changed alone, with the dotted name of what it stands in."""
    for node in ast.iter_child_nodes(tree):
        inner = inside
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = f"{inside}.{node.name}".lstrip(".")
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, HEADERS + SIMPLE):
            yield inner, node
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            yield from statements(node, inner)


def text_of(node: Any) -> str:
    """A statement in one form whatever its layout; of a compound one the first line."""
    node = copy.copy(node)
    if isinstance(node, HEADERS):
        node.body, node.orelse, node.decorator_list = [ast.Pass()], [], []
    return ast.unparse(node).removesuffix("\n    pass")


def _sites(tree: ast.AST) -> Iterator[Any]:
    """The parts that may change: neither annotations nor texts for people."""
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns") or (name == "body" and isinstance(tree, HEADERS)):
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST) and not isinstance(node, ast.JoinedStr):
                yield from _sites(node)


def _is_text(node: Any) -> bool:
    return isinstance(node, TEXTS) or isinstance(getattr(node, "value", None), str)


def _others(node: Any) -> Iterator[tuple[str, str, Any]]:
    """What one part may become: (kind of change, field, its new value)."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    yield "comparison", "ops", [*ops[:at], other(), *ops[at + 1 :]]
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.UnaryOp(op=op):
            sides = (getattr(node, side, None) for side in ("left", "right", "value"))
            if type(op) in OPERATORS and not any(map(_is_text, sides)):
                yield "operator", "op", OPERATORS[type(op)]()
        case ast.Constant(value=bool(value)):
            yield "constant", "value", not value
        case ast.Constant(value=int(value)):
            yield from (("constant", "value", value + step) for step in (1, -1))
        case ast.Constant(value=float(value)):
            yield from (("constant", "value", other) for other in (2 * value, value + 1))
        case ast.Call(keywords=keywords):
            for at in range(len(keywords)):
                yield "keyword", "keywords", keywords[:at] + keywords[at + 1 :]
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "condition", "test", ast.UnaryOp(ast.Not(), test)
        case ast.comprehension(ifs=[first, *rest]):
            yield "condition", "ifs", [ast.UnaryOp(ast.Not(), first), *rest]
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return", "value", ast.Constant(None)


def changes_of(node: Any) -> dict[str, list[str]]:
    """The texts that a statement becomes by one change, by its kind."""
    text, found = text_of(node), collections.defaultdict(list)
    shown = isinstance(node, ast.Expr) and (
        _is_text(node.value) or text.startswith(("print(", "yield", "super().__init__"))
    )
    place = isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    removable = ast.Expr | ast.Raise | ast.Continue | ast.Break | ast.AugAssign
    if not shown and (place or isinstance(node, removable)):
        found["deletion"] = ["pass"]
    for site in () if shown or isinstance(node, ast.Raise) else list(_sites(node)):
        for kind, field, other in list(_others(site)):
            kept = getattr(site, field)
            setattr(site, field, other)
            if (changed := text_of(node)) not in (text, *found[kind]):
                found[kind].append(changed)
            setattr(site, field, kept)
    return {kind: texts for kind, texts in found.items() if texts}


def product_files(root: Path) -> list[str]:
    found = (path for room in ("rank_core", "sweeps") for path in (root / room).rglob("*.py"))
    return sorted(str(path.relative_to(root)) for path in found)


def _one_of(rng: random.Random, kinds: list[str]) -> str:
    """A returned None is seldom missed: half as likely."""
    return rng.choices(kinds, [1 - (kind == "return") / 2 for kind in kinds])[0]


def draw(root: Path, num: int, seed: int) -> list[dict[str, Any]]:
    """Statements by the weights of their rooms; of each a kind of change, then one change."""
    rng, drawn = random.Random(seed), []
    for file in product_files(root):
        weight = next((weight for room, weight in ROOMS.items() if file.startswith(room)), 0)
        if not weight or file.startswith(LEAVING):
            continue
        seen: collections.Counter[tuple[str, str]] = collections.Counter()
        for inside, node in statements(ast.parse((root / file).read_text())):
            text = text_of(node)
            seen[inside, text] += 1
            if kinds := changes_of(node):
                row = {"file": file, "inside": inside, "nth": seen[inside, text]}
                row |= {"statement": text, "kind": (kind := _one_of(rng, sorted(kinds)))}
                row["changed"] = rng.choice(kinds[kind])
                drawn.append((rng.random() ** (1 / weight), row))
    chosen = sorted(drawn, key=lambda pair: -pair[0])[:num]
    rows = sorted((row for _, row in chosen), key=lambda row: (row["file"], row["inside"]))
    return [{"id": f"m{number:03}"} | row for number, row in enumerate(rows, 1)]


def _located(source: str, row: dict[str, Any]) -> Any:
    """A mutant's statement: in its function, else where it stands once in the file."""
    pairs = statements(ast.parse(source))
    equal = [(inside, node) for inside, node in pairs if text_of(node) == row["statement"]]
    there = [node for inside, node in equal if inside == row["inside"]]
    if len(there) >= row["nth"]:
        return there[row["nth"] - 1]
    return equal[0][1] if len(equal) == 1 else None


def _reached(source: str, first: int, last: int) -> range:
    """The lines whose tests may notice a change of some lines: what runs when a module is imported
    is noticed by who uses its class, its function or itself."""
    inside = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.lineno <= first
        and (node.end_lineno or 0) >= last
        and any(isinstance(part, ast.FunctionDef) for part in ast.walk(node))
    ]
    if not inside:
        return range(1, source.count("\n") + 2)
    inner = max(inside, key=lambda node: node.lineno)
    if isinstance(inner, ast.FunctionDef) and first >= inner.body[0].lineno:
        return range(first, last + 1)
    return range(inner.lineno, (inner.end_lineno or 0) + 1)


def faulty(source: str, row: dict[str, Any]) -> tuple[str, range] | None:
    """The changed source and the lines whose tests may notice; None where the text is not found."""
    if "search" in row:
        if source.count(row["search"]) != 1:
            return None
        first = source[: source.index(row["search"])].count("\n") + 1
        last = first + row["search"].rstrip("\n").count("\n")
        return source.replace(row["search"], row["replace"]), _reached(source, first, last)
    if (node := _located(source, row)) is None:
        return None
    lines = source.splitlines()
    end = node.end_lineno
    if isinstance(node, HEADERS):
        body = node.body[0]
        end = min(part.lineno for part in (body, *getattr(body, "decorator_list", ()))) - 1
    line = lines[node.lineno - 1]
    start = line[: node.col_offset] + "el" * line.lstrip().startswith("elif ")
    changed = [*lines[: node.lineno - 1], start + row["changed"], *lines[end:]]
    return "\n".join(changed) + "\n", _reached(source, node.lineno, end)


def load(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    if path.suffix == ".toml":
        rows = tomllib.loads(path.read_text())["fault"]
        return [{"id": f"f{number:02}"} | row for number, row in enumerate(rows, 1)]
    return [json.loads(line) for line in path.read_text().splitlines()]


def find(root: Path) -> None:
    """Says of each fault whether its text stands where it stood, elsewhere or nowhere."""
    sources = {file: (root / file).read_text() for file in product_files(root)}
    for row in [*load(FAULTS), *load(MUTANTS)]:
        if not faulty(sources.get(row["file"], ""), row):
            others = [file for file, source in sources.items() if faulty(source, row)]
            print(row["id"], row["file"], "->", " ".join(others) or "nowhere")


def _cell(text: str) -> str:
    return "`" + " ".join(text.split()).replace("|", "\\|").replace("`", "'") + "`"


def table() -> str:
    """The tables of proof.md: of the faults, of the mutants, and what survived."""
    results: dict[str, dict[str, Any]] = collections.defaultdict(dict)
    for row in load(RESULTS):  # the last run counts
        results[row["id"]] |= row
    faults, mutants = load(FAULTS), load(MUTANTS)
    parts = []
    for title, rows in (("Planted faults", faults), ("Mutants", mutants)):
        ran = [results[row["id"]] for row in rows if row["id"] in results]
        counts = collections.Counter(row["outcome"] for row in ran)
        told = ", ".join(f"{num} {name}" for name, num in sorted(counts.items()))
        share = f"{100 * counts['killed'] / max(1, len(ran)):.1f}%"
        parts.append(f"## {title}\n\n{len(ran)} of {len(rows)} ran: {told}; {share} killed.\n")
        for survived in (True, False):
            parts.append(
                "| id | where | fault | outcome | first failing test | s | at |\n" + "|---" * 7
            )
            parts[-1] += "|"
            for row in (row for row in rows if row["id"] in results):
                result = results[row["id"]]
                if (result["outcome"] == "killed") == survived:
                    continue
                what = row.get("behaviour") or f"{_cell(row['statement'])}: {_cell(row['changed'])}"
                where = f"{row['file']} {row.get('inside', row.get('commit'))}"
                test = _cell(result["test"]) if result.get("test") else result.get("note", "")
                cells = [row["id"], where, what, result["outcome"], test]
                cells += [result.get("seconds", ""), result.get("commit", "")]
                parts[-1] += "\n| " + " | ".join(map(str, cells)) + " |"
            parts[-1] += "\n"
    return "\n".join(parts)


def parser() -> argparse.ArgumentParser:
    given = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    given.add_argument("action", choices=("draw", "find", "run", "table"))
    given.add_argument("--root", type=Path, default=ROOT, help="the checkout that is tested")
    given.add_argument("--num", type=int, default=400, help="mutants to draw")
    given.add_argument("--seed", type=int, default=20261123)
    given.add_argument("--coverage", type=Path, nargs="+", default=[ROOT / ".coverage"])
    given.add_argument("--times", type=Path, nargs="+", default=[ROOT / "times.xml"])
    given.add_argument("--seconds", type=float, default=40, help="of tests per fault")
    given.add_argument("--slots", type=int, default=2, help="faults tested at a time")
    given.add_argument("--without", nargs="+", default=[], help="tests that are left out")
    given.add_argument("--again", nargs="+", default=[], help="outcomes that are run again")
    given.add_argument("--same", action="store_true", help="what was killed, by the same tests")
    given.add_argument("--only", nargs="+", default=[""], help="faults whose id begins so")
    given.add_argument("--work", type=Path, default=Path("/tmp/mutants"))
    return given


def run_action(args: argparse.Namespace) -> None:
    if args.action == "draw":
        rows = draw(args.root, args.num, args.seed)
        MUTANTS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif args.action == "find":
        find(args.root)
    elif args.action == "table":
        head = PAGE.read_text().partition("## Planted faults")[0] if PAGE.exists() else ""
        PAGE.write_text(head + table())
    else:
        from tests.benchmarks.mutant_runs import run

        commit = subprocess.check_output(["git", "-C", args.root, "rev-parse", "--short", "HEAD"])
        run(args, commit.decode().strip())


if __name__ == "__main__":
    run_action(parser().parse_args())
