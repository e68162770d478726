"""The next step of a sweep: from its place beside the first stage, and from a design's power."""

import re
import shutil
from pathlib import Path

import pytest

from sweeps.__main__ import main
from sweeps.findings.analysis import analyse
from sweeps.report.headline import headline
from sweeps.report.next_step import NextStep, next_step
from sweeps.systems.load import load_sweep
from tests.sweeps.systems.test_load import (
    FIVE,
    NAMES,
    read_values,
    redescribe,
    write_sweep,
    write_values,
)

SAMPLED = {"collection": {"name": "c", "content_hash": "0", "sampled_from": 400}}


def step_of(folder: Path, **changes: object) -> NextStep:
    settings: dict[str, object] = {"kinds": FIVE[:2], "seed_deviation": 0.002, "first_stage": {}}
    settings |= changes
    step = next_step(analyse(load_sweep(write_sweep(folder, **settings))))
    assert step
    return step


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
def test_too_few_seeds_lead_to_the_third(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    step = step_of(tmp_path, seeds=seeds, effect=0.3, num_queries=100)
    assert "needs three seeds" in step.why and step.command.endswith("--num-seeds 3")
    assert re.search(r"about \d+ (s|min|h)", step.why), "what it costs"


def test_where_nothing_is_decided_a_second_look_is_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"effect": 0.03, "num_queries": 20, "seed_deviation": 0.05, **SAMPLED}
    folder = write_sweep(tmp_path, kinds=FIVE[:2], first_stage={}, **changes)
    table = read_values(folder)
    chosen = (table["split"] == "dev") & (table["cell"] == NAMES[1])
    write_values(folder, table.assign(value=table["value"].mask(chosen, 0.9)))
    step = next_step(analyse(load_sweep(folder)))
    assert step is not None
    assert "With more seeds this sweep is tested at 0.0125" in step.why
    assert step.command.endswith("--alpha 0.0125")
    assert "20 of 400 queries (evaluation.max_test_queries)" in step.why
    assert "--num-seeds" not in step.command and " design " in step.command
    assert main(step.command.replace("DIR", str(folder)).split()[1:]) == 0, "as it is printed"


def test_a_choice_that_is_better_is_confirmed(tmp_path: Path) -> None:
    step = step_of(tmp_path, seeds=(1, 2, 3), effect=0.3, num_queries=100)
    assert step.command.endswith("--confirm") and "without selection bias" in step.why


@pytest.mark.parametrize("effect", [0.0, 0.3])
def test_after_a_race_a_confirmation_is_next_whatever_the_test_says(tmp_path, effect):
    """And the headline has the gain after allowing for the choice, or says what would give it."""
    standings = [{"cell": name, "left_after": 2} for name in NAMES[3:]]
    search = {"name": "race", "standings": standings}
    folder = write_sweep(tmp_path, effect=effect, first_stage={}, search=search)
    table = read_values(folder)
    chosen = (table["split"] == "dev") & (table["cell"] == NAMES[1])
    write_values(folder, table.assign(value=table["value"].mask(chosen, 0.9)))
    analysis = analyse(load_sweep(folder))
    assert analysis.chosen is not None
    assert analysis.chosen.significant(0.05) == (effect > 0)
    step = next_step(analysis)
    assert step is not None and step.command.endswith("--confirm")
    assert any(
        "After allowing for the choice the gain is" in one for one in headline(analysis).more
    )


@pytest.mark.parametrize("seeds", [(1,), (1, 2), (1, 2, 3)])
@pytest.mark.parametrize("effect", [0.0, 0.3])
def test_below_the_first_stage_no_seed_is_the_next_step(
    tmp_path: Path, seeds: tuple[int, ...], effect: float
) -> None:
    first = {"nDCG@10": 0.99, "RR@10": 0.99}
    step = step_of(tmp_path, seeds=seeds, effect=effect, first_stage=first, **SAMPLED)
    assert "My model is worse than BM25" in step.why and step.command == ""
    assert "lower mean than the first stage" in step.why  # its difference may be none
    assert "of 400 queries" in step.why
    page = Path(__file__).parents[3] / "docs" / "troubleshooting.md"
    assert (
        "docs/troubleshooting.md" in step.why
        and "## My model is worse than BM25" in page.read_text()
    )


def test_a_limit_of_steps_is_named(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep(tmp_path, first_stage={"nDCG@10": 0.99, "RR@10": 0.99}))
    analysis = analyse(sweep)
    sweep.baseline_settings["training.max_steps"] = 20  # type: ignore[index]
    step = next_step(analysis)
    assert step and "20 steps (training.max_steps)" in step.why


def test_a_design_that_would_be_refused_is_not_named(tmp_path: Path) -> None:
    """Of a baseline that has no seeds."""
    folder = write_sweep(tmp_path, effect=0.0, deterministic=(NAMES[0],), num_queries=30)
    table = read_values(folder)
    write_values(folder, table[~((table["cell"] == NAMES[0]) & (table["seed"] > 1))])
    step = next_step(analyse(load_sweep(folder)))
    assert step is None or " design " not in step.command


def test_the_step_of_a_copy_says_which_folder_its_command_works_on(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "window_stride" / "c"
    step_of(folder, seeds=(1, 2), effect=0.3, num_queries=100)
    redescribe(folder, directory=str(tmp_path))
    shutil.move(folder / "trials", tmp_path / "results" / "trials")  # as in a storage
    copy = shutil.copytree(tmp_path / "results", tmp_path / "archive") / "window_stride" / "c"
    copied = f"This folder is a copy; the command works on {folder}"
    for own, last in ((folder, "Next: "), (copy, copied)):
        step = next_step(analyse(load_sweep(own)), str(own))
        assert step and step.lines[-1].startswith(last)
