"""How many chunks does a smooth maximum need, compared with MaxP?"""

import sys

from ranksweep import Backbone, Experiment, Grid, TrialConfig, main


def grid(base: TrialConfig, backbone: Backbone) -> Grid:
    """The own model over more and more chunks; the baseline reads all that MaxP reads."""
    return Grid(
        points=tuple(
            {"model.name": "own_model:SmoothMaxP", "chunking.max_chunks": n} for n in (1, 2, 4)
        ),
        baseline={"model.name": "maxp"},
    )


EXPERIMENT = Experiment(
    name="smooth_chunks",
    question="How many chunks does a smooth maximum need?",
    swept=("chunking.max_chunks",),
    grid=grid,
    defaults={
        "collection": "own_collection:notes",
        "model.backbone": "tiny-docs",
        "chunking.window": 32,
        "chunking.stride": 16,
    },
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT, sys.argv[1:], doc=__doc__))
