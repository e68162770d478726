"""Deviations of real training runs from the mean of their system, in standard deviations.

Mean nDCG@10 on test of ten seeds of FirstP and of MaxP on the embedded collection: `python
sweeps/seeds.py --num-seeds 10`, then `python -m tests.benchmarks.seed_deviations
results/seeds/python-docs`.
"""

import sys
from pathlib import Path

import numpy as np

from sweeps.systems.load import load_sweep


def deviations(folder: Path) -> list[float]:
    """Those of a sweep's used runs, of each system with mean 0 and mean square 1."""
    sweep = load_sweep(folder)
    scores = sweep.scores[sweep.scores["measure"] == sweep.primary]
    means = scores.groupby(["cell", "seed"], observed=True)["value"].mean().groupby("cell")
    return sorted(
        round(float(one), 3) for one in means.transform(lambda x: (x - x.mean()) / x.std(ddof=0))
    )


SEED_DEVIATIONS = np.array(
    [
        *(-2.163, -1.248, -1.242, -1.154, -1.036, -0.52, -0.383, -0.208, -0.182, -0.124),
        *(0.0, 0.141, 0.227, 0.813, 0.952, 0.994, 1.104, 1.247, 1.251, 1.53),
    ]
)

if __name__ == "__main__":
    print(deviations(Path(sys.argv[1])))
