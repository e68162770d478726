"""`python -m sweeps prepare`: once, with a word at the end."""

import pytest

from rank_core.errors import BadInput
from sweeps.commands.prepare import main


def test_inputs_are_made_and_found_again(backbone_folder, collection_folder, capsys, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    words = ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]
    for _ in range(2):
        assert main([*words, "training.depth=5"]) == 0
        assert capsys.readouterr().out.startswith(f"prepared    {collection_folder} for")


def test_what_does_not_exist_is_refused_by_name(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(BadInput, match="does not exist"):
        main(["--collection", "/nowhere"])
    with pytest.raises(BadInput, match="a setting is written"):
        main(["depth"])
