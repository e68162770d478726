"""The JSON schemas of files that people write: what an editor underlines is what the reader
refuses."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rank_core.data.folder import declared_language
from rank_core.errors import BadInput
from rank_core.export.served import served_model
from rank_core.export.serving import serving_setting
from rank_core.models import MODELS, model_class
from rank_core.settings.config import TrialConfig, declared_settings
from sweeps.__main__ import main
from sweeps.commands.schema import SCHEMAS, schema_text
from sweeps.plan.reference import FOLDER
from sweeps.plan.toml_sweep import KEYS, read_toml_sweep

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
FILES = [*EXAMPLES.glob("*.toml"), *FOLDER.glob("*.toml")]
SWEEP = """
name = "windows"
question = "Which window?"
seeds = 3
[grid]
chunking.window = [75, 150]
[baseline]
model.name = "firstp"
"""


def validator(name: str) -> Draft202012Validator:
    schema = json.loads(schema_text(name))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


SWEEPS = validator("sweep")


def found(text: str) -> list[str]:
    """The places and problems that the schema finds in a TOML file."""
    errors = SWEEPS.iter_errors(tomllib.loads(text))
    return [f"{error.json_path}: {error.message}" for error in errors]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_command_prints_a_schema(capsys, name):
    assert main(["settings", "--json-schema", name]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].endswith("2020-12/schema")
    validator(name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_sweep_that_ships_follows_the_schema(path):
    assert found(path.read_text(encoding="utf-8")) == []


def test_an_editor_finds_the_schema_of_the_examples():
    for path in EXAMPLES.glob("*.toml"):
        named = path.read_text(encoding="utf-8").splitlines()[0]
        assert named == "#:schema ../schemas/sweep.json"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schemas_of_the_docs_are_those_of_the_declarations(name):
    path = EXAMPLES.parent / "schemas" / f"{name}.json"
    assert path.read_text(encoding="utf-8") == schema_text(name) + "\n", "run `make docs`"


WRONG = {
    "a wrong key": ("seeds = 3", "sedes = 3", "$: Additional properties are not allowed ('sedes'"),
    "a wrong setting": (
        "chunking.window = [75",
        "chunking.windw = [75",
        "$.grid.chunking: Additional properties are not allowed ('windw'",
    ),
    "a wrong type": ("[75, 150]", '["75", 150]', "$.grid.chunking.window[0]: '75' is not of type"),
    "a single value": ("[75, 150]", "75", "$.grid.chunking.window: 75 is not of type 'array'"),
    "an unknown model": ('"firstp"', '"frstp"', "$.baseline.model.name: 'frstp' is not valid"),
    "a value out of its range": (
        'model.name = "firstp"',
        "model.dropout = 1.0",
        "$.baseline.model.dropout: 1.0 is greater than or equal to the maximum of 1",
    ),
    "an unknown choice": (
        'model.name = "firstp"',
        'training.schedule = "cubic"',
        "$.baseline.training.schedule: 'cubic' is not one of",
    ),
    "no seeds": ("seeds = 3", "seeds = 0", "$.seeds: 0 is not valid"),
    "a seed as a setting": ("[grid]", "[base]\nseed = 1\n[grid]", "$.base: Additional"),
    "a wrong key of the search": ("[grid]", "[search]\nnme = 'tpe'\n[grid]", "$.search: "),
    "no swept setting": ("[grid]\nchunking.window = [75, 150]", "", "$: {'name'"),
    "a range of a text": ("[grid]", "[ranges]\nmodel.name = '1..2'\n[grid]", "$.ranges"),
}


@pytest.mark.parametrize("old, new, problem", WRONG.values(), ids=WRONG)
def test_what_the_schema_finds_the_reader_refuses(tmp_path, old, new, problem):
    text = SWEEP.replace(old, new)
    assert text != SWEEP and found(SWEEP) == []
    assert [one for one in found(text) if one.startswith(problem)] == found(text)[:1] != []
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(BadInput):
        experiment, _ = read_toml_sweep(path)
        # Ranges and models belong to a whole trial, which the plan checks.
        config = TrialConfig().override(experiment.grid(None, None).baseline)
        model_class(config.model.name)


def test_settings_may_be_tables_or_dotted_names_and_own_code():
    for own in ('"model.name" = "my_model:Ranker"', '[baseline.model]\nname = "my_model:Ranker"'):
        assert found(SWEEP.replace('model.name = "firstp"', own)) == []
    ranges = '[ranges]\ntraining.batch_size = "8..64:log"\n[grid]'
    assert found(SWEEP.replace("[grid]", ranges)) == []


def test_a_folder_that_declares_its_language_may_name_a_schema(tmp_path):
    path = tmp_path / "ranksweep.json"
    path.write_text('{"$schema": "own.json", "language": "de"}')
    assert declared_language(tmp_path) == "de"
    path.write_text('{"schema": "own.json"}')
    with pytest.raises(BadInput, match="unknown field 'schema'"):
        declared_language(tmp_path)


def test_every_key_and_every_setting_stands_in_the_schema_of_sweeps():
    schema = SWEEPS.schema
    assert schema["properties"].keys() == KEYS.keys()
    assert {one.name for one in declared_settings()} <= schema["$defs"].keys()
    assert all(one.text for one in declared_settings())


def serving_of(name: str) -> dict[str, Any]:
    config = TrialConfig().override({"model.name": name, "model.backbone": "tiny-docs"})
    model = dict.fromkeys(("name", "content_hash", "tokenizer_hash"), "x")
    return serving_setting(config, model)


def test_serving_json_follows_its_schema_as_its_writer_makes_it():
    names = [name for name in MODELS if model_class(name).chunk_pooling]
    assert len(names) > 3
    for name in names:
        validator("serving").validate(serving_of(name))


@pytest.mark.parametrize(
    "key, value", [("windw", 3), ("window", "150"), ("format", 2), ("depth", 0), ("max_chunks", -1)]
)
def test_what_the_schema_of_serving_finds_its_reader_refuses(tmp_path, key, value):
    path = tmp_path / "serving.json"
    content = serving_of("maxp") | {key: value}
    assert len([*validator("serving").iter_errors(content)]) == 1
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput):
        served_model("tiny-docs", path)
