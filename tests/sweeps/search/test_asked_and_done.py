"""What was asked for is what is planned and what is said: for every search and space."""

import pytest

from rank_core.errors import BadInput
from sweeps.launch.plan_text import plan_text
from sweeps.plan.description import description_of
from sweeps.store.sweep_file import parse_sweep_file
from tests.sweeps.conftest import PlanOf

SPACES = {
    "different": ("chunking.window=16,24,32", "chunking.stride=8,16"),
    "larger than a document": ("chunking.window=24,50,60", "chunking.stride=24"),
    "refused": ("chunking.window=16,24,5000", "chunking.stride=8,20"),
    "conditional": ("chunking.window=16,24", "chunking.stride=8", "model.name=maxp"),
    "whole numbers of a range": ("chunking.window=20..22", "chunking.stride=8"),
}
SEARCHES = {
    "grid": (),
    "random of few": ("--search", "random", "--num-configs", "2"),
    "random of more than there are": ("--search", "random", "--num-configs", "40"),
    "race": ("--search", "race", "--num-configs", "40"),
    "asha": ("--search", "asha", "--num-configs", "40"),
    "tpe": ("--search", "tpe", "--num-configs", "40"),
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("space", SPACES)
def test_every_point_is_a_cell_or_named(space, search, plan_of: PlanOf, capsys):
    """Cells, excluded points and the words on the rest add up, on a terminal and in sweep.json."""
    words = [*SPACES[space], *SEARCHES[search]]
    words += ["--num-seeds", "3"] if search in ("race", "tpe") else []
    words += ["training.num_epochs=3"] if search == "asha" else []
    has_range = any(".." in word for word in words)
    try:
        plan = plan_of(*words)
    except BadInput as error:
        assert (has_range and search == "grid") or "needs" in str(error), error
        return
    text, noted = plan_text(plan, finished=0), capsys.readouterr().err
    words_of = " ".join(text.split())
    for point in plan.removed:
        assert " ".join(f"excluded {point.label}: {point.reason}".split()) in words_of
    stored = parse_sweep_file(description_of(plan, []).content(), "x")
    assert list(stored.excluded) == [f"{own.label}: {own.reason}" for own in plan.removed]
    assert [cell.label for cell in stored.cells] == [cell.label for cell in plan.cells]
    asked = plan.search.num_configs
    if search == "grid":
        others = len(plan.space.points) - len(plan.removed)
        assert len(plan.cells) - 1 >= others  # and FirstP of each window, which a line names
        return
    given = int(SEARCHES[search][-1])
    assert asked == given or f"got --num-configs {given}" in noted
    if search != "tpe" and len(plan.cells) - 1 < asked:
        assert f"{asked} were asked for: no further ones differ and can run" in words_of


@pytest.mark.parametrize(
    "words",
    [
        ("chunking.window=16,24,16",),
        ("chunking.window=16,16.0",),
        ("chunking.stride=8,8", "--search", "random", "--num-configs", "2"),
    ],
)
def test_a_value_of_a_grid_is_given_once(words, plan_of: PlanOf):
    with pytest.raises(BadInput, match=r"grid has|whole number|must be"):
        plan_of(*words)
