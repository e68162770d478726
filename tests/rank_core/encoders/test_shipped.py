"""The defaults of the embedded backbones: results equal on every processor."""

import torch

from rank_core import machine
from rank_core.encoders.shipped import SETTINGS
from rank_core.machine import autocast_type
from rank_core.settings.config import TrialConfig


def test_matrix_units_do_not_change_the_example(monkeypatch) -> None:
    """Trials of the quickstart compute in fp32 also on a CPU where `auto` is bf16."""
    monkeypatch.setattr(machine, "matrix_units", lambda: True)
    own, cpu = TrialConfig().override(SETTINGS), torch.device("cpu")
    assert autocast_type(TrialConfig().training.precision, cpu) == torch.bfloat16
    assert autocast_type(own.training.precision, cpu) is None
