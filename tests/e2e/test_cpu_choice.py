"""How CPUs compute is decided once for a sweep: by its first command, for all that follow."""

import json

import pytest

from rank_core.encoders.cpu_kernels import usual_kernels
from rank_core.encoders.cpu_layers import KERNELS
from sweeps.launch import cpu

WORDS = ("--smoke-test", "training.max_steps=2")
OTHER = next(name for name in KERNELS if name != usual_kernels())


def of_another_machine(monkeypatch):
    """A command on a machine with matrix units, where other kernels are the fastest."""
    monkeypatch.setattr(cpu, "kernels_name", lambda: OTHER)
    monkeypatch.setattr(cpu, "matrix_units", lambda: True)


def versions_of(ran):
    """The versions of all trials, without repeats."""
    results = [json.loads(p.read_text()) for p in (ran.storage / "trials").glob("*/result.json")]
    return {tuple(sorted(result["versions"].items())) for result in results}


def cpu_of(ran):
    return json.loads((ran.folder / "sweep.json").read_text())["cpu"]


@pytest.mark.slow
@pytest.mark.parametrize("precision, kernels", [("bf16", usual_kernels()), ("auto", "")])
def test_a_sweep_goes_on_as_it_began_on_any_machine(
    run_local, tmp_path, monkeypatch, precision, kernels
):
    monkeypatch.setattr(cpu, "kernels_name", usual_kernels)
    monkeypatch.setattr(cpu, "matrix_units", lambda: False)
    words = (*WORDS, f"training.precision={precision}")
    began = run_local(tmp_path, *words, "--num-seeds", "1")
    of_another_machine(monkeypatch)
    ended = run_local(tmp_path, *words, "--num-seeds", "2")
    assert cpu_of(began) == cpu_of(ended) == {"matrix_units": False, "kernels": kernels}
    [versions] = versions_of(ended)
    assert dict(versions).get("kernels", "") == kernels and "auto_precision" not in dict(versions)


@pytest.mark.slow
def test_a_sweep_takes_what_suits_its_first_machine(run_local, tmp_path, monkeypatch):
    of_another_machine(monkeypatch)
    ran = run_local(tmp_path, *WORDS, "--num-seeds", "1", "training.precision=auto")
    [versions] = versions_of(ran)
    assert cpu_of(ran) == {"matrix_units": True, "kernels": OTHER}
    assert dict(versions)["kernels"] == OTHER and dict(versions)["auto_precision"] == "bf16"
