"""Every node of a cluster prepares its own inputs, and the driver tells of it."""

import pytest

from rank_core.data.store import STORES
from rank_core.errors import BadInput

pytestmark = [pytest.mark.ray, pytest.mark.long]


@pytest.fixture
def two_nodes(tmp_path):
    """A cluster of two nodes on this machine, each with a cache folder of its own."""
    import ray
    from ray.cluster_utils import Cluster

    caches = [tmp_path / "one", tmp_path / "two"]
    cluster = Cluster()
    try:
        for cache in caches:
            cluster.add_node(num_cpus=1, env_vars={"RANKSWEEP_CACHE": str(cache)})
        ray.init(address=cluster.address, log_to_driver=False)
        yield caches
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_every_node_makes_its_inputs_before_a_trial_and_says_so(two_nodes, small_trial, capsys):
    from sweeps.ray_engine.nodes import prepare_nodes

    prepare_nodes([small_trial, small_trial.override({"seed": 2})])
    for cache in two_nodes:
        for kind in (STORES, "collections", "tokens", "training"):
            assert [path for path in (cache / kind).iterdir() if path.is_dir()], (cache, kind)
    assert "preparing   inputs on 2 nodes" in capsys.readouterr().out
    with pytest.raises(BadInput, match="does not exist"):
        prepare_nodes([small_trial.override({"collection": "/nowhere"})])
