"""What follows training. Nearly every model just ranks test; those of `LAST_STEPS` do more."""

from collections.abc import Callable

from rank_core.data import Run
from rank_core.models import ListRanker, Ranker
from rank_core.models.birch import Birch
from rank_core.ranking.interpolation import interpolated
from rank_core.ranking.scorer import FinalRuns, Scorer

LastStep = Callable[[Scorer], FinalRuns]
"""From a scorer that has the best checkpoint to the runs that count. It may choose by dev, and sees
the judgments of test through nobody."""

LAST_STEPS: dict[type[Ranker], LastStep] = {Birch: interpolated}


def last_step(scorer: Scorer, dev_run: Run) -> FinalRuns:
    """The final runs of the scorer's model; `dev_run` is what it gave on dev when it was chosen."""
    step = LAST_STEPS.get(type(scorer.model))
    return step(scorer) if step else FinalRuns({"dev": dev_run, "test": scorer.run("test")})


def ranks_by_score_alone(kind: type[Ranker] | type[ListRanker]) -> bool:
    """True where a model's order is that of its scores, without anything that dev chooses."""
    return kind not in LAST_STEPS
