"""`python -m sweeps`: what it refuses; what it does is seen where a sweep has run."""

import pytest

from sweeps.__main__ import main
from sweeps.store.driver import only_driver
from tests.sweeps.tracking.made_sweep import MadeSweep
from tests.sweeps.tracking.test_runs import runs_in

OF_A_SWEEP = ("report", "design", "ui", "sync")
REQUIRED = {"design": ["--delta", "0.01"]}  # flags that a command does not work without


def test_an_unknown_command_is_refused_with_the_nearest_one(capsys):
    assert main(["raport", "x"]) == 2
    assert "did you mean report?" in capsys.readouterr().err


@pytest.mark.parametrize("command", OF_A_SWEEP)
@pytest.mark.parametrize("content", [None, '{\n"sweep": "window_stride",\n'])
def test_a_folder_without_a_whole_description_is_refused(command, content, tmp_path, capsys):
    if content:
        (tmp_path / "sweep.json").write_text(content)
    assert main([command, str(tmp_path), *REQUIRED.get(command, [])]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ") and "sweep.json" in message and str(tmp_path) in message


@pytest.mark.parametrize(
    "facts, named",
    [
        ({"experiment": ""}, "experiment"),
        ({"tracking_uri": "none"}, "none"),
        ({"tracking_uri": "mlruns"}, "sqlite:///"),
        ({"tracking_uri": "postgresql://[redacted]@db/mlflow"}, "--tracking-uri"),
    ],
)
@pytest.mark.parametrize("command", ["ui", "sync"])
def test_a_sweep_without_a_place_in_mlflow_is_refused(command, facts, named, tmp_path, capsys):
    sweep = MadeSweep(tmp_path, **facts)
    assert main([command, sweep.records.uri]) == 2
    assert named in capsys.readouterr().err


def test_sync_leaves_a_driven_sweep_to_its_driver(tmp_path, capsys):
    sweep = MadeSweep(tmp_path)
    with only_driver(sweep.reader):
        assert main(["sync", sweep.records.uri]) == 2
    assert "driven by" in capsys.readouterr().err


@pytest.mark.slow
def test_sync_sends_the_results_as_well(tmp_path, capsys):
    sweep = MadeSweep(tmp_path)
    sweep.whole("c1-seed1", "c2-seed1")
    sweep.records.write_file("report/results.json", b'{"conclusions": ["Yes."]}')
    uri = f"sqlite:///{tmp_path / 'results' / 'mlflow.db'}"
    for number in (2, 0):
        assert main(["sync", sweep.records.uri]) == 0
        assert capsys.readouterr().out == f"{number} runs sent to {uri}\n"
    assert set(runs_in(uri)) == {"FirstP 48 #1", "MaxP 48/32 #1", "report"}
