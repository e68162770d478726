"""Commands of a sweep: what they refuse, and `sync`."""

import pytest

from sweeps.__main__ import main
from sweeps.store.lock import only_driver
from tests.sweeps.tracking.made_sweep import MadeSweep
from tests.sweeps.tracking.test_runs import runs_in


def test_an_unknown_command_is_refused_with_the_nearest_one(capsys):
    assert main(["raport", "x"]) == 2
    assert "did you mean report?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("window_stride", "use `ranksweep run window_stride`"),
        ("window-stride", "use `ranksweep run window_stride`"),
        ("model_zo", "did you mean `ranksweep run model_zoo`?"),
        ("plan", "use `ranksweep run SWEEP --dry-run`"),
        ("frobnicate", "command 'frobnicate'; `ranksweep --help` lists all"),
    ],
)
def test_an_unknown_command_that_is_a_sweep_or_nothing_near_says_so(word, hint, capsys):
    assert main([word]) == 2
    said = capsys.readouterr().err
    assert hint in said and "earest" not in said


PLACES = {
    "DIR/nowhere": "DIR/nowhere does not exist",
    "DIR": "sweep.json",
    "DIR/broken": "sweep.json",
    "memory://nobody/window_stride/woods": "nobody/window_stride/woods",
    "memory://sweep": "s3://bucket/path",
    "nosuch://bucket/x/sweep": "s3://bucket/path",
    "ftp://me:PASSWORD9@host/x/y": "ftp://",
}
"""{where no sweep is: what the message names}."""
COMMANDS = ["report", "status", "ui", "sync", "design --delta=.01", "derive", "export --to m"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", PLACES)
def test_a_place_without_a_sweep_is_refused_in_a_line(command, place, tmp_path, capsys):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sweep.json").write_text('{\n"sweep": "window_stride",\n')
    where, named = (text.replace("DIR", str(tmp_path)) for text in (place, PLACES[place]))
    assert main([*command.split(), where]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    assert named in err and "PASSWORD9" not in err


@pytest.mark.parametrize("command", ["verify", "doctor --collection"])
def test_no_message_has_the_password_of_a_uri(command, capsys):
    assert main([*command.split(), "ftp://me:PASSWORD9@host/x/y"]) == 2
    out, err = capsys.readouterr()
    assert "[redacted]@host" in err and "PASSWORD9" not in out + err


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
