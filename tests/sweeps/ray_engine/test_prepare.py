"""Every node of a cluster prepares its own inputs, and the driver tells of it."""

import json
import shutil
from hashlib import sha256

import pytest

from rank_core.data.store import STORES
from rank_core.errors import BadInput
from rank_core.trial.trial import prepare

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


def test_a_node_restores_what_the_driver_has_prepared(two_nodes, small_trial, tmp_path, capsys):
    """What it has was brought: a file in it was added in the storage."""
    from sweeps.ray_engine.nodes import Nodes, expected_of
    from sweeps.store.lock import only_driver
    from sweeps.store.prepared import FOLDER, LIST, Prepared
    from sweeps.store.records import Records
    from sweeps.store.storage import Storage

    records = Records(Storage(str(tmp_path / "s")), "window_stride/woods")
    records.storage.open()
    prepare(small_trial)
    prepared = Prepared(records.storage)
    prepared.put(prepared.missing())
    [*lists] = (tmp_path / "s" / FOLDER).glob(f"*/*/{LIST}")
    for file in lists:
        (file.parent / "mark").write_bytes(b"1")
        names = json.loads(file.read_text()) | {"mark": [1, sha256(b"1").hexdigest()]}
        file.write_text(json.dumps(names))
    shutil.rmtree(lists[0].parent)  # which the driver puts there again
    with only_driver(records):
        Nodes(expected_of(records), [small_trial]).prepare()
    assert "of inputs go to the storage" in capsys.readouterr().out and lists[0].exists()
    marks = {file.parent.relative_to(tmp_path / "s" / FOLDER) / "mark" for file in lists[1:]}
    for cache in two_nodes:
        found = {path.relative_to(cache) for path in cache.glob("*/*/mark")}
        assert len(found) >= 4 and found <= marks
