"""What a query costs: counted tokens, measured time, and the table beside the measure."""

import csv
import io
from pathlib import Path

import pytest

from rank_core.chunking.inputs import load_inputs
from rank_core.errors import BadInput
from rank_core.ranking.scorer import evaluated_queries
from rank_core.settings.config import TrialConfig
from sweeps.__main__ import main
from sweeps.commands import latency as command
from sweeps.forecast import latency
from sweeps.forecast.forecast import scorer_of
from sweeps.forecast.latency import Latency
from sweeps.store.sweep_file import find_sweep
from sweeps.systems.load import load_sweep, trial_config
from tests.e2e.conftest import run_local

__all__ = ["run_local"]


def test_percentiles_and_means_are_those_of_the_queries():
    found = Latency(tuple(map(float, range(1, 101))), (10,) * 99 + (60,), 5000, 7, "cpu")
    assert found.ms_per_query == pytest.approx((50.5, 95.05))
    assert found.ms_per_document == 5050 / 1050 and found.tokens_per_query == 50


@pytest.mark.slow
def test_tokens_are_those_of_the_ranked_candidates_and_repetitions_count_once(
    collection_folder, backbone_folder
):
    config = TrialConfig(str(collection_folder)).override(
        {
            "model.name": "maxp",
            "model.backbone": str(backbone_folder),
            "chunking.window": 40,
            "chunking.stride": 20,
            "evaluation.depth": 3,
        }
    )
    found = latency._measured(config.settings(), queries=2, repeats=3, threads=1)
    inputs = load_inputs(config.collection, config.model.backbone)
    scorer = scorer_of(config, inputs)
    asked = evaluated_queries(inputs.collection, "test", config.evaluation)[:2]
    by_hand = 0
    for query_id in asked:
        tokens = inputs.query_tokens("test")[query_id][: config.chunking.max_query_tokens]
        listed = list(inputs.collection.splits["test"].candidates[query_id])[:3]
        by_hand += sum(len(c) for doc_id in listed for c in scorer.pairs.chunks(tokens, doc_id))
    assert found.tokens == by_hand and found.documents == (3, 3)
    assert len(found.milliseconds) == 2 and min(found.milliseconds) > 0
    assert found.peak_bytes > 1 << 20


@pytest.fixture(scope="module")
def swept(run_local, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("latency")
    words = ("--num-seeds", "1", "--tracking-uri", "none", "training.max_steps=1",
             "chunking.window=40", "chunking.stride=20")  # fmt: skip
    return run_local(place / "r", *words).folder


@pytest.mark.slow
def test_the_command_writes_a_row_for_each_system_beside_its_measure(swept, monkeypatch, capsys):
    given: list[TrialConfig] = []

    def measured(config: TrialConfig, **asked: int) -> Latency:
        given.append(config)
        assert asked == {"queries": 4, "repeats": 2, "threads": 1}
        return Latency((1.0, 3.0, 100.0), (10, 10, 5), 600, 50 << 20, "cpu")

    monkeypatch.setattr(latency, "measured", measured)
    words = ["--queries", "4", "--repeats", "2", "--cpus-per-worker", "1"]
    assert main(["latency", str(swept), *words]) == 0
    sweep = load_sweep(swept)
    expected = [trial_config(sweep.stored, f"{cell.cell}-seed1") for cell in sweep.cells]
    assert given == expected
    rows = list(csv.DictReader(io.StringIO((swept / "report" / "latency.csv").read_text())))
    assert [row["label"] for row in rows] == [cell.label for cell in sweep.cells]
    primary = sweep.scores[sweep.scores["measure"] == sweep.primary]
    for row in rows:
        own = primary.loc[primary["cell"] == row["cell"], "value"].mean()
        assert float(row["mean"]) == pytest.approx(own)
        assert float(row["ms_per_query_p50"]) == 3 and float(row["ms_per_document"]) == 104 / 25
        assert float(row["tokens_per_query"]) == 200
    printed = capsys.readouterr().out
    assert "ms/document" in printed and "3 test queries of 10 candidates at most" in printed
    assert "| system |" in (swept / "report" / "latency.md").read_text()
    assert find_sweep(str(swept)).folder == swept


@pytest.mark.parametrize("flag", ["--queries", "--repeats", "--cpus-per-worker"])
def test_counts_below_one_are_refused(flag, tmp_path):
    with pytest.raises(BadInput, match=f"{flag} >= 1 must hold, got 0"):
        command.main([str(tmp_path), flag, "0"])
