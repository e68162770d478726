"""The headline: the choice, its simultaneous interval, its cost, what a cheaper one may lose."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeps.findings.analysis import Analysis, analyse
from sweeps.report.headline import MOST_WORDS, SMOKE_TEST, called, cost_text, headline
from sweeps.systems.choice import with_rows
from sweeps.systems.chunk_sizes import IndexFacts
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from sweeps.terminal.notation import number, signed
from tests.golden.cases import CASES
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

SWEEPS = ("quickstart", "confirmation", "race_with_eliminated", "damaged", "serving", "derive")
"""Cases that are the folder of one sweep."""


def analysed(folder: Path, **changes: Any) -> Analysis:
    return analyse(with_interpolated(load_sweep(write_ranked_sweep(folder, **changes))))


def renamed(found: Analysis, name: Callable[[str], str]) -> Analysis:
    """The analysis with other labels of its cells and its first stage."""
    cells = tuple(replace(cell, label=name(cell.label)) for cell in found.sweep.cells)
    collection = found.sweep.about.collection | {"first_stage": name("BM25")}
    about = replace(found.sweep.about, collection=collection)
    return replace(found, sweep=replace(found.sweep, cells=cells, about=about))


@pytest.fixture(scope="module", params=SWEEPS)
def analysis(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("headline") / request.param
    return analyse(with_interpolated(load_sweep(CASES[request.param].make(folder))))


def test_the_first_sentence_has_at_most_25_words_whatever_the_names(analysis: Analysis) -> None:
    for times in (1, 4, 30):
        said = headline(renamed(analysis, lambda label, n=times: " ".join([label] * n)))
        assert said.sentence.endswith(".")
        assert 0 < len(said.sentence.split()) <= MOST_WORDS == 25
        assert times > 1 or "…" not in said.sentence


def test_it_names_the_choice_with_the_interval_of_all_at_once(analysis: Analysis) -> None:
    said, choice = headline(analysis), analysis.choice
    assert choice and said.system == choice.system
    if (test := analysis.chosen) and said.p == said.p:
        assert (said.gain_low, said.gain_high) == (test.in_family.ci_low, test.in_family.ci_high)
        assert said.p == test.p_both_adjusted
        ends = f"[{number(test.in_family.ci_low)}, {number(test.in_family.ci_high)}]"
        two_runs = test.fewest_seeds == 2
        assert two_runs or f"{signed(test.delta)} {ends}" in said.sentence.replace("too wide", ends)
        assert said.text.count("[") <= 1, "one interval of one number"


def test_a_smoke_test_answers_nothing(tmp_path: Path) -> None:
    found = analysed(tmp_path, strengths=(0.4, 3.0))
    about = replace(found.sweep.about, smoke_test=True)
    said = headline(replace(found, sweep=replace(found.sweep, about=about)))
    assert (said.text, said.system) == (SMOKE_TEST, "")


def test_a_better_choice_is_used_and_its_model_alone_has_a_value(tmp_path: Path) -> None:
    found = analysed(tmp_path, strengths=(0.4, 3.0), num_queries=60)
    said = headline(found)
    assert said.significant and said.sentence.startswith("Use MaxP 40/20 with BM25: nDCG@10 ")
    assert " over BM25, p " in said.sentence
    [alone] = [row for row in found.cells if row.label == "MaxP 40/20"]
    assert said.mean_alone == alone.mean("nDCG@10") != said.mean
    assert f"Without the scores of BM25 it has {said.mean_alone:.3f}." in said.more
    assert cost_text(said) == ""  # nothing is known of it


def test_a_choice_that_is_not_shown_to_be_better_is_the_choice(tmp_path: Path) -> None:
    said = headline(analysed(tmp_path, strengths=(0.9, 1.2), num_queries=12))
    assert said.system and not said.significant
    assert ", not shown to be better than BM25: " in said.sentence


def test_the_first_stage_may_be_the_choice(tmp_path: Path) -> None:
    found = analysed(tmp_path, strengths=(0.02, 0.02), num_queries=60)
    first = replace(found.sweep.first_stage, dev={1: 0.999})
    said = headline(replace(found, sweep=with_rows(replace(found.sweep, first_stage=first), "")))
    assert said.system == "first_stage" and said.gain is None
    assert said.text.startswith("Keep BM25 (nDCG@10 0.")


def test_a_choice_that_is_worse_on_test_is_said_to_be(tmp_path: Path) -> None:
    found = analysed(tmp_path, strengths=(0.02, 0.02), num_queries=60)
    sweep = replace(found.sweep, mixed=(), interpolated=(), first_stage=replace(
        found.sweep.first_stage, dev={1: 0.0}))  # fmt: skip
    said = headline(analyse(sweep))
    assert said.significant and said.gain is not None and said.gain < 0
    assert ", on test worse than BM25: −" in said.sentence


def with_margin(found: Analysis, margin: float) -> Analysis:
    about = replace(found.sweep.about, tests=replace(found.sweep.tests, margin=margin))
    return replace(found, sweep=replace(found.sweep, about=about))


def costing(found: Analysis, *tokens: float) -> Analysis:
    cells = [
        replace(cell, encoder_tokens_per_document=count)
        for cell, count in zip(found.sweep.cells, tokens, strict=True)
    ]
    return replace(found, sweep=replace(found.sweep, cells=tuple(cells)))


def test_a_cheaper_system_is_named_with_the_limit_of_what_it_may_lose(tmp_path: Path) -> None:
    found = with_margin(analysed(tmp_path, strengths=(2.9, 3.0), num_queries=60), 0.0001)
    choice = found.choice
    assert choice
    dearer = [cell.cell for cell in found.sweep.cells].index(choice.cell)
    tokens = [100.0 if at == dearer else 80.0 for at in range(2)]
    said = headline(costing(found, *tokens))
    assert said.system == choice.system and said.cost == 100.0
    assert said.cheaper.startswith(found.sweep.cells[1 - dearer].cell) and said.cheaper_loses
    [sentence] = [text for text in said.more if "fewer tokens" in text]
    assert f"reads 20% fewer tokens and may be up to {said.cheaper_loses:.3f} worse" in sentence
    assert cost_text(said) == "It reads 100 encoder tokens per document."
    near = headline(costing(with_margin(found, said.cheaper_loses), *tokens))
    assert any(f"is at most {near.cheaper_loses:.3f} worse" in text for text in near.more)
    equal = headline(costing(found, 80.0, 80.0))
    assert not equal.cheaper and "fewer tokens" not in equal.text
    values = found.row_scores.tested["nDCG@10"].scores
    for name in values:  # without a difference there is no interval
        values[name] = values[choice.system]
    same = headline(costing(found, *tokens))
    assert not same.cheaper and "nan" not in same.text


@pytest.mark.parametrize(("seeds", "needs"), [(1, "two more seeds"), (2, "one more seed")])
def test_the_highest_mean_of_too_few_runs_is_named_and_decides_nothing(
    seeds: int, needs: str, tmp_path: Path
) -> None:
    found = load_sweep(write_ranked_sweep(tmp_path, first_stage=False, seeds=(1, 2, 3)))
    few = replace(
        found,
        scores=found.scores[found.scores["seed"] <= seeds],
        dev_scores=found.dev_scores[found.dev_scores["seed"] <= seeds],
        trials=found.trials[found.trials["seed"] <= seeds],
    )
    said = headline(analyse(few))
    assert said.sentence.startswith("MaxP 40/20 has the highest nDCG@10 on dev, but ")
    assert not said.significant and f"It needs {needs}." in said.more


def test_diverged_runs_stand_in_the_headline(tmp_path: Path) -> None:
    found = load_sweep(write_ranked_sweep(tmp_path, first_stage=False, strengths=(0.4, 3.0)))
    lost = (found.trials["seed"] == 2) & (found.trials["cell"] == found.cells[1].cell)
    kept = ~((found.scores["seed"] == 2) & (found.scores["cell"] == found.cells[1].cell))
    out = replace(
        found,
        trials=found.trials.assign(status=found.trials["status"].mask(lost, "diverged")),
        scores=found.scores[kept],
    )
    said = headline(analyse(out))
    assert said.system == found.cells[0].cell
    assert "Out, because runs diverged: MaxP 40/20 (1 of 3)." in said.more


def test_a_serving_sweep_costs_the_tokens_of_a_query(tmp_path: Path) -> None:
    found = analyse(with_interpolated(load_sweep(CASES["serving"].make(tmp_path / "serving"))))
    said = headline(found)
    assert found.sweep.serving and found.sweep.serving.file == "serving.json"
    tokens = {str(row["label"]): row["tokens_per_query"] for row in found.sweep.serving.rows}
    assert said.cost == tokens[found.sweep.label(said.system)]
    assert "encoder tokens and takes" in cost_text(said)
    setting = found.sweep.serving.setting
    assert f"{setting['window']}/{setting['stride']}" in said.sentence
    assert setting["measured"]["mean"] == said.mean


def test_an_index_is_called_by_its_chunks_and_costs_its_vectors(tmp_path: Path) -> None:
    cells = (("cut-0", "cut at 512", "a"), ("w128-1", "128/50%", "b"), ("w256-2", "256/0%", "c"))
    found = analysed(tmp_path, cells=cells, strengths=(0.4, 3.0, 1.0), num_queries=60)
    plain = {"chunking.snap": False, "chunking.title": False}
    indexes = {}
    for at, (window, overlap) in enumerate(((None, 0.0), (128, 0.5), (256, 0.0))):
        ignored = ["chunking.window"] * (window is None)
        settings = {**plain, "chunking.window": window, "chunking.overlap": overlap}
        figures = {"largest_window": 512, "vectors_per_document": 9.0 - at, "ms_per_query": 1.5}
        figures |= {"dimensions": 8, "bytes": 4 * (9 - at) * 8 * 10, "documents": 10}
        indexes[cells[at][0]] = IndexFacts({**settings, "ignored": ignored}, figures)
    said = headline(replace(found, sweep=replace(found.sweep, indexes=indexes)))
    assert said.sentence.startswith("Use chunks of 128 tokens, overlap 50% with BM25: nDCG@10 ")
    assert (said.cost, said.cost_unit, said.milliseconds) == (8.0, "vectors per document", 1.5)
    assert cost_text(said) == "It needs 8.0 vectors per document and takes 1.5 ms per query."
    last = indexes["w256-2"]
    small = replace(last, figures={**last.figures, "stored": "int8", "bytes": 7 * 8 * 10})
    indexes["w256-2"] = small
    said = headline(replace(found, sweep=replace(found.sweep, indexes=indexes)))
    assert cost_text(said) == "It needs 256 bytes per document and takes 1.5 ms per query."
    assert "Chunks of 256 tokens, overlap 0% need 78% fewer bytes" in said.text
    names = {"cut at 512, dims 4": "documents cut at 512, dims 4", "Dense, cut": "Dense, cut"}
    for label, name in ({"cut at 512": "documents cut at 512 tokens"} | names).items():
        own = [replace(found.sweep.cells[0], label=label), *found.sweep.cells[1:]]
        sweep = replace(found.sweep, indexes=indexes, cells=tuple(own))
        assert called(replace(found, sweep=sweep), "cut-0") == name


def test_without_dev_it_says_that_the_tested_queries_chose(tmp_path: Path) -> None:
    found = load_sweep(write_ranked_sweep(tmp_path, first_stage=False, strengths=(0.4, 3.0)))
    said = headline(analyse(replace(found, dev_scores=found.dev_scores.iloc[:0])))
    assert said.more == ("It was chosen from 2 on the reported queries.",)
