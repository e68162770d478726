"""A profile in a sweep: above the defaults, below what the user and a smoke test set."""

from sweeps.plan.description import description_of
from tests.sweeps.plan.test_published_settings import PUBLISHED

WORDS = ("--profile", "boytsov2022", "chunking.max_query_tokens=32")


def test_a_profile_sets_what_nobody_has_set(plan_of):
    plan = plan_of(*WORDS)
    settings = plan.base.settings()
    points = ("chunking.window", "chunking.stride")
    for name, value in PUBLISHED["boytsov2022"].items():
        assert settings[name] == value, name
    assert all(cell.config.training == plan.base.training for cell in plan.cells)
    assert {tuple(cell.config.settings()[name] for name in points) for cell in plan.cells} > {
        (32, 24)
    }, "the sweep's own points are above it"
    assert description_of(plan, []).profile == "boytsov2022"


def test_what_the_user_sets_is_above_a_profile_and_so_is_a_smoke_test(plan_of):
    plan = plan_of(*WORDS, "training.weight_decay=0.5", "training.epoch_decay=1", "--smoke-test")
    training = plan.base.training
    assert (training.weight_decay, training.epoch_decay) == (0.5, 1.0)
    assert (training.max_steps, training.batch_size) == (2, 4), "of the smoke test"
    assert training.reset_optimizer


def test_each_model_gets_the_quirks_that_the_profile_knows_of_it(plan_of):
    plan = plan_of(*WORDS, "--model", "parade-attn", "chunking.window=48", "chunking.stride=24")
    quirks = {cell.config.model.name: cell.config.model.quirks for cell in plan.cells}
    assert quirks == {
        "firstp": ("padded-rows",),
        "parade-attn": ("unmasked-chunks", "elementwise-attention"),
    }


def test_a_limit_of_the_profile_or_the_user_is_no_matter_of_firstp(plan_of):
    words = ("--profile", "parade2020", "chunking.max_query_tokens=32")
    first, *others = plan_of(*words).cells
    assert (first.config.model.name, first.config.chunking.max_chunks) == ("firstp", 0)
    assert {cell.config.chunking.max_chunks for cell in others} == {16}
    first, *others = plan_of(*words, "chunking.max_chunks=4").cells
    assert (first.config.chunking.max_chunks, first.left_out) == (0, ("chunking.max_chunks",))
    assert {cell.config.chunking.max_chunks for cell in others} == {4}
