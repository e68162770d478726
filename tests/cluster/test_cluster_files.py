"""The cluster files, read as Ray's launcher reads them, without a cluster."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "cluster").glob("*.yaml"))

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


def read(path):
    return yaml.safe_load(path.read_text())


@every_file
def test_rays_launcher_accepts_the_file(path):
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(read(path)))


@every_file
def test_rays_launcher_refuses_a_misspelt_key(path):
    import jsonschema
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(read(path) | {"setup_comands": []})
    with pytest.raises(jsonschema.ValidationError):
        validate_config(config)


@every_file
def test_every_file_that_travels_exists(path):
    mounts = [local for local in read(path)["file_mounts"].values() if not local.startswith("~")]
    assert [local for local in mounts if not (ROOT / local).exists()] == []
    assert {"pyproject.toml", "README.md", "LICENSE", "rank_core", "sweeps"} == set(mounts)


@every_file
def test_the_dashboard_is_on_and_the_head_can_start_workers(path):
    [start] = [line for line in read(path)["head_start_ray_commands"] if "ray start" in line]
    assert "--include-dashboard=true" in start
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in start


@every_file
def test_every_node_demands_the_token_and_reports_no_usage(path):
    setup = " ".join(read(path)["setup_commands"])
    assert "RAY_AUTH_MODE=token" in setup and "RAY_USAGE_STATS_ENABLED=0" in setup


def test_the_cloud_cluster_gives_trials_to_workers_alone():
    config = read(ROOT / "cluster" / "config.yaml")
    assert config["available_node_types"][config["head_node_type"]]["resources"]["CPU"] == 0
