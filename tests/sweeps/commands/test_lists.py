"""Lists of names, docs/settings.md and what an unknown name is answered with."""

import re
from pathlib import Path

import pytest

from docs.tools.commands_page import commands_page
from rank_core.errors import BadInput
from rank_core.evaluate import parse_measure
from rank_core.models import MODELS, model_class, paper_of
from rank_core.settings.config import declared_settings, setting_aliases, setting_type
from sweeps.__main__ import main
from sweeps.commands.lists import settings_page
from sweeps.commands.models import models_page, papers
from sweeps.plan.options import parse
from sweeps.plan.profiles import PROFILES

ROOT = Path(__file__).parents[3]


def test_docs_settings_md_is_that_of_the_declarations():
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert text == settings_page(), "run `make docs`"
    assert all(f"| `{one.name}` |" in text for one in declared_settings())


def test_docs_commands_md_is_that_of_the_parsers():
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert text == commands_page(), "run `make docs`"


def test_docs_models_md_is_that_of_the_models():
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert text == models_page(), "run `make docs`"
    assert {paper_of(model_class(name)) for name in MODELS} <= {*papers()}
    assert all(f"| `{name}` |" in text for name in MODELS)


def entries(text: str) -> dict[str, str]:
    """{name: its text}; a line that begins with a space goes on with the one before."""
    names = re.sub(r"\n +", " ", text).splitlines()
    return {line.split()[0]: line for line in names}


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        ("settings", "training.warmup", "warmup_ratio"),
        ("collections", "beir-scifact", "ir:beir/scifact/test"),
        ("sweeps", "window_stride", "Which window and stride"),
        ("measures", "nDCG", "cutoff"),
        ("measures", "RR", "MRR"),
    ],
)
def test_a_list_has_a_line_for_each_name_and_is_cut_to_those_with_a_word(
    command, name, words, capsys
):
    assert words in entries(listed(capsys, command))[name]
    assert words in entries(listed(capsys, command, name))[name]
    assert main([command, "nosuch"]) == 2


def flag(name):
    parse([name], prog="window_stride.py", description="")


RATES = "training.backbone_learning_rate and training.head_learning_rate"
ANSWERS = {
    setting_type: {
        "training.learning_rate": RATES,
        "num_train_epochs": "training.num_epochs",
        "doc_stride": "chunking.stride",
    },
    flag: {
        "--dryrun": "--dry-run",
        "--learning-rate": "training.backbone_learning_rate=",
        "--batch-size=8": "training.batch_size=",
    },
    parse_measure: {"ndcg_cut.10": "nDCG@10", "mrr@10": "RR@10", "map": "AP", "P_5": "P@5"},
}
"""{what refuses a name: {name of another tool, or mistyped: ours}}."""


@pytest.mark.parametrize(
    ("refuse", "name", "meant"),
    [(refuse, *pair) for refuse, names in ANSWERS.items() for pair in names.items()],
)
def test_a_name_of_another_tool_is_answered_with_ours(refuse, name, meant):
    with pytest.raises(BadInput) as error:
        refuse(name)
    assert repr(name) in str(error.value) and meant in str(error.value)[:120]


def test_what_hugging_face_calls_a_setting_is_no_name_of_ours_for_another():
    ours = {one.name.rpartition(".")[2]: one.name for one in declared_settings()}
    wrong = {
        alias: (names, ours[alias])
        for alias, names in setting_aliases().items()
        if alias in ours and ours[alias] not in names and alias != "model"  # chat.model
    }
    assert wrong == {}


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_profile_is_printed_beside_its_reference(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    text, stated = listed(capsys, "models", "--profile", name), PROFILES[name]
    for settings in (stated.settings, *stated.of_models.values()):
        for setting, (value, words) in settings.items():
            [line, *_] = [line for line in text.splitlines() if line.startswith(f"{setting} ")]
            assert words in text and (isinstance(value, tuple) or str(value) in text), line
    for sentence in (*stated.not_the_same, *stated.by_hand):
        assert f"* {sentence}" in text.splitlines()
    assert ("Not the same:" in text) == (name != "clean")
    for model, quirks in stated.quirks.items():
        assert f"{model} {','.join(quirks)}" in " ".join(text.split())
