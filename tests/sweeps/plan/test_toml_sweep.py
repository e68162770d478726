import re
from dataclasses import replace
from pathlib import Path

import pytest

from rank_core.encoders.hub import DEFAULT
from rank_core.encoders.shipped import SETTINGS
from rank_core.errors import BadInput
from sweeps.plan.make_plan import base_config, make_plan
from sweeps.plan.options import parse
from sweeps.plan.toml_sweep import read_toml_sweep
from sweeps.window_stride import EXPERIMENT

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
FEW = """name = "few"
question = "Which?"
baseline = { model.name = "firstp", chunking.window = 64 }
"""
GRID = "[grid]\nchunking.max_chunks = [1, 2]\n"


@pytest.fixture
def write(tmp_path):
    def put(text):
        path = tmp_path / "few.toml"
        path.write_text(text)
        return path

    return put


@pytest.fixture
def planned(inputs_words):
    def plan(path, *words):
        experiment, preset = read_toml_sweep(path)
        options = parse([*inputs_words, *words], prog="run", description="", preset=preset)
        return make_plan(experiment, options), options

    return plan


def test_window_stride_as_a_file_has_the_cells_of_the_script(planned, plan_of):
    as_file, ours = planned(EXAMPLES / "window_stride.toml")[0], plan_of()
    assert len(ours.cells) == 5
    assert [cell.cell for cell in as_file.cells] == [cell.cell for cell in ours.cells]
    assert [cell.label for cell in as_file.cells] == [cell.label for cell in ours.cells]
    assert as_file.seeds == ours.seeds and as_file.experiment.swept == ours.experiment.swept
    assert as_file.experiment.question == ours.experiment.question
    assert as_file.experiment.source == str(EXAMPLES / "window_stride.toml")


BASE = """
[base]
model.name = "avgp"
chunking.window = 40
chunking.stride = 20
chunking.max_document_tokens = 80
training.num_epochs = 2
evaluation.measures = ["RR@10", "nDCG@10"]
"""


def test_a_byte_order_mark_changes_nothing(tmp_path):
    path = tmp_path / "sweep.toml"
    text = 'name = "a"\nquestion = "b?"\n[grid]\nmodel.k = [1, 2]\n[baseline]\nmodel.k = 1\n'
    path.write_text(text)
    plain, _ = read_toml_sweep(path)
    path.write_text(text, encoding="utf-8-sig")
    marked, _ = read_toml_sweep(path)
    assert (marked.name, marked.swept) == (plain.name, plain.swept) == ("a", ("model.k",))


def test_base_settings_seeds_and_search_come_from_the_file(write, planned):
    baseline = FEW.replace("chunking.window = 64", "chunking.window = 40, chunking.stride = 40")
    search = 'search = { name = "random", num_configs = 3, seed = 5 }\nseeds = [3, 9]\n'
    ranges = '[ranges]\ntraining.head_learning_rate = "1e-5..1e-3:log"\n'
    plan, options = planned(write(baseline + search + GRID + ranges + BASE))
    assert plan.seeds == (3, 9) and plan.search.seed == 5 and len(plan.cells) == 4
    assert options.ranges["training.head_learning_rate"].log
    assert plan.experiment.swept == ("chunking.max_chunks", "training.head_learning_rate")
    assert plan.base.model.name == "avgp" and plan.base.evaluation.measures == ("RR@10", "nDCG@10")
    # By default a label tells of the model, its windows and what is swept beside them.
    assert re.fullmatch(r"AvgP 40/20, max_chunks [12], head rate \S+", plan.cells[1].label)
    assert {cell.config.chunking.max_chunks for cell in plan.cells[1:]} <= {1, 2}
    # A command line may say otherwise, of the search as a whole.
    words = ["--num-seeds", "1", "--model", "sump", "training.num_epochs=3"]
    plan, _ = planned(
        write(baseline + search + GRID + BASE), *words, "--search", "grid", "chunking.max_chunks=3"
    )
    assert plan.seeds == (1,) and plan.search.name == "grid"
    assert plan.base.model.name == "sump" and plan.base.training.num_epochs == 3
    assert [cell.config.chunking.max_chunks for cell in plan.cells[1:]] == [3]


def test_a_smoke_test_and_a_profile_stand_where_they_do_for_a_script(write, planned):
    baseline = FEW.replace("chunking.window = 64", "chunking.window = 40, chunking.stride = 40")
    path = write(f'{baseline}profile = "boytsov2022"\n{GRID}{BASE}')
    plan, _ = planned(path)
    training = plan.base.training
    assert training.num_epochs == 2 and training.weight_decay == 1e-7 and training.warmup == 0.2
    plan, _ = planned(path, "--smoke-test")
    assert plan.base.training.max_steps == 2 and "smoke" not in plan.experiment.name
    assert len(plan.seeds) == 2


def test_folders_begin_at_the_file_and_the_baseline_is_no_point_twice(write, tmp_path):
    (tmp_path / "data").mkdir()
    base = '[base]\ncollection = "data|deep(rate=0.5)"\nmodel.backbone = "tiny-docs"\n'
    points = 'points = [{ model.name = "maxp" }, { model.name = "firstp" }]\n'
    text = FEW.replace(", chunking.window = 64", "") + points + base
    experiment, _ = read_toml_sweep(write(text))
    assert experiment.settings["collection"] == f"{tmp_path / 'data'}|deep(rate=0.5)"
    assert experiment.settings["model.backbone"] == "tiny-docs"
    assert experiment.grid(None, None).points == ({"model.name": "maxp"},)


WRONG = {
    "name = \n": "TOML",
    'name = "x"\n': "question",
    FEW: "grid",
    f"{FEW}{GRID}[bsae]\n": "bsae",
    f"{FEW}{GRID}[base]\ntraining.epochs = 2\n": "training.epochs",
    f"{FEW}points = [{{ chunking.max_chunk = 1 }}]\n": "chunking.max_chunk",
    f"{FEW}[grid]\nchunking.window = 40\n": "chunking.window",
    f'{FEW}[grid]\nchunking.window = [40, "x"]\n': "chunking.window",
    f"{FEW}points = [3]\n": "points",
    f"{FEW}points = [{{ chunking.window = 3 }}, {{ chunking.stride = 3 }}]\n": (
        "point 1 does not set chunking.stride"
    ),
    f"{FEW}points = []\n{GRID}": "points",
    f"{FEW}{GRID}[base]\nchunking.max_chunks = 2\n": "chunking.max_chunks",
    f"{FEW}{GRID}[base]\nseed = 2\n": "seed",
    f'{FEW}[ranges]\ntraining.head_learning_rate = "small"\n': "training.head_learning_rate",
    f'{FEW}[ranges]\nmodel.dropout = "3..1"\n': "model.dropout",
    f'{FEW}seeds = "3"\n{GRID}': "seeds",
    f"{FEW}seeds = 0\n{GRID}": "seeds",
    f"{FEW}{GRID}[search]\nnumber = 3\n": "number",
    f'{FEW}{GRID}[search]\nnum_configs = "3"\n': "num_configs",
    f'{FEW}search = "rac"\n{GRID}': "rac",
    f'{FEW}profile = "clear"\n{GRID}': "clear",
    f"{FEW}points = [{'{ chunking.max_chunks = 1 }, ' * 10_001}]\n": "points",
    FEW.replace('"few"', '"a/b"') + GRID: "name",
    FEW.replace('"few"', "3") + GRID: "name",
}
"""{file: what its error names}"""


@pytest.mark.parametrize(("text", "named"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_no_sweep_is_refused_with_its_file_and_key(write, text, named):
    path = write(text)
    with pytest.raises(BadInput) as error:
        read_toml_sweep(path)
    assert str(error.value).startswith(str(path)) and named in str(error.value)


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "own.toml").write_bytes(content)
    with pytest.raises(BadInput, match=r"own\.toml"):
        read_toml_sweep(tmp_path / "own.toml")


def test_sweeps_and_files_share_the_defaults_of_a_backbone(tmp_path, own_cache, collection_folder):
    (tmp_path / "own.toml").write_text(
        'name = "own"\nquestion = "?"\nbaseline = { model.name = "firstp" }\n'
        "[grid]\nchunking.window = [48]\nchunking.stride = [24]\n"
    )
    for experiment in (EXPERIMENT, read_toml_sweep(tmp_path / "own.toml")[0]):
        words = ["--smoke-test", "--collection", str(collection_folder)]
        options = parse(words, prog="", description="")
        assert base_config(experiment, options).model.backbone == DEFAULT
        plan = make_plan(experiment, replace(options, backbone="tiny-docs"))
        assert plan.inputs.backbone.name == "tiny-docs"
        assert plan.base.training.precision == SETTINGS["training.precision"]
    made = [path for path in own_cache.rglob("*") if path.suffix == ".safetensors"]
    assert made == [], "a plan trains nothing"


def test_windows_of_a_late_interaction_model_as_it_is(planned, write, tmp_path):
    """A bare encoder has no projection: nothing is trained, so that its head would be drawn."""
    text = (EXAMPLES / "late_windows.toml").read_text().replace("128", "48").replace("64", "24")
    with pytest.raises(BadInput, match=r"late-interaction over backbone .* would rank at random"):
        planned(write(text))
    found, _ = planned(write(text.replace("num_epochs = 0", "num_epochs = 1")))
    cells = [
        (cell.config.model.maxsim, cell.config.chunking.window, cell.config.chunking.stride)
        for cell in found.cells
    ]
    assert cells == [
        ("", 48, 48),
        ("", 24, 24),
        ("", 48, 24),
        ("window", 24, 24),
        ("window", 48, 24),
    ]
