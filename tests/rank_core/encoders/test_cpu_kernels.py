"""The kernels of 16-bit scoring on CPUs: measured once, kept, and those of a sweep's driver."""

import json

import pytest
import torch

from rank_core import machine
from rank_core.encoders import cpu_kernels as module
from rank_core.encoders.cpu_kernels import (
    cpu_kernels,
    fastest,
    kernels_name,
    measure,
    usual_kernels,
)
from rank_core.encoders.cpu_layers import FP32, KERNELS, has_kernels

NAN = float("nan")
OTHERS = [name for name in KERNELS if name != usual_kernels()]


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """The measurements of a CPU on which the last kernels are twice as fast as all others."""
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RANKSWEEP_FAST_PATHS", raising=False)
    monkeypatch.setattr(machine, "_decided", [machine._Decided()])
    monkeypatch.setattr(module, "has_kernels", lambda dtype: True)
    calls = []

    def seconds(kernels):
        calls.append(kernels)
        return {name: 1.0 for name in kernels} | {OTHERS[-1]: 0.5}

    monkeypatch.setattr(module, "measure", seconds)
    module.seconds_of_kernels.cache_clear()
    yield calls
    module.seconds_of_kernels.cache_clear()


@pytest.mark.parametrize("share, replaced", [(0.5, True), (0.94, True), (0.96, False), (2, False)])
def test_the_usual_kernels_are_replaced_by_clearly_faster_ones(share, replaced):
    seconds = dict.fromkeys(KERNELS, 3.0) | {OTHERS[0]: 3.0 * share}
    assert fastest(seconds) == (OTHERS[0] if replaced else usual_kernels())


def test_a_cpu_is_measured_once_for_all_its_processes(measured):
    for _ in range(2):
        assert kernels_name() == OTHERS[-1] and cpu_kernels(torch.bfloat16) == KERNELS[OTHERS[-1]]
        module.seconds_of_kernels.cache_clear()  # as in the next process
    assert len(measured) == 1


def test_without_a_folder_to_write_to_each_process_measures(measured, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "file"))
    assert kernels_name() == kernels_name() == OTHERS[-1] and len(measured) == 1


@pytest.mark.parametrize("content", ["", "{}", "[1]", -1.0, NAN, "fast", None])
def test_a_damaged_cache_is_measured_again(measured, tmp_path, content):
    assert kernels_name() == OTHERS[-1]
    [file] = (tmp_path / "cache").glob("kernels/*/" + module.FILE)
    file.unlink()
    if content is not None:
        all_of_it = json.dumps(dict.fromkeys(KERNELS, content))
        file.write_text(content if content in ("", "{}", "[1]") else all_of_it)
    module.seconds_of_kernels.cache_clear()
    assert kernels_name() == OTHERS[-1] and len(measured) == 2


def test_fp32_is_the_same_on_every_cpu(measured):
    assert cpu_kernels(torch.float32) is FP32 and not measured


def test_what_a_driver_decided_comes_first_and_ends_with_its_sweep(measured):
    with machine.settings_restored():
        machine.compute_as_decided(matrix_units=False, kernels=OTHERS[0])
        assert kernels_name() == OTHERS[0] == machine.versions()["kernels"] and not measured
    assert kernels_name() == OTHERS[-1] and "kernels" not in machine.versions()


@pytest.mark.parametrize("paths", ["usual", "off"])
def test_the_usual_paths_measure_nothing(measured, monkeypatch, paths):
    monkeypatch.setenv("RANKSWEEP_FAST_PATHS", paths)
    assert kernels_name() == usual_kernels() and not measured


@pytest.mark.skipif(not has_kernels(torch.bfloat16), reason="no bf16 kernels")
@pytest.mark.parametrize("usual", [torch.float32, torch.float64])
def test_a_measurement_moves_neither_threads_nor_the_random_stream(usual):
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_default_dtype(usual)
    try:
        seconds = measure(KERNELS)
    finally:
        torch.set_default_dtype(torch.float32)
    assert list(seconds) == list(KERNELS) and min(seconds.values()) > 0
    assert torch.get_num_threads() == threads and torch.equal(torch.get_rng_state(), state)
