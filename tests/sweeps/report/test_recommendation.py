"""The recommendation: the cheapest of the undistinguishable, or what would decide."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rank_core.stats.design import Goal, Variances, planned_power, variances_beside_fixed
from rank_core.stats.scopes import scope_test
from sweeps.report.analysis import Analysis, analyse
from sweeps.report.recommendation import MOST_WORDS, cost_text, recommendation
from sweeps.systems.chunk_sizes import IndexFacts
from sweeps.systems.derived import with_interpolated
from sweeps.systems.load import load_sweep
from tests.golden.cases import CASES
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

ROOT = Path(__file__).parents[3]
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


@pytest.mark.parametrize("case", SWEEPS)
def test_the_first_sentence_has_at_most_25_words_whatever_the_names(
    case: str, tmp_path: Path
) -> None:
    found = analyse(with_interpolated(load_sweep(CASES[case].make(tmp_path / case))))
    for number in (1, 4, 30):
        said = recommendation(renamed(found, lambda label, n=number: " ".join([label] * n)))
        assert said.sentence.startswith(said.headline) and said.headline.endswith(".")
        assert 0 < len(said.headline.split()) <= MOST_WORDS == 25
        assert number > 1 or "…" not in said.sentence


def test_a_smoke_test_has_no_recommendation(tmp_path: Path) -> None:
    found = analysed(tmp_path, strengths=(0.4, 3.0))
    about = replace(found.sweep.about, smoke_test=True)
    said = recommendation(replace(found, sweep=replace(found.sweep, about=about)))
    assert (said.sentence, said.system) == ("A smoke test has no recommendation.", "")


def test_the_recommended_is_better_than_the_first_stage(tmp_path: Path) -> None:
    found = recommendation(analysed(tmp_path, strengths=(0.4, 3.0), num_queries=60))
    assert found.headline.startswith("Use MaxP 40/20") and "over BM25 (" in found.headline
    assert found.gain_low is not None and found.gain_low > 0
    assert cost_text(found) == ""  # nothing is known of it


def test_the_cheaper_of_two_that_cannot_be_told_apart(tmp_path: Path) -> None:
    """Each has the lower cost once: the cost decides, not the mean."""
    found = analysed(tmp_path, strengths=(3.0, 3.0), num_queries=60)
    for cheap in range(2):
        cells = [
            replace(cell, encoder_tokens_per_document=40.0 if at == cheap else 80.0)
            for at, cell in enumerate(found.sweep.cells)
        ]
        said = recommendation(replace(found, sweep=replace(found.sweep, cells=tuple(cells))))
        assert said.cost == 40.0 and said.system.startswith(cells[cheap].cell)
        assert "not distinguishable from the best" in said.sentence
        assert cost_text(said) == "The recommended system reads 40 encoder tokens per document."


def test_below_the_first_stage_nothing_is_recommended(tmp_path: Path) -> None:
    found = recommendation(analysed(tmp_path, strengths=(0.02, 0.02), num_queries=60))
    assert not found.system and "Use" not in found.sentence


def test_undecided_says_what_it_would_take(tmp_path: Path) -> None:
    found = recommendation(analysed(tmp_path, strengths=(0.9, 1.0), first_stage=False))
    assert not found.system and "more queries" in found.sentence


def test_undecided_beside_a_first_stage_says_what_it_would_take(tmp_path: Path) -> None:
    """The first stage has no seeds: a design of its own."""
    found = recommendation(analysed(tmp_path, strengths=(0.9, 1.2), num_queries=12))
    assert found.headline.startswith("No system is significantly better than BM25")
    assert "would take" in found.sentence and " more " in found.sentence


@pytest.mark.parametrize(("seeds", "said"), [(1, "two more seeds"), (2, "one more seed")])
def test_too_few_seeds_say_how_many_more(seeds: int, said: str, tmp_path: Path) -> None:
    found = load_sweep(write_ranked_sweep(tmp_path, first_stage=False, seeds=(1, 2, 3)))
    few = replace(
        found,
        scores=found.scores[found.scores["seed"] <= seeds],
        trials=found.trials[found.trials["seed"] <= seeds],
    )
    sentence = recommendation(analyse(few)).sentence
    assert sentence.startswith("No recommendation: ") and sentence.endswith(
        f"Each system needs {said}."
    )


def test_a_serving_sweep_is_chosen_by_the_tokens_of_a_query(tmp_path: Path) -> None:
    found = analyse(with_interpolated(load_sweep(CASES["serving"].make(tmp_path / "serving"))))
    said = recommendation(found)
    assert found.sweep.serving
    tokens = {str(row["label"]): row["tokens_per_query"] for row in found.sweep.serving.rows}
    assert said.cost == tokens[found.sweep.label(said.system)]
    assert "encoder tokens and takes" in cost_text(said)


def test_an_index_is_compared_with_whole_documents_and_chosen_by_its_vectors(
    tmp_path: Path,
) -> None:
    """The large index has fewer vectors in one case, the small one in the other."""
    cells = (("cut-0", "cut at 512", "a"), ("w128-1", "128/50%", "b"), ("w256-2", "256/0%", "c"))
    found = analysed(tmp_path, cells=cells, strengths=(0.4, 3.0, 3.0), num_queries=60)
    plain = {"chunking.snap": False, "chunking.title": False}
    for few, said in ((1, "chunks of 128 tokens, overlap 50%"), (2, "chunks of 256 tokens, ")):
        indexes = {}
        for at, (window, overlap) in enumerate(((None, 0.0), (128, 0.5), (256, 0.0))):
            ignored = ["chunking.window"] * (window is None)
            settings = {**plain, "chunking.window": window, "chunking.overlap": overlap}
            vectors = 2.0 if at == few else 9.0
            figures = {"largest_window": 512, "vectors_per_document": vectors, "ms_per_query": 1.5}
            indexes[cells[at][0]] = IndexFacts({**settings, "ignored": ignored}, figures)
        told = recommendation(replace(found, sweep=replace(found.sweep, indexes=indexes)))
        assert told.headline.startswith(f"Use {said}") and told.system == cells[few][0]
        assert "over documents cut at 512 tokens (95% interval" in told.headline
        assert (told.cost, told.cost_unit, told.milliseconds) == (2.0, "vectors per document", 1.5)
        assert "with BM25" not in told.sentence  # which is not a chunk size
        assert cost_text(told).startswith(
            "The recommended system needs 2.0 vectors per document and takes 1.5 ms"
        )


def test_what_you_may_say_quotes_what_is_printed() -> None:
    """Every kind of sentence of the table is one that the code has."""
    page = (ROOT / "docs" / "statistics.md").read_text("utf-8")
    source = (ROOT / "sweeps" / "report" / "recommendation.py").read_text("utf-8")
    screen = page.partition("## What you may say")[2].partition("\n## ")[0]
    assert len(screen.splitlines()) < 40, "one screen"
    for words in (
        "not distinguishable from the best.",
        "is significantly better than",
        "the largest difference is",
        "No recommendation: ",
        "too few to tell.",
        "would take ",
        "no system is above it",
        "A smoke test has no recommendation.",
    ):
        assert words in screen and words in source


def test_the_power_beside_a_system_without_seeds_is_that_of_its_parts() -> None:
    """Planned from a comparison with many seeds and queries, the same comparison is found with the
    power that its own error gives."""
    import numpy as np

    rng = np.random.default_rng(3)
    S, Q = 400, 4000
    query, run = rng.normal(0, 0.3, Q), rng.normal(0, 0.05, (S, 1))
    system = 0.5 + query + run + rng.normal(0, 0.1, (S, Q))
    test = scope_test(system, np.full((1, Q), 0.5), deterministic=(False, True))
    planned = variances_beside_fixed(test, num_seeds=S, num_queries=Q, assurance=0.5)
    for sd, true in ((planned.difference, 0.3), (planned.seed, 0.05 / 2**0.5)):
        assert sd == pytest.approx(true, rel=0.1)
    assert planned.residual == pytest.approx(0.1 / 2**0.5, rel=0.02)
    own = {"num_seeds": 50, "num_queries": 100}
    error = (0.3**2 / 100 + 0.05**2 / 50 + 0.1**2 / 5000) ** 0.5
    assert planned_power(planned, Goal(2.8 * error), **own) == pytest.approx(0.8, abs=0.03)
    fixed = scope_test(system[:1], np.full((1, Q), 0.5), deterministic=(True, True))
    alone = variances_beside_fixed(fixed, num_seeds=1, num_queries=Q, assurance=0.5)
    assert isinstance(alone, Variances) and alone.seed == alone.residual == 0
