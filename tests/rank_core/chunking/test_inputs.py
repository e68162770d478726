"""A cell's name depends on the contents of everything that its trials read, and on no path."""

import shutil
from pathlib import Path

import pytest

from rank_core.chunking.inputs import FURTHER_ENCODERS, cell_of, load_inputs
from rank_core.settings.config import TrialConfig, setting_types

FILES = {
    "training.teacher": {"training.loss": "margin-mse"},
    "training.negatives_from": {},
    "training.init_from": {},
    "evaluation.folds_file": {"evaluation.folds": 3},
}
"""{setting that names a file: what else it needs}."""
ENCODERS = {
    "model.aggregator": {"model.name": "parade-transformer-pretrained"},
    "model.interaction": {"model.name": "parade-late-interaction"},
    "model.selector_backbone": {"model.name": "keyb", "model.selector": "learned-separate"},
}
"""{setting that names a checkpoint: what else it needs}."""


def cell(config: TrialConfig) -> str:
    return cell_of(config, load_inputs(config.collection, config.model.backbone))


def named(config: TrialConfig, setting: str, path: Path) -> TrialConfig:
    value = (str(path),) if setting == "training.negatives_from" else str(path)
    return config.override({**FILES, **ENCODERS}[setting] | {setting: value})


@pytest.mark.parametrize("setting", FILES)
def test_another_content_of_a_file_names_another_cell_and_another_path_does_not(
    setting: str, small_trial: TrialConfig, tmp_path: Path
) -> None:
    for name, text in (
        ("a", "q Q0 d 1 2.0 t\n"),
        ("same", "q Q0 d 1 2.0 t\n"),
        ("b", "q Q0 e 1 1.0 t\n"),
    ):
        (tmp_path / name).write_text(text)
    here, there, other = (
        cell(named(small_trial, setting, tmp_path / n)) for n in ("a", "same", "b")
    )
    assert here == there != other
    (tmp_path / "a").write_text("q Q0 e 1 1.0 t\n")  # a new teacher under the old name
    assert cell(named(small_trial, setting, tmp_path / "a")) == other


@pytest.mark.parametrize("setting", ENCODERS)
def test_another_checkpoint_names_another_cell_and_another_path_does_not(
    setting: str,
    small_trial: TrialConfig,
    backbone_folder: Path,
    reranker_folder: Path,
    tmp_path: Path,
) -> None:
    copy = shutil.copytree(backbone_folder, tmp_path / "copy")
    here, there, other = (
        cell(named(small_trial, setting, path)) for path in (backbone_folder, copy, reranker_folder)
    )
    assert here == there != other


def test_every_setting_that_names_something_to_read_is_above() -> None:
    """A new setting of this kind needs a line above and one in `content_hashes`."""
    read = {"collection", "model.backbone", *FILES, *ENCODERS}
    assert {f"model.{name}" for name in FURTHER_ENCODERS} == {*ENCODERS}
    words = (
        "teacher",
        "_from",
        "backbone",
        "aggregator",
        "interaction",
        "collection",
        "file",
        "path",
    )
    types = setting_types()
    found = {
        name
        for name, kind in types.items()
        if kind in (str, tuple[str, ...]) and any(word in name.rpartition(".")[2] for word in words)
    }
    assert found == read


def test_files_that_change_within_a_process_are_read_again(
    small_trial: TrialConfig, tmp_path: Path
) -> None:
    """As in a notebook, whose user edits a judgment, or trains an encoder on in its folder."""
    places = {"collection": tmp_path / "data", "model.backbone": tmp_path / "encoder"}
    for setting, place in places.items():
        shutil.copytree(str(small_trial.settings()[setting]), place)
    config = small_trial.override({setting: str(place) for setting, place in places.items()})
    names = [cell(config)]
    qrels, weights = tmp_path / "data/test/qrels.trec", tmp_path / "encoder/model.safetensors"
    qrels.write_text(qrels.read_text().replace(" 1\n", " 2\n", 1))
    names.append(cell(config))
    content = bytearray(weights.read_bytes())
    content[-4] ^= 1  # the last digit of a weight
    weights.write_bytes(content)
    names.append(cell(config))
    assert len({*names}) == 3 and cell(config) == names[2]
