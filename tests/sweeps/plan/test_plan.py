"""From words to cells: what runs, what is excluded, and why."""

import json
from dataclasses import replace

import pytest
from safetensors.torch import save

from rank_core.checkpoints.weights import save_weights
from rank_core.data.load import load_collection
from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.models.build import build_model
from rank_core.ranking.scorer import evaluated_queries
from rank_core.settings.config import TrialConfig
from sweeps.launch.plan_text import plan_text
from sweeps.plan.make_plan import FEW, search_space
from sweeps.plan.options import parse
from sweeps.serving import EXPERIMENT as SERVING
from sweeps.window_stride import EXPERIMENT, PAPER_PAIRS


def pairs(plan):
    """(window, stride) of the cells behind the baseline."""
    return [(c.config.chunking.window, c.config.chunking.stride) for c in plan.cells[1:]]


def test_a_large_backbone_gets_the_pairs_of_the_paper(plan_of):
    plan = plan_of()
    large = replace(plan.inputs.backbone, max_input_tokens=512)
    grid = EXPERIMENT.grid(plan.base, large)
    points = [(p["chunking.window"], p["chunking.stride"]) for p in grid.points]
    assert tuple(points) == PAPER_PAIRS
    assert grid.baseline["chunking.window"] == 477


def test_a_plan_names_the_steps_and_warns_of_few(plan_of, reranker_folder):
    def said(*words):
        return plan_text(plan_of(*words), finished=0)

    few = "1 step per trial (8 queries, batch 16, 1 epoch): raise training.num_epochs"
    assert few in " ".join(said().split())
    capped = said("training.num_epochs=20", "training.max_steps=2")
    assert "2 steps per trial (training.max_steps=2): raise training.max_steps" in capped
    assert "10 steps per trial (8 queries, batch 16, 20 epochs)\n" in said("training.num_epochs=20")
    assert "2 steps per trial (8 queries, batch 4, 1 epoch)\n" in said("--smoke-test")
    as_it_is = "training.num_epochs=0", "--backbone", str(reranker_folder)
    assert "per trial (" not in said(*as_it_is)


def test_given_values_are_crossed_with_the_experiments_own_for_the_other_setting(plan_of):
    plan = plan_of("chunking.window=64")
    assert pairs(plan) == [(64, 24), (64, 32), (64, 48), (64, 64)]


def test_what_cannot_run_is_left_out_with_the_reason(plan_of):
    plan = plan_of("chunking.window=48,500", "chunking.stride=32,64")
    assert pairs(plan) == [(48, 32)]
    reasons = {item.label: item.reason for item in plan.removed}
    assert "stride <= chunking.window" in reasons["chunking.window=48, chunking.stride=64"]
    assert "window <= 96" in reasons["chunking.window=500, chunking.stride=32"]


def test_a_point_that_cuts_every_document_like_another_is_run_once(plan_of):
    # At most 40 tokens of a document: every window above is one and the same chunk.
    plan = plan_of("chunking.max_document_tokens=40", "chunking.window=32,64,96")
    assert [cell.chunks.max_chunks for cell in plan.cells] == [1, 2, 2]
    assert all("has the same chunks as" in item.reason for item in plan.removed[-4:])
    assert any("FirstP 96" in item.reason for item in plan.removed)


def test_a_smoke_test_says_what_it_leaves_out(plan_of):
    text = plan_text(
        plan_of("--smoke-test", *"--search random --num-configs 3".split()), finished=0
    )
    assert "smoke test  2 of 3 configurations, few steps, 10 candidates of 12 dev and 12" in text
    text = plan_text(plan_of("--smoke-test", "--search", "tpe", "--num-configs", "3"), finished=0)
    assert "smoke test  2 of 3 configurations" in text and "up to 2 configurations" in text
    assert "smoke test  2 of 4 configurations" in plan_text(plan_of("--smoke-test"), finished=0)
    assert "smoke test" not in plan_text(plan_of(), finished=0)


@pytest.mark.slow
def test_the_queries_of_a_smoke_test_can_be_ranked_well_or_badly():
    """A search decides on dev: some queries must have a relevant candidate, and one that is not."""
    collection = load_collection("python-docs")
    evaluation = TrialConfig().override(FEW).evaluation
    for name, least in (("dev", 6), ("test", 4)):
        split = collection.splits[name]
        judged = [
            {
                split.qrels[query_id].get(doc_id, 0) > 0
                for doc_id in list(split.candidates[query_id])[: evaluation.depth]
            }
            for query_id in evaluated_queries(collection, name, evaluation)
        ]
        assert sum(len(kinds) == 2 for kinds in judged) >= least


def test_a_cell_is_named_by_its_settings_and_not_by_seeds_or_storage(plan_of):
    names = [cell.cell for cell in plan_of("--num-seeds", "1").cells]
    assert names == [cell.cell for cell in plan_of("--storage", "elsewhere").cells]
    assert len(set(names)) == len(names)
    assert names != [cell.cell for cell in plan_of("model.dropout=0").cells]


def test_queries_that_leave_no_room_are_refused_by_their_own_limit(plan_of):
    with pytest.raises(BadInput, match=r"max_query_tokens <= 127 must hold .* got .*=200"):
        plan_of("chunking.max_query_tokens=200")
    plan = plan_of("chunking.max_query_tokens=108", "chunking.window=20", "chunking.stride=10")
    assert [cell.label for cell in plan.cells] == ["FirstP 20", "MaxP 20/10"]


@pytest.fixture
def a_start(plan_of, tmp_path):
    """A cell of two trials that have kept their weights, and the weights."""
    config = plan_of().cells[0].config
    model = build_model(config, resolve_backbone(config.model.backbone), init_seed=1)
    for seed in (1, 2):
        folder = tmp_path / f"maxp-abc-seed{seed}"
        save_weights(folder, model.state_dict())
        (folder / "result.json").write_text(json.dumps({"cell": "maxp-abc", "seed": seed}))
    return tmp_path / "maxp-abc", model.state_dict()


def test_a_chain_needs_a_trial_of_every_seed(plan_of, a_start):
    cell, _ = a_start
    words = ("--init-from", str(cell))
    assert plan_of(*words, "--seeds", "2,1").seeds == (2, 1)
    with pytest.raises(BadInput, match="has no trial with seed 3, only w"):
        plan_of(*words, "--num-seeds", "3")
    (cell.with_name("maxp-abc-seed2") / "weights.safetensors").unlink()
    with pytest.raises(BadInput, match="there is no file"):
        plan_of(*words, "--num-seeds", "2")


def changed(name, change):
    return lambda own: save({key: change(w) if key == name else w for key, w in own.items()})


WORDS = "encoder.embeddings.word_embeddings.weight"
STARTS = {
    "empty": (lambda own: b"", "no safetensors weights"),
    "cut": (lambda own: save(own)[:-10], "no safetensors weights"),
    "null": (lambda own: b"null", "no safetensors weights"),
    "a pointer": (lambda own: b"version https://git-lfs.github.com/spec/v1", "no safetensors weig"),
    "no weights": (lambda own: save({}), "of another encoder"),
    "of a head": (lambda own: save({"head.weight": own["head.weight"]}), "of another encoder"),
    "another size": (changed(WORDS, lambda w: w[:, :4].clone()), "of another encoder; .* of shape"),
    "NaN": (changed(WORDS, lambda w: w * float("nan")), "not finite"),
    "another base": (lambda own: save(own, {"base": "abc"}), "adapters .* of another backbone"),
}


@pytest.mark.parametrize("name", STARTS)
def test_weights_that_no_trial_can_start_from_are_refused(name, plan_of, a_start):
    (cell, own), (content, message) = a_start, STARTS[name]
    path = cell.with_name("maxp-abc-seed2") / "weights.safetensors"
    path.write_bytes(content(own))
    with pytest.raises(BadInput, match=message) as error:
        plan_of("--init-from", str(cell), "--num-seeds", "2")
    assert str(path) in str(error.value)


def test_a_model_that_adds_a_step_after_training_is_never_taken_for_another(plan_of):
    # Documents of one chunk make MaxP and FirstP the same function; Birch still interpolates.
    one_chunk = ("chunking.max_document_tokens=20", "chunking.window=96", "chunking.stride=96")
    with pytest.raises(BadInput, match="no configuration can run: has the same chunks as"):
        plan_of(*one_chunk)
    assert len(plan_of(*one_chunk, "--model", "birch").cells) == 2


def test_a_restricted_grid_keeps_what_all_points_set_alike_and_the_user_does_not() -> None:
    common = {"chunking.window": 16, "chunking.stride": 8}
    points = tuple({**common, "training.backbone_learning_rate": rate} for rate in (1e-5, 3e-5))
    experiment = replace(EXPERIMENT, swept=("training.backbone_learning_rate",))
    rates = "training.backbone_learning_rate=1e-4,1e-3"
    for words, kept in ([], common), (["chunking.window=24"], {"chunking.stride": 8}):
        options = parse([rates, *words], prog="x", description="")
        assert search_space(points, experiment, options).points == tuple(
            {**kept, "training.backbone_learning_rate": rate} for rate in (1e-4, 1e-3)
        )


def test_several_precisions_cross_the_points_and_one_is_for_all(plan_of, reranker_folder):
    words = ("--backbone", str(reranker_folder))
    once = plan_of(*words, "training.precision=fp32", experiment=SERVING)
    both = plan_of(*words, "training.precision=fp32,bf16", experiment=SERVING)
    assert len(pairs(both)) == 2 * len(pairs(once)) + 1  # those of the baseline too
    assert {cell.config.training.precision for cell in once.cells} == {"fp32"}
    labels = [cell.label for cell in both.cells]
    assert labels[1].endswith(", fp32") and labels[-1].endswith(", bf16")
    assert not any("fp32" in cell.label for cell in once.cells)


def test_int8_is_planned_only_where_openvino_is_installed(plan_of, reranker_folder, monkeypatch):
    monkeypatch.setattr("rank_core.encoders.openvino_runtime.find_spec", lambda name: None)
    words = ("--backbone", str(reranker_folder), "training.precision=int8")
    with pytest.raises(BadInput, match=r"pip install '\.\[openvino\]'"):
        plan_of(*words, experiment=SERVING)
