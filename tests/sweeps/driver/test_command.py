"""From what ends a sweep to an exit code and a sentence."""

from sweeps.driver import sweep
from sweeps.driver.command import ENGINE_LOST, main
from sweeps.engine import EngineLost
from sweeps.window_stride import EXPERIMENT


def test_an_engine_that_is_lost_ends_the_command_with_a_sentence(monkeypatch, capsys):
    def run_sweep(*args):
        raise EngineLost("Ray has died on this machine again")

    monkeypatch.setattr(sweep, "run_sweep", run_sweep)
    assert main(EXPERIMENT, [], doc=None) == ENGINE_LOST == 1
    assert capsys.readouterr().err == (
        "error: Ray has died on this machine again. Nothing is lost: the same command resumes\n"
    )
