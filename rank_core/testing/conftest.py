"""The backbone of the contract tests."""

from pathlib import Path

import pytest

from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import resolve_backbone
from rank_core.testing.laws import make_backbone


@pytest.fixture(scope="session")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    """A two-layer BERT with random weights."""
    folder: Path = tmp_path_factory.mktemp("backbone")
    make_backbone(folder)
    return resolve_backbone(str(folder))
