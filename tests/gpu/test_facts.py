"""What the machine is and gives."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import torch
import transformers
from packaging.requirements import Requirement

from rank_core.machine import fast_paths
from tests.benchmarks.workload import data_sheet_rate, matrix_rate

pytestmark = pytest.mark.gpu

LEAST_SHARE = 0.5
"""Of the data sheet's rate; a GPU that is throttled or shared reaches less."""


def test_versions(device, fake, figures):
    """torch and transformers are installed

    Install the versions of pyproject.toml, which ranksweep's tests hold for."""
    figures |= {"torch": torch.__version__, "transformers": transformers.__version__}
    figures |= {} if fast_paths() else {"fast paths": "off"}
    figures["device"] = str(device) if fake or device.type == "cpu" else _name(device)
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    wanted = map(Requirement, project["optional-dependencies"]["serve"])
    allowed = {package.name: package.specifier for package in wanted}
    for module in (torch, transformers):
        if module.__version__ not in allowed[module.__name__]:
            wanted = f"{module.__name__}{allowed[module.__name__]}"
            pytest.skip(f"{module.__version__} is installed; ranksweep's tests hold for {wanted}")


def _name(device):
    return torch.cuda.get_device_name(device)


def test_driver(gpu, figures):
    """a GPU, its driver and its memory are there

    Look at `nvidia-smi`: other processes may hold the memory; a torch build newer than the driver
    computes nothing.
    """
    free, total = torch.cuda.mem_get_info(gpu)
    major, minor = torch.cuda.get_device_capability(gpu)
    figures |= {"capability": f"{major}.{minor}", "CUDA": torch.version.cuda}
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        figures["driver"] = subprocess.run(query, capture_output=True, text=True).stdout.split()[0]
    figures |= {"GiB": round(total / 2**30, 1), "GiB free": round(free / 2**30, 1)}
    assert torch.ones(1, device=gpu).sum().item() == 1
    assert free > total / 2, "another process holds more than half of the memory"


def test_number_types(gpu, figures):
    """16-bit products are computed by the hardware

    Set training.precision=fp32: this GPU emulates both types of 16 bits.
    """
    real = torch.cuda.is_bf16_supported(including_emulation=False)
    figures["precision=auto is"] = "bf16" if real else "fp16"
    assert real or torch.cuda.get_device_capability(gpu) >= (7, 0)


def test_attention(gpu, figures):
    """torch attends by a fused kernel

    The GPU or this build of torch has none; attention then takes memory that grows with the square
    of a chunk's length.
    """
    number = torch.bfloat16 if torch.cuda.is_bf16_supported(False) else torch.float16
    kinds = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}
    mask = torch.ones(8, 1, 160, 160, dtype=torch.bool, device=gpu)
    q = torch.randn(8, 12, 160, 64, device=gpu, dtype=number)
    plain, masked = (kinds.get(torch._fused_sdp_choice(q, q, q, m), "other") for m in (None, mask))
    figures |= {"without padding": plain, "with padding": masked}
    assert "math" not in (plain, masked)


def test_bandwidth(gpu, figures):
    """memory is read and written at the GPU's speed

    The GPU is shared, throttled (`nvidia-smi -q -d PERFORMANCE`) or a slice (MIG).
    """
    size = min(2**30, torch.cuda.mem_get_info(gpu)[0] // 8)
    source = torch.zeros(size, dtype=torch.uint8, device=gpu)
    target = torch.empty_like(source)
    target.copy_(source)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(20):
        target.copy_(source)
    end.record()
    end.synchronize()
    rate = 20 * 2 * size / (start.elapsed_time(end) / 1e3)
    figures["GB/s"] = round(rate / 1e9)
    assert rate > 1e11


def test_products(gpu, figures):
    """matrix products reach half of the data sheet's rate

    The GPU is shared, throttled (`nvidia-smi -q -d PERFORMANCE`) or a slice (MIG): figures of speed
    taken here are not the hardware's.
    """
    rate = matrix_rate(torch.bfloat16, 5)
    peak = data_sheet_rate(torch.cuda.get_device_name(gpu))
    figures["bf16 TFLOP/s"] = round(rate / 1e12)
    if peak is None:
        pytest.skip(f"no data sheet for {torch.cuda.get_device_name(gpu)} in workload.PEAKS")
    figures["share of the data sheet"] = f"{rate / peak:.0%}"
    assert rate > LEAST_SHARE * peak
