"""What a trial keeps of the blocks that its model selects."""

import json

from rank_core.data.trec import read_run
from rank_core.models.kept_files import SELECTED_BLOCKS
from rank_core.models.ranking_system import BlocksRead
from rank_core.ranking.selected_blocks import counted
from rank_core.trial.trial import run_trial

KEYB = {
    "model.name": "keyb-parade",
    "model.k": 1,
    "chunking.stride": 40,
    "training.max_steps": 1,
    "evaluation.depth": 5,
    "evaluation.max_test_queries": 6,
    "evaluation.max_dev_queries": 3,
}
KEEP = {"evaluation.keep_selected_blocks": True}


def test_documents_are_counted_by_their_number_of_blocks():
    read = [((0, 1), 4), ((1, 3), 4), ((0,), 1), ((2,), 3), ((0, 1), 2)]
    assert counted(BlocksRead(*one) for one in read) == {
        "whole": 2,
        "blocks": {
            "3": {"documents": 1, "read": [0, 0, 1]},
            "4": {"documents": 2, "read": [1, 2, 0, 1]},
        },
    }


def test_keeping_selected_blocks_changes_no_number(small_trial, tmp_path):
    plain, keeping = small_trial.override(KEYB), small_trial.override(KEYB | KEEP)
    *_, without = run_trial(plain, tmp_path / "plain")
    *_, result = run_trial(keeping, tmp_path / "kept")
    numbers = ("cell", "dev", "test", "encoder_tokens")
    assert [getattr(without, n) for n in numbers] == [getattr(result, n) for n in numbers]
    assert not (tmp_path / "plain" / SELECTED_BLOCKS).exists()
    content = json.loads((tmp_path / "kept" / SELECTED_BLOCKS).read_text())
    documents = sum(own["documents"] for own in content["blocks"].values())
    ranked = sum(map(len, read_run(tmp_path / "kept" / "test.run.gz").values()))
    assert documents > 0 and content["whole"] + documents == ranked


def test_every_fold_keeps_its_selected_blocks(small_trial, tmp_path):
    *_, _ = run_trial(small_trial.override(KEYB | KEEP | {"evaluation.folds": 3}), tmp_path)
    content = json.loads((tmp_path / SELECTED_BLOCKS).read_text())
    assert [*content] == ["fold1", "fold2", "fold3"]
    assert all(own["whole"] or own["blocks"] for own in content.values())


def test_models_that_select_nothing_keep_nothing(small_trial, tmp_path):
    few = {name: KEYB[name] for name in KEYB if name not in ("model.name", "model.k")}
    *_, _ = run_trial(small_trial.override(few | KEEP), tmp_path)
    assert not (tmp_path / SELECTED_BLOCKS).exists()
