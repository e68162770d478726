"""The cluster files, read as Ray's launcher and Kubernetes read them, without a cluster."""

import copy
import json
import os
import re
import shlex
import subprocess
from importlib.metadata import requires, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LAUNCHED = [ROOT / "cluster" / name for name in ("config.yaml", "gcp.yaml", "local.yaml")]
CONSTRAINTS = ROOT / "cluster" / "constraints.txt"
KUBERAY, SLURM = ROOT / "cluster" / "kuberay.yaml", ROOT / "cluster" / "slurm.sh"
KUEUE, SKYPILOT = ROOT / "cluster" / "kueue.yaml", ROOT / "cluster" / "skypilot.yaml"
WORKERS, NODE = ROOT / "cluster" / "slurm-workers.sh", ROOT / "cluster" / "slurm-node.sh"

every_file = pytest.mark.parametrize("path", LAUNCHED, ids=lambda path: path.name)


def read(path):
    return yaml.safe_load(path.read_text())


def commands(config):
    return [line for key, lines in config.items() if key.endswith("_commands") for line in lines]


def test_every_file_of_the_folder_is_tested_here():
    alone = {KUBERAY, KUEUE, SKYPILOT, SLURM, WORKERS, NODE, CONSTRAINTS}
    assert {*LAUNCHED, *alone} == set((ROOT / "cluster").iterdir())


@every_file
def test_rays_launcher_accepts_the_file_and_would_refuse_a_misspelt_key(path):
    import jsonschema
    from ray.autoscaler._private.util import prepare_config, validate_config

    def refusal(config):
        try:
            validate_config(prepare_config(config))
        except jsonschema.ValidationError as error:
            return error.message
        return None

    assert refusal(read(path)) is None
    assert "setup_comands" in refusal(read(path) | {"setup_comands": []})


@every_file
def test_what_a_file_names_exists_and_what_it_runs_is_bash(path):
    config = read(path)
    mounts = [local for local in config["file_mounts"].values() if not local.startswith("~")]
    code = {"pyproject.toml", "README.md", "LICENSE", "rank_core", "sweeps", "ranksweep"}
    assert set(mounts) == code | {"cluster/constraints.txt"}
    assert all((ROOT / local).exists() for local in mounts)
    lines = commands(config)
    assert len(lines) > 5
    for line in lines:
        subprocess.run(["bash", "-n", "-c", line], check=True)


@every_file
def test_nodes_demand_the_token_and_the_head_has_dashboard_and_autoscaler(path):
    config = read(path)
    setup = " ".join(config["setup_commands"])
    assert "RAY_AUTH_MODE=token" in setup and "RAY_USAGE_STATS_ENABLED=0" in setup
    assert f"RANKSWEEP_CLUSTER={path.relative_to(ROOT)}" in setup  # which printed lines name
    [start] = [line for line in config["head_start_ray_commands"] if "ray start" in line]
    assert "--include-dashboard=true" in start
    assert "--autoscaling-config=~/ray_bootstrap_config.yaml" in start
    if path.name != "local.yaml":  # a cloud's workers alone run trials
        assert config["available_node_types"][config["head_node_type"]]["resources"]["CPU"] == 0


@every_file
def test_the_header_has_a_line_for_each_step_and_what_is_to_edit_is_marked(path):
    header, _, rest = path.read_text().partition("\ncluster_name:")
    name = path.relative_to(ROOT)
    steps = [
        f"ray up -y {name}",
        f"ray submit --tmux {name} sweeps/window_stride.py",
        f"ray attach --tmux {name}",
        f"ray exec {name} --port-forward",
        f"ray rsync-down {name} results/ results/",
        f"ray down -y {name}",
    ]
    places = [header.index(step) for step in steps]
    assert places == sorted(places)
    edits = {"config.yaml": 1, "gcp.yaml": 1, "local.yaml": 6}
    assert rest.count("EDIT:") + rest.count("# EDIT\n") == edits[path.name]


# One set of versions for all nodes of all clusters.


def pins():
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    found = [Requirement(line) for line in lines]
    assert all(re.fullmatch(r"==[\w.]+", str(one.specifier)) for one in found)
    return {canonicalize_name(one.name): str(one.specifier)[2:] for one in found}


def needed(name, extras):
    """Requirements of an installed package, those of the extras included."""
    for line in requires(name) or []:
        one = Requirement(line)
        if one.marker is None or any(
            one.marker.evaluate({"extra": extra}) for extra in ("", *extras)
        ):
            yield one


def test_the_constraints_bind_every_package_that_a_node_installs():
    pinned, seen, todo = pins(), set(), [("ranksweep", ("sweep",))]
    while todo:
        name, extras = todo.pop()
        if (name, extras) not in seen:
            seen.add((name, extras))
            # A release newer than the pinned one may require other versions than that did.
            is_pinned = version(name) == pinned.get(canonicalize_name(name), version(name))
            for one in needed(name, extras):
                key = canonicalize_name(one.name)
                if key == "ranksweep":  # another extra
                    todo.append((key, tuple(sorted(one.extras))))
                    continue
                if is_pinned:
                    assert one.specifier.contains(pinned[key], prereleases=True), (name, str(one))
                if key in pinned:
                    todo.append((one.name, tuple(sorted(one.extras))))
    assert len(seen) > 100
    assert {"s3fs", "gcsfs", "boto3", "google-api-python-client"} <= pinned.keys()


@every_file
def test_every_node_installs_the_constrained_versions_and_nothing_else(path):
    config = read(path)
    assert config["file_mounts"]["~/ranksweep/constraints.txt"] == "cluster/constraints.txt"
    installs = [line for line in commands(config) if "pip install" in line]
    assert installs and "--editable ~/'ranksweep[sweep]'" in " ".join(config["setup_commands"])
    assert all("--constraint ~/ranksweep/constraints.txt" in line for line in installs)


def test_slurm_and_kubernetes_install_the_same_versions():
    constrained = "pip install --quiet --constraint cluster/constraints.txt"
    assert f'{constrained} --editable ".[sweep]"' in NODE.read_text()
    assert "--from-file=cluster/constraints.txt" in KUBERAY.read_text()
    [lock] = {one["value"] for box in containers() for one in box["env"] if one["name"] == "LOCK"}
    assert lock.endswith("/constraints.txt")


# schemas.json has the keys of the objects that the files have, from the schemas that it names.
SCHEMAS = json.loads((Path(__file__).parent / "schemas.json").read_text())


def manifest(kind, path=KUBERAY):
    """A document of a file, with the choices that lines after #: are."""
    text = re.sub(r"^( *)#: ", r"\1", path.read_text(), flags=re.MULTILINE)
    documents = [*yaml.safe_load_all(text)]
    [found] = [document for document in documents if document.get("kind", "SkyPilot") == kind]
    return found


def objects(tree, path=()):
    """The paths to the objects of a document."""
    if isinstance(tree, dict):
        yield path
    own = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in own if isinstance(tree, dict | list) else ():
        if isinstance(value, dict | list):
            yield from objects(value, (*path, key))


FREE = ("labels", "annotations", "nodeSelector", "requests", "limits", "rayStartParams")
FREE += ("accelerators", "envs")
"""Objects with keys of one's own."""


@pytest.mark.parametrize(
    ("path", "kind"), [(KUBERAY, "RayJob"), (KUEUE, "Job"), (SKYPILOT, "SkyPilot")]
)
def test_a_file_has_the_keys_of_its_schema_and_no_misspelt_one_would_pass(path, kind):
    from jsonschema import Draft202012Validator

    schema = Draft202012Validator(SCHEMAS[kind]["schema"])
    document = manifest(kind, path)
    assert [error.message for error in schema.iter_errors(document)] == []
    places = [at for at in objects(document) if not {*FREE} & {*map(str, at)}]
    assert len(places) >= 3
    for at in places:
        other = copy.deepcopy(document)
        place = other
        for key in at:
            place = place[key]
        place["misspelt"] = "1"
        assert not schema.is_valid(other), at


def test_a_second_try_is_made_for_no_exit_code_that_it_cannot_mend():
    from sweeps.launch.sweep import DONE, FAILED_TRIALS, OUT_OF_BUDGET

    job = manifest("Job", KUEUE)["spec"]
    fails, ignores = job["podFailurePolicy"]["rules"]
    pod = job["template"]["spec"]
    [box] = pod["containers"]
    codes = fails["onExitCodes"]
    assert fails["action"] == "FailJob" and codes["operator"] == "In"
    assert codes["containerName"] == box["name"] and pod["restartPolicy"] == "Never"
    bad_input = 2
    assert codes["values"] == sorted([bad_input, FAILED_TRIALS, OUT_OF_BUDGET])
    assert DONE not in codes["values"]  # which Kubernetes refuses
    [condition] = ignores["onPodConditions"]
    assert ignores["action"] == "Ignore" and condition["type"] == "DisruptionTarget"
    recovery = manifest("SkyPilot", SKYPILOT)["resources"]["job_recovery"]
    assert recovery["max_restarts_on_errors"] == 0


def test_jobs_name_their_queue_and_the_kind_of_their_gpus():
    for kind, path in (("RayJob", KUBERAY), ("Job", KUEUE)):
        job = manifest(kind, path)
        assert job["metadata"]["labels"].keys() == {"kueue.x-k8s.io/queue-name"}
    ray_job = manifest("RayJob")
    # Kueue refuses a cluster that grows without it.
    assert ray_job["metadata"]["annotations"] == {"kueue.x-k8s.io/elastic-job": "true"}
    head, workers = pods()
    pod = manifest("Job", KUEUE)["spec"]["template"]["spec"]
    for own in (workers, pod):
        assert own["nodeSelector"].keys() == {"nvidia.com/gpu.product"}
    assert "nodeSelector" not in head
    plain = yaml.safe_load_all(KUBERAY.read_text())
    [as_it_is] = [one for one in plain if one["kind"] == "RayJob"]
    assert as_it_is["metadata"] == {"name": "ranksweep"}  # for a cluster without Kueue


def test_the_sweeps_of_one_machine_run_as_written():
    from sweeps.plan.options import parse

    pod = manifest("Job", KUEUE)["spec"]["template"]["spec"]
    [box] = pod["containers"]
    lines = manifest("SkyPilot", SKYPILOT)["run"].splitlines()
    [line] = [line for line in lines if "ranksweep run" in line]
    task = shlex.split(line)[1:]
    for words in (box["args"], task):
        assert words[0] == "run" and (ROOT / "sweeps" / f"{words[1]}.py").exists()
        options = parse(words[2:], prog="", description="")
        assert options.storage != "results"  # which would end with the machine
    assert box["resources"]["requests"] == box["resources"]["limits"]
    mounts = {one["mountPath"] for one in box["volumeMounts"]}
    assert mounts == {"/data", "/dev/shm"}
    setup = manifest("SkyPilot", SKYPILOT)["setup"]
    assert "--constraint cluster/constraints.txt '.[sweep,s3]'" in setup
    for script in (setup, "\n".join(lines)):
        subprocess.run(["bash", "-n", "-c", script], check=True)


def head_and_workers():
    cluster = manifest("RayJob")["spec"]["rayClusterSpec"]
    return cluster["headGroupSpec"], cluster["workerGroupSpecs"]


def pods():
    head, workers = head_and_workers()
    return [group["template"]["spec"] for group in (head, *workers)]


def containers():
    return [one for pod in pods() for one in (*pod["initContainers"], *pod["containers"])]


def box_mounts(group):
    [box] = group["template"]["spec"]["containers"]
    return box["volumeMounts"]


def test_the_kuberay_manifest_is_a_job_with_a_cluster_of_its_own():
    job = manifest("RayJob")
    assert job["apiVersion"] == "ray.io/v1"
    assert job["spec"]["shutdownAfterJobFinishes"] is True
    assert {"headGroupSpec", "workerGroupSpecs", "rayVersion"} <= job["spec"][
        "rayClusterSpec"
    ].keys()
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}


def test_the_kuberay_job_runs_a_sweep_that_this_repository_has():
    from sweeps.plan.options import parse

    words = shlex.split(manifest("RayJob")["spec"]["entrypoint"])
    assert words[:2] == ["ranksweep", "run"]
    assert (ROOT / "sweeps" / f"{words[2]}.py").exists()
    options = parse(words[3:], prog="", description="")
    head, [workers] = head_and_workers()
    [results] = [one for one in box_mounts(head) if one["name"] == "results"]
    assert options.storage.startswith(f"{results['mountPath']}/")  # which workers reach by Ray
    assert options.storage.split("/")[1] not in str(box_mounts(workers))
    cluster = manifest("RayJob")["spec"]["rayClusterSpec"]
    [workers] = cluster["workerGroupSpecs"]
    # A sweep does not see the limit of KubeRay's autoscaler.
    assert cluster["enableInTreeAutoscaling"] is True
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    assert options.max_slots == workers["maxReplicas"] and options.gpus_per_worker == 1


def test_head_and_workers_of_kuberay_have_one_image_and_one_environment():
    cluster = manifest("RayJob")["spec"]["rayClusterSpec"]
    [image] = {one["image"] for one in containers()}
    version, python = image.partition(":")[2].split("-")[:2]
    assert version == cluster["rayVersion"] and python == "py311"
    [needed] = [Requirement(line) for line in requires("ranksweep") if line.startswith("ray[")]
    assert needed.specifier.contains(version)
    assert all(one["env"] == containers()[0]["env"] for one in containers())
    head, [workers] = head_and_workers()
    [more] = [one for one in box_mounts(head) if one not in box_mounts(workers)]
    assert more["name"] == "results" and {"name": "node", "emptyDir": {}} in pods()[1]["volumes"]
    environment = {one["name"]: one["value"] for one in containers()[0]["env"]}
    assert environment["PATH"].startswith(f"{environment['ENVIRONMENT']}/bin:")


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_kuberays_script_makes_the_environment_of_a_pod_once_from_the_lock(tmp_path):
    names = ("environment.sh", "lock.txt", "environment")
    script, lock, home = (tmp_path / name for name in names)
    script.write_text(manifest("ConfigMap")["data"]["environment.sh"])
    lock.write_text("ray==2.60.0\n")
    # Stands for Python: `-m venv DIR` leaves a copy of itself there, all calls are noted.
    note = f'echo "$@" >> {tmp_path}/calls; if test "${{2:-}}" = venv; then'
    copy = 'mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi'
    executable(tmp_path / "bin" / "python", f"#!/bin/bash\n{note} {copy}\n")
    env = {"LOCK": str(lock), "SOURCE": "ranksweep.whl", "ENVIRONMENT": str(home)}
    env["PATH"] = f"{home}/bin:{tmp_path}/bin:{os.environ['PATH']}"
    for _ in range(2):  # a container that starts again
        subprocess.run(["bash", str(script)], env=env, check=True, timeout=500)
    install = f"-m pip install --quiet --constraint {lock} ranksweep.whl"
    assert (tmp_path / "calls").read_text().splitlines() == [f"-m venv {home}", install]
