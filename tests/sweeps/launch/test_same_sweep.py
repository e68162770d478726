"""A folder is one sweep: what a second command may change in it, and what it may not."""

import json
from dataclasses import replace

import pytest

from rank_core.settings.config import NO_PART_OF_A_CELL
from sweeps.launch.command import main
from sweeps.launch.same_sweep import differences
from sweeps.plan.description import description_of, write_description
from sweeps.plan.experiment import Grid
from sweeps.plan.options import parse
from sweeps.store.records import Records, own_digest
from sweeps.store.storage import Storage
from sweeps.store.sweep_file import FILE, parse_sweep_file, read_sweep_file
from sweeps.window_stride import EXPERIMENT

OTHER = {  # settings that are not swept: another value of each
    "training.backbone_learning_rate": "2e-5",
    "training.warmup": "0.5",
    "training.negatives": "3",
    "training.loss": "ranknet",
    "training.paired_seeds": "true",
    "model.dropout": "0.25",
    "model.pool": "mean",
    "chunking.max_query_tokens": "20",
    "evaluation.depth": "7",
    "evaluation.max_test_queries": "3",
    "evaluation.measures": "RR@10",
}
SAME = [
    *("--num-seeds 5", "--seeds 4,5", "--alpha 0.1", "--interpolate none", "--num-workers 2"),
    *("--margin 0.02", "--correct-over table"),
    *("--max-gpu-hours 2", "--search random --num-configs 2", "--cpus-per-worker 3"),
    *("chunking.window=48", "chunking.window=32,48 chunking.stride=16"),
    *(f"{name}={value}" for name, value in (
        ("training.micro_batch_tokens", 512), ("training.keep_weights", "all"),
        ("training.keep_run", "true"), ("evaluation.batch_tokens", 900),
    )),
]  # fmt: skip


@pytest.fixture
def stored(plan_of, tmp_path):
    """The storage and the sweep that a first command has described in it."""
    storage = Storage(str(tmp_path / "s"))
    storage.open()
    records = Records(storage, "window_stride/woods")
    plan = plan_of()
    write_description(records, plan, description_of(plan, []))
    return records


def earlier(records):
    """The description as 0.3 wrote it."""
    described = json.loads(records.read_file(FILE))
    for name in ("kind", "start", "flags", "settings", "smoke_test", "fixed", "checksum"):
        described.pop(name, None)
    described["checksum"] = own_digest(described)
    return parse_sweep_file(json.dumps(described).encode(), records.uri)


@pytest.mark.parametrize("setting", OTHER)
def test_another_value_of_what_is_not_swept_is_another_sweep(setting, stored, plan_of):
    plan = plan_of(f"{setting}={OTHER[setting]}")
    for file in (read_sweep_file(stored), earlier(stored)):
        found = {one.what: one for one in differences(file, plan)}
        assert setting in found
        assert found[setting].before != found[setting].now != ""


@pytest.mark.parametrize("words", SAME)
def test_seeds_swept_values_and_resources_are_no_other_sweep(words, stored, plan_of):
    plan = plan_of(*words.split())
    for file in (read_sweep_file(stored), earlier(stored)):
        assert not list(differences(file, plan))


def test_the_settings_without_a_meaning_are_those_of_no_cell():
    assert {word.partition("=")[0] for word in SAME} >= {
        name for name in NO_PART_OF_A_CELL if name.startswith(("training.keep", "evaluation.batch"))
    }


def test_a_refusal_names_both_values_and_both_ways_on(stored, inputs_words, capsys):
    words = [*inputs_words, "--storage", stored.storage.uri, "--dry-run"]
    rate = "training.backbone_learning_rate"
    assert main(EXPERIMENT, words, doc=None) == 0
    before = stored.read_file(FILE)
    assert main(EXPERIMENT, [*words[:-1], f"{rate}=2e-5"], doc=None) == 2
    assert main(EXPERIMENT, [*words, f"{rate}=2e-5"], doc=None) == 2
    said = capsys.readouterr().err
    assert f"{rate} is 0.0003 there and 2e-05 here" in said or f"{rate} is " in said
    assert "--name NAME" in said and "--replace" in said and stored.uri in said
    for way in (["--name", "slow"], ["--replace"]):
        assert main(EXPERIMENT, [*words, f"{rate}=2e-5", *way], doc=None) == 0
    assert stored.read_file(FILE) == before


def test_own_code_and_files_are_compared_by_their_contents(stored, plan_of):
    file = read_sweep_file(stored)
    other = replace(file, fixed={**file.fixed, "model.backbone": "0" * 16})
    [found] = differences(other, plan_of())
    assert found.what.startswith("model.backbone") and "0" * 16 in found.before
    renamed = [replace(cell, cell=f"{cell.cell[:-12]}{'0' * 12}") for cell in file.cells]
    [found] = differences(replace(file, cells=tuple(renamed), fixed={}), plan_of())
    assert "contents of files" in found.what


def test_points_that_set_more_than_is_swept_are_compared_too(stored, plan_of, inputs_words):
    own = replace(
        EXPERIMENT,
        grid=lambda base, backbone: Grid(
            points=({"chunking.window": 48, "chunking.stride": 32, "training.negatives": 2},),
            baseline=EXPERIMENT.grid(base, backbone).baseline | {"training.negatives": 2},
        ),
    )
    from sweeps.plan.make_plan import make_plan

    plan = make_plan(own, parse(inputs_words, prog="", description=""))
    found = {one.what: one for one in differences(read_sweep_file(stored), plan)}
    assert found["training.negatives"].now == "2"


@pytest.mark.parametrize("name", ["trials", "checkpoints", "artifacts", "a/b", "", ".x"])
def test_a_name_that_is_no_folder_of_a_sweep_is_refused(name, inputs_words, tmp_path, capsys):
    words = [*inputs_words, "--storage", str(tmp_path), "--dry-run", f"--name={name}"]
    assert main(EXPERIMENT, words, doc=None) == 2
    assert "name" in capsys.readouterr().err and not list(tmp_path.iterdir())
