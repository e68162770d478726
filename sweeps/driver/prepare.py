"""The preparation of a sweep's inputs on the machines where its trials will run."""

from rank_core.settings.config import TrialConfig
from rank_core.trial.own_names import portable_config
from rank_core.trial.prepare import prepare
from sweeps.plan.options import cluster_address


def prepare_machines(config: TrialConfig) -> None:
    """Prepares the inputs of a configuration on every node of the cluster, or on this machine."""
    config = portable_config(config)
    if cluster_address() is None:
        prepare(config)
        return
    from sweeps.ray_engine.prepare import prepare_cluster

    prepare_cluster(config)
