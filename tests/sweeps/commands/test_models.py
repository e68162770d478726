"""`ranksweep models`: what a profile sets, beside its reference."""

import pytest

from sweeps.commands.models import main
from sweeps.plan.profiles import PROFILES


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_profile_is_printed_beside_its_reference(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["--profile", name]) == 0
    text, stated = capsys.readouterr().out, PROFILES[name]
    for settings in (stated.settings, *stated.of_models.values()):
        for setting, (value, words) in settings.items():
            [line, *_] = [line for line in text.splitlines() if line.startswith(f"{setting} ")]
            assert words in text and (isinstance(value, tuple) or str(value) in text), line
    for sentence in (*stated.not_the_same, *stated.by_hand):
        assert f"* {sentence}" in text.splitlines()
    assert ("Not the same:" in text) == (name != "clean")
    for model, quirks in stated.quirks.items():
        assert f"{model} {','.join(quirks)}" in " ".join(text.split())
