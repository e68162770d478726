"""Derived runs equal scoring again with the other settings and the same weights."""

import shutil

import pytest

from rank_core.checkpoints.weights import WEIGHTS
from rank_core.data.trec import read_run
from rank_core.errors import BadInput
from rank_core.models.kept_files import CHUNK_SCORES
from rank_core.ranking.chunk_scores import derived_config, derived_run, read_chunks
from rank_core.trial.trial import TrialResult, run_trial

DEV, TEST = 3, 4  # queries
KEEP = {"evaluation.keep_chunk_scores": True, "training.keep_weights": "all"}
OTHERS = [
    {"model.name": "maxp"},
    {"model.name": "avgp"},
    {"model.name": "kmax-avgp", "model.k": 2},
    {"model.name": "kmax-avgp"},
    {"model.name": "firstp", "chunking.stride": 40},
    {"chunking.max_chunks": 3},
    {"chunking.max_chunks": 2, "model.name": "avgp"},
]


def finish(config, folder):
    *_, result = run_trial(config, folder)
    assert isinstance(result, TrialResult)
    return result


@pytest.fixture(scope="module")
def small(small_trial):
    """Four chunks to a window."""
    few = {"evaluation.max_dev_queries": DEV, "evaluation.max_test_queries": TEST}
    return small_trial.override({"chunking.stride": 10} | few)


@pytest.fixture(scope="module")
def kept(small, tmp_path_factory):
    """(configuration, folder, result) of a MaxP trial that kept its chunk scores and weights."""
    folder = tmp_path_factory.mktemp("trials") / "kept"
    config = small.override(KEEP)
    return config, folder, finish(config, folder)


def assert_equals_scoring_again(config, folder, workdir):
    """The derived runs of a kept trial against a trial that starts from its weights and ends."""
    again = config.override(
        {
            "training.init_from": str(folder),
            "training.num_epochs": 0,
            "training.keep_weights": "none",
            "evaluation.keep_chunk_scores": False,
        }
    )
    finish(again, workdir)
    assert (folder / WEIGHTS).is_file() and not (workdir / WEIGHTS).exists()
    for split in ("dev", "test"):
        derived = derived_run(read_chunks(folder, split), config)
        scored = read_run(workdir / f"{split}.run.gz")
        assert derived.keys() == scored.keys()
        for query_id, scores in scored.items():
            assert list(derived[query_id]) == list(scores)
            assert derived[query_id] == pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize("settings", OTHERS, ids=str)
def test_derived_runs_equal_scoring_again_with_the_same_weights(kept, settings, tmp_path):
    trained, folder, _ = kept
    config = derived_config(trained, settings)
    assert config != trained or settings == {"model.name": "maxp"}
    assert_equals_scoring_again(config, folder, tmp_path)


def test_probabilities_equal_scoring_again_as_well(small, tmp_path):
    pooled = {"model.name": "sump", "model.chunk_scores": "probability"}
    trained = small.override(KEEP | pooled | {"training.unit": "passage"})
    finish(trained, tmp_path / "kept")
    config = derived_config(trained, {"model.name": "avgp"})
    assert config.model.chunk_scores == "probability"
    assert_equals_scoring_again(config, tmp_path / "kept", tmp_path / "again")


def test_keeping_chunk_scores_changes_no_number(kept, small, tmp_path):
    _, folder, result = kept
    plain = finish(small, tmp_path)
    numbers = ("cell", "status", "best_step", "dev", "test", "encoder_tokens", "ties")
    assert [getattr(plain, n) for n in numbers] == [getattr(result, n) for n in numbers]
    assert read_run(tmp_path / "test.run.gz") == read_run(folder / "test.run.gz")
    assert (folder / CHUNK_SCORES).is_file() and not (tmp_path / CHUNK_SCORES).exists()


def test_k_stays_the_trials_own_until_another_aggregation_is_named(kept):
    of_five = kept[0].override({"model.name": "kmax-avgp", "model.k": 5})
    assert derived_config(of_five, {"chunking.max_chunks": 2}).model.k == 5
    assert derived_config(of_five, {"model.name": "maxp"}).model.k == 0


def test_only_kept_chunks_can_be_derived(kept, small, tmp_path):
    _, folder, _ = kept
    cut = small.override({"chunking.max_chunks": 2, **KEEP})
    finish(cut, tmp_path / "cut")
    chunks = read_chunks(tmp_path / "cut", "test")
    with pytest.raises(BadInput, match=r"such as tokens 20 to \d+ of d\d+"):
        derived_run(chunks, derived_config(cut, {"chunking.max_chunks": 3}))
    shutil.copytree(folder, tmp_path / "bare", ignore=shutil.ignore_patterns(CHUNK_SCORES))
    with pytest.raises(BadInput, match=r"chunk_scores.* is missing.*keep_chunk_scores=true"):
        read_chunks(tmp_path / "bare", "test")
