"""One place parses JSON and TOML, and what it cannot parse is a sentence at every door."""

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rank_core.chunking.inputs import resolve_backbone
from rank_core.data.folder import declared_language
from rank_core.data.tables import records
from rank_core.errors import BadInput
from rank_core.export.folder import read_settings
from rank_core.export.served import served_model
from rank_core.parsing import DEEPEST, parsed_json, parsed_toml
from sweeps.commands.compare.gate import _taken
from sweeps.plan.toml_sweep import read_toml_sweep
from sweeps.positions.analysis import read_passages
from sweeps.report.gate import Rule
from sweeps.store.sweep_file import read_sweep_file
from sweeps.systems.sources import training_runs
from tests.architecture.test_rooms import MODULES

ODD = {
    "deep": 100_000 * "[",
    "deep and whole": 5000 * "[" + 5000 * "]",
    "deeper than a reader": 300 * '{"a":' + "1" + 300 * "}",
    "many digits": '{"a": ' + 5000 * "9" + "}",
    "half": '{"a": ',
    "no text": "\udcff",
}
TOML = {
    "deep": "a = " + 5000 * "[" + 5000 * "]",
    "deeper than a reader": "a = " + 300 * "[" + 300 * "]",
    "many digits": "seeds = [" + 5000 * "9" + "]",
    "many hexadecimal digits": "seeds = [0x" + 5000 * "f" + "]",
    "half": "a = ",
    "no text": "\udcff",
}


DOORS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "lines": ("x.jsonl", lambda path: [*records(path)]),
    "records": ("x.json", lambda path: [*records(path)]),
    "values": ("x.json", training_runs),
    "language": ("ranksweep.json", lambda path: declared_language(path.parent)),
    "gate": ("gate.json", lambda path: _taken(path, Rule("RR", 0.05, 1, 0.01, no_worse=False))),
    "export": ("ranker.json", lambda path: read_settings(path.parent)),
    "serving": ("serving.json", lambda path: served_model("x", path)),
    "sweep": ("sweep.json", lambda path: read_sweep_file(path.parent)),
    "passages": ("x.jsonl", read_passages),
    "backbone": ("config.json", lambda path: resolve_backbone(str(path.parent))),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("door", DOORS)
def test_json_that_cannot_be_parsed_is_a_sentence(door, odd, tmp_path):
    name, read = DOORS[door]
    path = tmp_path / name
    path.write_bytes(ODD[odd].encode(errors="surrogateescape"))
    with pytest.raises(BadInput) as error:
        read(path)
    assert path.name in str(error.value) and "sys." not in str(error.value)


@pytest.mark.parametrize("odd", TOML)
def test_toml_that_cannot_be_parsed_is_a_sentence(odd, tmp_path):
    path = tmp_path / "own.toml"
    path.write_bytes(TOML[odd].encode(errors="surrogateescape"))
    with pytest.raises(BadInput, match=r"own\.toml must be valid TOML: ") as error:
        read_toml_sweep(path)
    assert "sys." not in str(error.value)


def test_what_is_as_deep_as_it_may_be_is_read():
    whole = (DEEPEST - 1) * "[" + 200 * "1," + "1" + (DEEPEST - 1) * "]"
    assert parsed_json(whole) == json.loads(whole)
    assert parsed_toml(b"\xef\xbb\xbfa = 0x7fffffffffffffff", "x") == {"a": 2**63 - 1}


def test_nothing_else_parses():
    """A file that is read by `json` or `tomllib` itself has its own errors."""
    parsers = {("json", "loads"), ("json", "load"), ("tomllib", "loads"), ("tomllib", "load")}
    found = [
        f"{module}:{node.lineno}"
        for module, path in MODULES.items()
        # `secrets` redacts the errors of `parsing`; of a bad file it finds nothing.
        if module not in ("rank_core.parsing", "rank_core.secrets")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if (node.value.id, node.attr) in parsers
    ]
    assert not found
