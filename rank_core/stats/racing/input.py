"""What a race refuses, and which of its configurations repeat another one."""

from collections.abc import Mapping, Sequence

import numpy as np

from rank_core.errors import BadInput, unknown
from rank_core.stats.matrix import QUERIES_THAT_PROVE
from rank_core.stats.scopes import Floats


def check_trials(
    finished: Mapping[tuple[str, int], Floats], configurations: Sequence[str], seeds: Sequence[int]
) -> None:
    """Refuse trials that are not of this race, and trials on different numbers of queries."""
    if len(configurations) < 2 or len(set(configurations)) < len(configurations):
        raise BadInput(
            "a race needs 2 configurations or more, each named once, "
            f"got {', '.join(configurations) or 'none'}"
        )
    if len(seeds) < 1 or len(set(seeds)) < len(seeds):
        raise BadInput(f"a race needs seeds, each named once, got {list(seeds)}")
    sizes = {}
    for (name, seed), value_Q in finished.items():
        if name not in configurations:
            raise unknown("configuration", name, configurations)
        if seed not in seeds:
            raise unknown("seed", str(seed), map(str, seeds))
        sizes[np.shape(value_Q)] = (name, seed)
    if len(sizes) > 1:
        found = "; ".join(f"{name}, seed {seed}: {size}" for size, (name, seed) in sizes.items())
        raise BadInput(f"all trials need dev values of the same queries, got the shapes {found}")


def stacked(scores: Mapping[str, Floats]) -> Floats:
    """The scores of the live configurations as (L, s, Q), checked."""
    arrays = {name: np.asarray(score_SQ, dtype=np.float64) for name, score_SQ in scores.items()}
    shapes = {score_SQ.shape for score_SQ in arrays.values()}
    if len(shapes) != 1 or len(shape := next(iter(shapes))) != 2 or shape[1] < 1:
        raise BadInput(
            "live configurations need dev values seeds x queries of one shape, "
            f"got {sorted(shapes) or 'none'}"
        )
    for name, score_SQ in arrays.items():
        if not np.isfinite(score_SQ).all():
            raise BadInput(f"dev values must be finite, got NaN or infinity for {name}")
        if score_SQ.shape[1] >= QUERIES_THAT_PROVE and _copied_seed(score_SQ):
            raise BadInput(
                "seeds must differ: the seed is not wired, or training changes nothing; two seeds "
                f"of {name} have identical values for all queries"
            )
    return np.stack(list(arrays.values()))


def _copied_seed(score_SQ: Floats) -> bool:
    """Whether two seeds agree on every query without being constant, as collapsed runs are."""
    varied = score_SQ[np.ptp(score_SQ, axis=1) > 0]
    return len(np.unique(varied, axis=0)) < len(varied)


def twins(names: Sequence[str], score_LSQ: Floats) -> list[str | None]:
    """For each configuration the first one before it with the same values throughout."""
    first: dict[bytes, str] = {}
    return [
        None if (twin := first.setdefault(score_SQ.tobytes(), name)) == name else twin
        for name, score_SQ in zip(names, score_LSQ, strict=True)
    ]
