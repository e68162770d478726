"""The front of quality and cost, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from rank_core.seeding import generator
from rank_core.stats.matrix import ScoreMatrix
from sweeps.findings.dominance import front_of
from sweeps.systems.load import Sweep, load_sweep
from tests.sweeps.systems.test_load import NAMES, write_sweep


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return load_sweep(write_sweep(tmp_path_factory.mktemp("f") / "woods", num_queries=8))


def sweep_with(sweep: Sweep, *tokens: float | None) -> Sweep:
    """Its systems with these tokens per document, as objectives."""
    cells = [
        replace(cell, encoder_tokens_per_document=own)
        for cell, own in zip(sweep.cells, tokens, strict=True)
    ]
    goals = ("nDCG@10", "tokens_per_document")
    return replace(sweep, cells=tuple(cells), about=replace(sweep.about, objectives=goals))


def matrix_of(*means: float) -> ScoreMatrix:
    """Three runs of each system over 40 queries, which it ranks about alike."""
    rng = generator(1, "front")
    query_Q = rng.uniform(0.3, 0.6, 40)
    scores = {
        name: mean + query_Q - query_Q.mean() + 0.02 * rng.normal(size=(3, 40))
        for name, mean in zip(NAMES, means, strict=True)
    }
    scores = {n: s - s.mean() + m for (n, s), m in zip(scores.items(), means, strict=True)}
    seeds = dict.fromkeys(NAMES, (1, 2, 3))
    return ScoreMatrix("nDCG@10", NAMES, tuple(f"q{i}" for i in range(40)), seeds, scores)


def test_a_front_by_hand(sweep):
    """The second is far below the first, the third hardly; the fourth gains; the fifth has no known
    cost."""
    own = sweep_with(sweep, 10, 20, 20, 40, None)
    front = front_of(own, matrix_of(0.5, 0.3, 0.499, 0.6, 0.9), (), paired=False)
    assert [point.system for point in front] == [*NAMES[:4]]
    first, second, third, fourth = front
    assert [point.on_front for point in front] == [True, False, False, True]
    assert first.step is None and first.dominated is None
    assert second.dominated and second.dominated.other in (NAMES[0], NAMES[2])
    assert second.dominated.low < second.dominated.delta < second.dominated.high < 0
    assert third.dominated is None and third.step is None
    assert fourth.step and fourth.step.other == NAMES[0]
    assert fourth.step.delta == pytest.approx(0.1) and fourth.step.significant
    assert fourth.step.low > 0 and fourth.costs == {"tokens_per_document": 40}


def test_of_equal_costs_either_may_dominate_and_a_dear_one_dominates_nothing(sweep):
    for means in ((0.3, 0.5, 0.9, 0.9, 0.9), (0.5, 0.3, 0.9, 0.9, 0.9)):
        own = sweep_with(sweep, 10, 10, 20, 20, 20)
        front = front_of(own, matrix_of(*means), (), paired=False)
        beaten = {point.system for point in front if point.dominated}
        assert beaten == {NAMES[int(np.argmin(means[:2]))]}
