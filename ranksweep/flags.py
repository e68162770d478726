"""The flags of a sweep as keywords, for editors and type checkers. Generated from
sweeps/plan/flags.py: `python -m docs.tools.flags_module > ranksweep/flags.py`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


class SweepFlags(TypedDict, total=False):
    """The flags of `ranksweep run SWEEP --help`, by their names in Python."""

    fields: str
    """field names in a folder's files: id=doc_id,body=text"""

    model: str | type
    """ranking model (ranksweep models lists them)"""

    profile: str
    """settings of a paper: clean, boytsov2022, boytsov2025, zhang2021, cedr2019, parade2020,
    keyb2022"""

    init_from: str
    """start from the weights of this trial, or of this cell's trial with the same seed"""

    test_on: str
    """further collections that every trained model ranks, named as for --collection;
    NAME:SPLIT for a split other than test"""

    num_seeds: int
    """seeds 1 to N (default: 3)"""

    search: "str | BaseSampler"
    """grid, random, tpe, gp, race, asha (default: grid), or a sampler of Optuna,
    QMCSampler(scramble=True); asha needs Ray; which trials it stops is not reproducible"""

    num_configs: int
    """number of configurations besides the baseline"""

    search_seed: int
    """random seed of the search itself (default: 1)"""

    race_delta: float
    """differences smaller than D count as ties in a race (default: 0)"""

    asha_eta: int
    """keep the best 1/N at each rung (default: 3)"""

    asha_min_epochs: int
    """epochs before the first ASHA decision (default: 1)"""

    objective: str | Sequence[str]
    """what the search seeks and the report weighs up: the measure, then costs
    (tokens_per_document, ms_per_query, peak_memory)"""

    at_most: str | Mapping[str, float]
    """limits of costs, such as tokens_per_document=600, for the search and the choice;
    configurations that read more tokens do not run"""

    cost_weight: str | Mapping[str, float]
    """what one unit of a cost counts in the choice, in units of the measure:
    ms_per_query=0.001"""

    search_from: str | Sequence[str]
    """finished sweeps with the same collection and settings, whose trials begin the search"""

    storage: str
    """folder of the results"""

    name: str
    """name of the sweep's folder in the storage (default: the name of its question)"""

    replace: bool
    """overwrite the sweep in this folder, which has other settings; its trials are kept"""

    tracking_uri: str
    """tracking URI of MLflow, or none (default: SQLite in the storage)"""

    alpha: float
    """significance level"""

    correct_over: Literal["measure", "table"]
    """correct p over the comparisons of a measure with a baseline, or over all of the table:
    measures, letters, collections"""

    margin: float
    """differences up to D of a measure count as practically equal"""

    experiment_prefix: str
    """prefix of the names of MLflow's experiments (default: none, or
    $RANKSWEEP_EXPERIMENT_PREFIX)"""

    clusters: str
    """clusters of queries whose scores may be correlated: a file of query_id and cluster, auto
    (queries that share relevant documents), or group (the field group of the queries)"""

    verbose: bool
    """also print the details: test, correction, seeds, unjudged documents"""

    interpolate: Literal["best", "all", "none"]
    """add rows interpolated with the first stage; best: those of the baseline and the best on
    dev"""

    weights_gib: float
    """disk limit for saved weights in GiB; the best on dev are kept"""

    engine: Literal["ray", "local"]
    """ray, or local: one trial at a time in this process"""

    num_workers: int | str
    """workers per trial, or a range such as 1-4: more for long trials, and a trial goes on
    with fewer or more where nodes leave or join"""

    cpus_per_worker: int
    """CPU threads per worker"""

    gpus_per_worker: float
    """GPUs per worker (default: 1 where there are GPUs)"""

    accelerator: str
    """GPU of the nodes that run trials, by Ray's name, such as A100"""

    max_slots: int
    """maximum number of trials at a time; a cluster may add its workers later"""

    checkpoint_minutes: float
    """minutes between checkpoints (default: 1.0; 0: no checkpoints)"""

    checkpoint_gib: float
    """disk limit of all checkpoints in GiB (default: half the disk)"""

    max_gpu_hours: float
    """budget in GPU-hours (core-hours without a GPU) over all commands of the sweep"""

    dry_run: bool
    """print the plan and launch nothing"""

    machines: str
    """with --dry-run: plan for these GPUs (H100, H200, A100, L4), which need not be here; @2.5
    is the price of a GPU-hour"""

    prepare: bool
    """download and tokenise on every node, then exit (no GPU needed)"""

    smoke_test: bool
    """run every step on a tiny sample, to test the set-up"""

    confirm: bool
    """retrain the best on dev and the baseline with fresh seeds"""
