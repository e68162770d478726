"""What `training.precision=auto` is on CPUs: decided by a sweep's first command for all others."""

import json

import pytest

from sweeps.launch import sweep
from sweeps.store.records import own_digest

WORDS = ("--smoke-test", "training.max_steps=2", "training.precision=auto")


def versions_of(ran):
    """The versions of all trials, without repeats."""
    results = [json.loads(p.read_text()) for p in (ran.storage / "trials").glob("*/result.json")]
    return {tuple(sorted(result["versions"].items())) for result in results}


def decided_in(ran):
    return json.loads((ran.folder / "sweep.json").read_text())["auto_precision"]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "later"), [("fp32", "bf16"), ("bf16", "fp32")])
def test_a_sweep_goes_on_as_it_began_on_any_machine(run_local, tmp_path, monkeypatch, first, later):
    monkeypatch.setattr(sweep, "suited_precision", lambda device: first)
    began = run_local(tmp_path, *WORDS, "--num-seeds", "1")
    monkeypatch.setattr(sweep, "suited_precision", lambda device: later)
    ended = run_local(tmp_path, *WORDS, "--num-seeds", "2")
    assert decided_in(began) == decided_in(ended) == {"cpu": first}
    [versions] = versions_of(ended)
    assert dict(versions).get("auto_precision", "fp32") == first


@pytest.mark.slow
def test_a_folder_of_0_4_goes_on_in_its_precision_without_its_kernels(
    run_local, tmp_path, monkeypatch
):
    began = run_local(tmp_path, *WORDS, "--num-seeds", "1")
    file = began.folder / "sweep.json"
    described = json.loads(file.read_text())
    del described["checksum"], described["auto_precision"]
    described["cpu"] = {"matrix_units": True, "kernels": "products 4096"}
    file.write_text(json.dumps(described | {"checksum": own_digest(described)}))
    monkeypatch.setattr(sweep, "suited_precision", lambda device: "fp32")
    ended = run_local(tmp_path, *WORDS, "--num-seeds", "1")
    assert "cpu" not in json.loads((ended.folder / "sweep.json").read_text())
    assert decided_in(ended) == {"cpu": "bf16"}
