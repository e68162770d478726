"""A sweep on a cluster that has no worker until trials ask for one, as in cluster/config.yaml.

Ray's fake provider stands for the cloud: its workers are processes on the head's machine.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cluster.machines import HOME, SHARED, machines, missing
from tests.e2e.conftest import trials_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

BOOTSTRAP = "ray_bootstrap_config.yaml"  # where `ray up` would leave it
LISTS = (
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
    "cluster_synced_files",
)
CLUSTER = {
    "cluster_name": "autoscaled",
    "provider": {
        "type": "fake_multinode",
        # All its workers have one address, and nobody can log in to them.
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    },
    "max_workers": 3,
    "head_node_type": "ray.head.default",
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "worker": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 2},
    },
    # Ray's defaults do not reach a file that no `ray up` has brought.
    "auth": {},
    "docker": {},
    "file_mounts": {},
    "upscaling_speed": 1.0,
    "idle_timeout_minutes": 5,
    **{key: [] for key in LISTS},
}


def test_a_sweep_starts_the_workers_that_it_needs(tmp_path: Path, shared: Path):
    with machines(tmp_path, shared, "router", "head") as [_, head]:
        (head.disk / BOOTSTRAP).write_text(json.dumps(CLUSTER))
        start = f"ray start --head --num-cpus=0 --autoscaling-config={HOME}/{BOOTSTRAP}"
        sweep = f"python -m sweeps.window_stride --smoke-test --storage {SHARED}/autoscaled"
        fake = "export RAY_FAKE_CLUSTER=1 AUTOSCALER_UPDATE_INTERVAL_S=1 RAY_AUTH_MODE=disabled"
        done = subprocess.run(
            head.command("bash", "-c", f"{fake}; {start} && {sweep}"),
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "on 2 slots" in done.stdout
        trials = trials_of(shared / "autoscaled" / "window_stride" / "python-docs")
        assert set(trials["status"]) == {"done"}
