"""The precision that `auto` is on the GPUs of a sweep: one for all of them, of whatever kind."""

from dataclasses import replace

import pytest
import torch

from rank_core import machine
from sweeps.plan.description import description_of
from sweeps.plan.options import parse
from sweeps.ray_engine import cluster, runner
from sweeps.store.sweep_file import read_sweep_file
from tests.sweeps.ray_engine.conftest import SLOTS, SMALL


def node(*kinds: str, alive: bool = True) -> dict[str, object]:
    return {"Alive": alive, "Resources": {"CPU": 8.0} | {f"accelerator_type:{k}": 1 for k in kinds}}


@pytest.mark.parametrize(
    ("nodes", "startable", "precision"),
    [
        ([node("A100")], [], "bf16"),
        ([node("A100"), node("H200"), node("L40S"), node("A10G"), node("GB200")], [], "bf16"),
        ([node("A100"), node("T4")], [], "fp16"),
        ([node("A100")], ["V100"], "fp16"),
        ([node()], ["L4"], "bf16"),
        ([node("A100"), node("T4", alive=False)], [], "bf16"),
        ([node("A100"), node("RTX")], [], ""),
        ([node()], [], ""),
    ],
)
def test_the_kinds_of_all_nodes_decide(monkeypatch, nodes, startable, precision):
    types = {kind: {"resources": {f"accelerator_type:{kind}": 1}} for kind in startable}
    monkeypatch.setattr(cluster, "_cluster_config", lambda: {"available_node_types": types})
    monkeypatch.setattr(cluster.ray, "nodes", lambda: nodes)
    assert cluster.precision_of_gpus() == precision


def test_a_sweep_on_one_kind_has_its_precision(monkeypatch):
    monkeypatch.setattr(cluster, "_cluster_config", dict)
    monkeypatch.setattr(cluster.ray, "nodes", lambda: [node("A100"), node("T4")])
    assert [cluster.precision_of_gpus(kind) for kind in ("", "A100", "T4")] == [
        *("fp16", "bf16", "fp16")
    ]


def test_the_first_command_decides_for_all_later_ones(records, plan_of, monkeypatch):
    description_of(plan_of(*SMALL), []).write(records)
    options = parse([], prog="window_stride.py", description="")
    on_gpus = replace(SLOTS, gpus=1.0)
    monkeypatch.setattr(runner, "precision_of_gpus", lambda kind: "bf16")
    assert runner._with_precision(options, SLOTS, records).auto_precision == {}
    first = runner._with_precision(
        replace(options, auto_precision={"cpu": "fp32"}), on_gpus, records
    )
    assert first.auto_precision == {"cpu": "fp32", "cuda": "bf16"}
    assert read_sweep_file(records).auto_precision == first.auto_precision
    monkeypatch.setattr(runner, "precision_of_gpus", lambda kind: "fp16")
    assert runner._with_precision(first, on_gpus, records) == first


@pytest.mark.parametrize(("decided", "type_"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
@pytest.mark.parametrize("device_class", ["cuda", "cuda with bf16"])
def test_a_gpu_of_another_kind_computes_as_decided(monkeypatch, decided, type_, device_class):
    monkeypatch.setattr(machine, "_decided", {})
    monkeypatch.setattr(machine, "device_class", lambda device: device_class)
    gpu, own = torch.device("cuda", 0), torch.bfloat16 if "bf16" in device_class else torch.float16
    assert machine.autocast_type("auto", gpu) == own
    machine.compute_as_decided({"cpu": "fp32", "cuda": decided})
    assert machine.autocast_type("auto", gpu) == type_
    assert machine.autocast_type("fp32", gpu) is None
    assert machine.autocast_type("auto", torch.device("cpu")) is None
