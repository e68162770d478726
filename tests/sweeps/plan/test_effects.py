"""A plan says, or refuses, what has no effect in it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rank_core.errors import BadInput
from sweeps.launch.plan_text import plan_text
from sweeps.plan.make_plan import make_plan
from sweeps.plan.options import parse
from sweeps.plan.plan import Plan
from sweeps.plan.toml_sweep import read_toml_sweep

HEAD = 'name = "own"\nquestion = "Which?"\n'
WINDOWS = "chunking.window = 40\nchunking.stride = 20\nchunking.max_document_tokens = 80\n"


@pytest.fixture
def plan_file(tmp_path: Path, inputs_words: list[str]) -> Callable[..., Plan]:
    """The plan of a sweep's file: its baseline, grid and settings of all cells."""

    def plan(grid: str, *words: str, baseline: str = "", base: str = "", more: str = "") -> Plan:
        file = tmp_path / "own.toml"
        parts = [HEAD, more, "[baseline]", "training.weight_decay = 0.25", baseline]
        file.write_text("\n".join([*parts, "[base]", WINDOWS, base, "[grid]", grid]))
        experiment, preset = read_toml_sweep(file)
        options = parse([*inputs_words, *words], prog="own", description="", preset=preset)
        return make_plan(experiment, options)

    return plan


UNREAD = [
    ("training.margin = [0.5, 1.5]", 'training.loss = "ranknet"', "training.margin"),
    ("training.margin = [0.5, 1.5]", 'training.loss = "pairwise-softmax"', "training.margin"),
    ("training.aggregator_learning_rate = [1e-4, 1e-3]", "", "training.aggregator_learning_rate"),
    ("training.reset_optimizer = [true, false]", "", "training.reset_optimizer"),
    ("training.epoch_decay = [0.5, 0.9]", "", "training.epoch_decay"),
    ("training.warmup_backbone = [true, false]", "training.warmup = 0.0", "warmup_backbone"),
    ("training.batch_size = [2, 4]", "training.num_epochs = 0", "training.batch_size"),
    (
        "training.chunk_dropout = [0.1, 0.5]",
        'model.name = "firstp"',
        "chunk_",
    ),
    ("training.negatives = [1, 2]", 'model.name = "bm25"', "training.negatives"),
]


@pytest.mark.parametrize(("grid", "base", "name"), UNREAD)
def test_a_swept_setting_that_no_cell_reads_is_refused(grid, base, name, plan_file):
    words = ["chunking.stride=40"] if "firstp" in base else []
    with pytest.raises(BadInput, match=f"nothing in these cells reads .*{name}"):
        plan_file(grid, *words, base=base)


def test_a_setting_that_only_some_models_read_makes_no_cells_of_the_others(plan_file):
    grid = 'model.name = ["maxp", "parade-attn"]\ntraining.aggregator_learning_rate = [2e-4, 1e-3]'
    plan = plan_file(grid)
    models = [cell.config.model.name for cell in plan.cells[1:]]
    assert sorted(models) == ["maxp", "parade-attn", "parade-attn"]
    [removed] = plan.removed
    assert "is the same cell as" in removed.reason
    assert "nothing reads training.aggregator_learning_rate" in removed.reason


ALIKE = [
    ('model.name = ["kmax-avgp"]\nmodel.k = [0, 3]', "", "model.k=3 means 0"),
    ('model.pool = ["", "cls"]', "", "model.pool=cls means "),
    ('model.head = ["auto", "new"]', "", "model.head=new means auto"),
    ("training.depth = [0, 5]", "", "training.depth=5 means 0"),
    ('training.schedule = ["constant", "inverse-epoch"]', "", "schedule=inverse-epoch means const"),
    ("training.lora_alpha = [0.0, 4.0]", "training.lora_rank = 2", "training.lora_alpha=4.0 means"),
]


@pytest.mark.parametrize(("grid", "base", "why"), ALIKE)
def test_values_that_mean_the_same_make_one_cell(grid, base, why, plan_file):
    if "lora" in grid:
        pytest.importorskip("peft")
    plan = plan_file(grid, "evaluation.depth=5", base=base)
    assert len(plan.cells) == 2 and why in plan.removed[0].reason


@pytest.mark.parametrize(
    "grid",
    [
        'evaluation.measures = [["nDCG@10"], ["RR@10"]]',
        "evaluation.max_test_queries = [4, 8]",
        "evaluation.max_dev_queries = [4, 8]",
        "evaluation.folds = [0, 3]",
        "training.paired_seeds = [true, false]",
        'training.keep_weights = ["all", "none"]',
        "evaluation.batch_tokens = [100, 200]",
    ],
)
def test_what_all_cells_share_cannot_be_swept(grid, plan_file):
    with pytest.raises(BadInput, match=f"{grid.split()[0]} cannot be swept"):
        plan_file(grid)


def test_a_model_or_loss_that_cannot_be_imported_is_refused_and_not_left_out(
    plan_file, tmp_path, monkeypatch
):
    (tmp_path / "broken_code.py").write_text("from ranksweep import NothingOfThisName\n")
    monkeypatch.syspath_prepend(tmp_path)
    for grid in (
        'model.name = ["maxp", "broken_code:Mine"]',
        'training.loss = ["ranknet", "broken_code:mine"]',
    ):
        with pytest.raises(BadInput, match=r"broken_code cannot be imported: .*NothingOfThisName"):
            plan_file(grid)
        # Nor is the setting blamed that only the missing model reads.
        with pytest.raises(BadInput, match="broken_code cannot be imported"):
            plan_file(grid, base="training.aggregator_learning_rate = 3e-3")
    with pytest.raises(BadInput, match="mxap"):
        plan_file('model.name = ["maxp", "mxap"]')


def test_a_measure_in_two_lists_is_refused(plan_file):
    with pytest.raises(BadInput, match=r"evaluation\.measures must be a list of strings"):
        plan_file("model.dropout = [0.1, 0.2]", base='evaluation.measures = [["nDCG@10"]]')


def test_a_setting_given_twice_in_a_file_is_refused(plan_file):
    grid = '"model.dropout" = [0.1, 0.2]\nmodel.dropout = [0.3, 0.4]'
    with pytest.raises(BadInput, match=r"model\.dropout is set twice"):
        plan_file(grid)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_number_of_a_search_in_a_file_is_checked_as_its_flag(number, plan_file):
    search = f'search = {{ name = "race", num_configs = 2, delta = {number} }}'
    with pytest.raises(BadInput, match="--race-delta must be a finite number"):
        plan_file("model.dropout = [0.1, 0.2, 0.3]", more=search)


def test_a_typed_setting_that_no_cell_reads_is_refused_and_a_default_is_not(plan_of):
    loss = "training.loss=ranknet"
    assert plan_of(loss, "training.margin=1").cells
    with pytest.raises(BadInput, match=r"nothing in these cells reads training\.margin"):
        plan_of(loss, "training.margin=2")


def test_a_setting_that_the_baseline_cannot_read_holds_for_the_others(plan_of):
    plan = plan_of("chunking.max_chunks=2")
    assert [cell.config.chunking.max_chunks for cell in plan.cells] == [0, *[2] * 4]
    usual = plan_of()
    assert plan.cells[0].cell == usual.cells[0].cell, "the baseline keeps its name"
    text = plan_text(plan, finished=0)
    assert "left out    chunking.max_chunks=2: not used by FirstP 96" in text
    assert "left out" not in plan_text(usual, finished=0)


def test_values_beyond_the_data_are_said(plan_of, plan_file):
    assert "no effect   evaluation.depth=50 does not limit anything" in plan_text(
        plan_of("evaluation.depth=50"), finished=0
    )
    text = plan_text(plan_file("training.max_steps = [50, 60]"), finished=0)
    assert "training.max_steps=50, 60 does not limit" in " ".join(text.split())
    assert "these values mean the same" in " ".join(text.split())


@pytest.mark.parametrize("size", ["1e9", "1e14"])
def test_a_limit_of_any_size_is_planned_at_once(size, plan_of):
    plan = plan_of(f"chunking.max_document_tokens={int(float(size))}")
    assert max(cell.chunks.max_chunks for cell in plan.cells) < 30


def test_layers_that_the_encoder_lacks_are_refused_in_the_plan(plan_of):
    pytest.importorskip("peft")
    rank = "training.lora_rank=2"
    assert plan_of(rank, "training.lora_targets=query,attention.self.key").cells
    for wrong in ("query,zz", "embeddings", "zz.query"):
        with pytest.raises(BadInput, match=f"which it lacks {wrong.rpartition(',')[2]}"):
            plan_of(rank, f"training.lora_targets={wrong}")
