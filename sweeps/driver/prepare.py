"""The preparation of a sweep's inputs on the machines where its trials will run."""

from dataclasses import replace

from rank_core.cache import cache_root
from rank_core.trial.trial import prepare
from sweeps.plan.options import Options, cluster_address
from sweeps.plan.plan import Plan
from sweeps.plan.terminal import say


def prepare_machines(plan: Plan, options: Options) -> None:
    """Prepares the inputs of all configurations on every node of the cluster, or on this machine.
    Finished files are kept, so a killed preparation resumes."""
    configs = [cell.config for cell in plan.cells]
    if options.engine == "local" or cluster_address() is None:
        for config in dict.fromkeys(replace(config, seed=0) for config in configs):
            prepare(config)
    else:
        from sweeps.ray_engine.prepare import prepare_cluster

        prepare_cluster(configs, options.code)
    say(f"prepared    {plan.base.collection} for {plan.base.model.backbone} in {cache_root()}")
