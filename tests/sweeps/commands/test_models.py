"""`ranksweep models`: what a profile sets, beside its reference."""

import json

import pytest

from rank_core.errors import BadInput
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


@pytest.mark.parametrize("name", ["", *sorted(PROFILES)])
def test_80_columns_are_enough(name, backbone_folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--profile", name] if name else ["--backbone", str(backbone_folder)]) == 0
    lines = capsys.readouterr().out.replace(str(backbone_folder), "bert").splitlines()
    assert [line for line in lines if len(line) > 80 and " " in line.strip("* ")] == []


def test_a_profile_as_json_has_the_same_facts(capsys):
    assert main(["--profile", "keyb2022", "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert stated["settings"]["chunking.max_document_tokens"][0] == 100_000
    assert stated["of_models"]["keyb-parade"]["chunking.window"][0] == 225


def test_an_unknown_profile_is_refused():
    with pytest.raises(BadInput, match="unknown profile 'cedr'; did you mean cedr2019"):
        main(["--profile", "cedr"])
