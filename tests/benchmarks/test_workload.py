"""What speed benchmarks say of the machine, and that they compute as trials do."""

import pytest
import torch

from rank_core.encoders.cpu.packed_linear import has_kernels
from tests.benchmarks import workload


def test_figures_name_the_processor_its_instructions_and_threads():
    machine = workload.machine()
    assert {"cpu", "cores", "instructions", "threads", "torch"} <= set(machine)
    assert machine["threads"] == "1"


def test_shares_are_of_both_rates_and_name_them(monkeypatch, capsys):
    monkeypatch.setattr(workload, "matrix_rate", lambda *_: 100e9)
    monkeypatch.setattr(
        workload, "packed_rate", lambda dtype, _: 200e9 if dtype.itemsize == 2 else None
    )
    assert workload.shares(50e9, torch.bfloat16, 1) == {
        "of the matrix rate": "50%",
        "of the packed rate": "25%",
    }
    assert workload.shares(50e9, torch.float32, 1)["of the packed rate"] == ""
    workload.print_rates(1)
    assert capsys.readouterr().out.splitlines() == [
        "matrix rate float32: 100 GFLOP/s",
        "matrix rate bfloat16: 100 GFLOP/s, packed 200",
    ]


@pytest.mark.skipif(not has_kernels(torch.float32), reason="no kernels of oneDNN")
def test_the_packed_rate_is_that_of_a_product(monkeypatch):
    monkeypatch.setattr(workload, "PRODUCT", (64, 32, 16))
    assert 1e6 < workload.packed_rate.__wrapped__(torch.float32, 1) < 1e14
    assert workload.packed_rate(torch.float64, 1) is None


def test_a_benchmark_computes_as_a_trial_does(collection_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    try:
        workload.workload(str(collection_folder), "tiny")
        assert torch.get_deterministic_debug_mode() == 1  # warn
        assert not torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.set_deterministic_debug_mode(before)
