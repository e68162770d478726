"""A whole trial of `rankgpt` against the fake server."""

import pytest

from rank_core.data.trec import read_run
from rank_core.trial.trial import run_trial
from tests.rank_core.llm.server import PLANTED_KEY, chat_server


@pytest.fixture
def server():
    with chat_server() as running:
        # The list turned round, whatever it holds.
        running.rank = lambda query, passages: " > ".join(
            f"[{i}]" for i in range(len(passages), 0, -1)
        )
        yield running


@pytest.fixture
def trial(small_trial, server, monkeypatch, tmp_path):
    monkeypatch.setenv("CHAT_KEY", PLANTED_KEY)
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path / "cache"))
    return small_trial.override(
        {
            "model.name": "rankgpt",
            "chat.base_url": server.url,
            "chat.key_variable": "CHAT_KEY",
            "evaluation.depth": 5,
        }
    )


def test_a_trial_asks_once_per_query_and_replays_for_nothing(trial, server, tmp_path):
    candidates = None
    for name in ("first", "again"):
        *_, result = run_trial(trial, tmp_path / name)
        assert len(server.bodies) == 16  # 8 queries of dev and of test, lists shorter than a window
        assert result.status == "done" and 0 < result.test["nDCG@10"] < 1
    runs = [read_run(tmp_path / name / "test.run.gz") for name in ("first", "again")]
    assert runs[0] == runs[1]
    from rank_core.chunking.inputs import load_inputs

    collection = load_inputs(trial.collection, trial.model.backbone).collection
    candidates = collection.splits["test"].candidates
    assert {q: list(docs) for q, docs in runs[0].items()} == {
        q: list(docs)[:5][::-1] for q, docs in candidates.items()
    }
