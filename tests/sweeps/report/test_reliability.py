"""How reliable the numbers are: limits, selection, what few runs can tell, and their sentences."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rank_core.stats.design import Goal, Pairing, planned_detectable, planned_variances
from rank_core.stats.matrix import score_matrix
from rank_core.stats.variance import SeedCorrelation
from sweeps.__main__ import main
from sweeps.report.build import write_report
from sweeps.report.reliability import pairing_sentence
from sweeps.systems.load import load_sweep
from tests.sweeps.systems.test_load import FIVE, NAMES, read_values, write_sweep, write_values

pytestmark = pytest.mark.usefixtures("no_figures")


@dataclass
class Told:
    """What a report says: its numbers, its sentences in one line, its page."""

    results: dict[str, Any]
    said: str
    page: str

    def primary(self) -> list[dict[str, Any]]:
        return [one for one in self.results["comparisons"] if one["measure"] == "nDCG@10"]

    def label(self, cell: str) -> str:
        return next(one["label"] for one in self.results["cells"] if one["cell"] == cell)


def told(folder: Path) -> Told:
    report = write_report(folder).folder
    results = json.loads((report / "results.json").read_text())
    return Told(results, " ".join(results["conclusions"]), (report / "index.html").read_text())


def test_a_report_has_at_most_eight_sentences(tmp_path: Path) -> None:
    search = {"name": "tpe", "seed": 3, "num_configs": 9, "proposed": 4, "space": 12}
    folder = write_sweep(
        tmp_path, effect=0.06, fates={(2, 2): "collapsed", (3, 1): "failed"}, search=search,
        first_stage={"nDCG@10": 0.99, "RR@10": 0.99}, stopped="the budget",
    )  # fmt: skip
    found = told(folder)
    assert len(found.results["conclusions"]) == len({*found.results["conclusions"]}) == 8
    assert "Every system is worse than the first stage (nDCG@10 0.990)" in found.said


def test_the_best_gain_has_the_interval_of_the_best_of_many(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path, effect=0.06)
    table = read_values(folder)
    chosen = (table["split"] == "dev") & table["cell"].str.startswith("maxp-w64-s48")
    table.loc[chosen, "value"] = 0.9
    write_values(folder, table)
    found = told(folder)
    best = max(found.primary(), key=lambda one: one["delta"])
    reliability = found.results["reliability"]
    limits = {one["system"]: one for one in reliability["limits"]}
    assert len(limits) == len(found.primary()) == 4
    for one in limits.values():
        assert one["detectable_low"] <= one["detectable"] < one["detectable_high"]
    assert best["family_low"] < best["ci_low"] < best["ci_high"] < best["family_high"]
    between = reliability["between_best"]
    assert between["systems"][0] == best["system"]
    for words in (
        f"A difference between MaxP 128/64 and {found.label(between['systems'][1])} is found if "
        f"it is {between['planned']:.3f}.",
        f"MaxP 128/64, the best of 4, gains +{best['delta']:.3f}. ",
        f"is +{best['family_low']:.3f} to",
    ):
        assert words in found.said
    assert limits[best["system"]]["equivalence_p"] > 0.99
    assert "practically equivalent" not in found.said
    assert "MaxP 128/64 has the best mean in" in found.page
    # The choice on dev is another one.
    choice, said = found.results["choice"], found.results["headline"]
    assert (choice["label"], choice["mean"]) == ("MaxP 64/48", pytest.approx(0.9))
    cells = {one["cell"]: one["measures"]["nDCG@10"]["mean"] for one in found.results["cells"]}
    assert said["system"] == choice["system"] and said["mean"] == cells[choice["cell"]]


@pytest.mark.parametrize("num_systems", [2, 4])
def test_what_a_sweep_finds_is_what_a_design_plans_for_each_system(
    tmp_path: Path, num_systems: int
) -> None:
    """The smallest and the largest difference, each with its system."""
    folder = write_sweep(tmp_path, kinds=FIVE[:num_systems], num_queries=60, seed_deviation=0.02)
    found = told(folder)
    sweep = load_sweep(folder)
    limits = {}
    for one in found.primary():
        pair = [one["baseline"], one["system"]]
        own = score_matrix(sweep.scores, measure="nDCG@10", cells=pair)
        goal = Goal(0.01, family_size=one["family_size"])
        limits[found.label(one["system"])] = planned_detectable(
            planned_variances(own, baseline=pair[0]), goal, num_seeds=3, num_queries=60
        )
    ends = {min(limits, key=limits.__getitem__), max(limits, key=limits.__getitem__)}
    for system in ends:
        assert f"{limits[system]:.3f} ({system})" in found.said
    assert "80% power" in found.said


@pytest.mark.parametrize("margin", [0.02, 0.0001])
def test_systems_near_the_best_are_named_by_the_margin_that_was_fixed_before(
    tmp_path: Path, margin: float
) -> None:
    folder = write_sweep(tmp_path, effect=0.03, seeds=(1, 2, 3, 4, 5), rope=margin)
    report = write_report(folder, verbose=True)
    results = json.loads((report.folder / "results.json").read_text())
    found = results["not_distinguishable_from_the_best"][0]
    near = [s for s in (*found["members"], *found["left"]) if found["distances"][s] < margin]
    assert found["margin"] == margin and found["within_margin"] == near
    assert 0 < len(near) < 5 if margin == 0.02 else not near
    said = f"less than {margin:g} below the best system in nDCG@10, whichever that is"
    for text in (report.text, (report.folder / "index.html").read_text(), *results["notes"]):
        if said in " ".join(text.split()):
            assert near
    shown = " ".join(report.text.split())
    assert (said in shown) == (said in " ".join(results["notes"])) == bool(near)


def test_two_seeds_do_not_say_what_they_would_find(tmp_path: Path) -> None:
    found = told(write_sweep(tmp_path, seeds=(1, 2), num_queries=60))
    assert "seeds differ" in found.said and "% power" not in found.said


@pytest.mark.parametrize(
    ("r", "low", "paired", "said"),
    [
        (
            0.8,
            0.4,
            True,
            ": a difference found with 80% power is 0.010 with paired seeds and 0.020",
        ),
        (
            0.8,
            0.4,
            False,
            ": a difference found with 80% power is 0.010 with paired seeds and 0.020",
        ),
        (0.2, -0.2, True, ", which does not show that pairing gains anything."),
        (0.2, -0.2, False, "With training.paired_seeds=true they share"),
    ],
)
def test_what_pairing_gains_is_said_where_it_is_no_accident(
    r: float, low: float, paired: bool, said: str, tmp_path: Path
) -> None:
    sweep = load_sweep(write_sweep(tmp_path))
    found = Pairing(SeedCorrelation(r, low, 0.9, 3, 5), independent=0.02, paired=0.01)
    text = pairing_sentence(sweep, found, paired=paired)
    assert said in text and f"correlate by +{r:.2f} between systems (95% interval" in text
    assert pairing_sentence(sweep, None, paired=paired) == ""


def test_the_report_begins_with_the_systems_not_distinguishable_from_the_best(
    tmp_path: Path,
) -> None:
    found = told(write_sweep(tmp_path, effect=0.3, seed_deviation=0.001))
    stored = found.results["not_distinguishable_from_the_best"]
    [best] = [one for one in stored if one["measure"] == "nDCG@10"]
    left = {one["cell"] for one in found.results["cells"]} - {*best["members"]}
    assert best["members"] and left, "large differences and small ones"
    first = found.results["conclusions"][0]
    assert first.startswith("Highest nDCG@10 (")
    assert all(found.label(system) in first for system in best["members"])
    assert not any(found.label(system) in first for system in left)


@pytest.mark.parametrize("seeds", [range(1, 4), range(1, 6)])
def test_the_false_positive_rate_of_the_paired_t_test_has_its_interval_from_five_seeds_on(
    seeds: range, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_sweep(tmp_path, seeds=tuple(seeds), seed_deviation=0.03)
    worst = max(one["predicted_false_positive_rate"] for one in told(folder).primary())
    assert main(["compare", str(folder), "--verbose"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    shown = re.search(r"of up to (\d+)%( \((\d+)% to (\d+)%\))?, not 5%", text)
    assert shown, text
    assert 20 < int(shown[1]) == round(100 * worst)
    assert bool(shown[2]) == (len(seeds) == 5)
    assert not shown[2] or int(shown[3]) < int(shown[1]) < int(shown[4])


def test_an_interval_that_no_measure_fills_has_no_numbers(tmp_path: Path) -> None:
    found = told(write_sweep(tmp_path, num_queries=2, seeds=(1, 2), seed_deviation=0.2))
    assert any(one["ci_high"] - one["ci_low"] > 2 for one in found.primary())
    assert "too wide" in found.said
    assert not re.search(r"[+−]\d*[2-9]\.\d{3}", found.page)


def test_a_baseline_without_seeds_has_a_p_and_silences_nothing(tmp_path: Path) -> None:
    fixed = {"deterministic": (NAMES[0],), "fates": {(2, 2): "collapsed"}}
    folder = write_sweep(tmp_path, effect=0.06, **fixed)
    table = read_values(folder)
    repeated = (table["cell"] == NAMES[0]) & (table["seed"] > 1)
    write_values(folder, table[~repeated])
    found = told(folder)
    assert all(one["p_both"] < 1 for one in found.primary())
    assert "seeds differ in mean nDCG@10" in found.said and "best of 4" in found.said


def test_with_one_seed_only_what_one_seed_can_tell_is_said(tmp_path: Path) -> None:
    found = told(write_sweep(tmp_path, seeds=(1,), num_queries=40))
    numbers = found.results["reliability"]
    assert (numbers["components"], numbers["corrected"], numbers["limits"]) == (None, None, [])
    assert numbers["factors"] == [] and "seeds differ" not in found.said
    assert found.page.count("One planned comparison needs three seeds") == 1
    assert found.page.count("†: one training run") == 1
    assert not re.search(r"\bnan\b", found.page)


@pytest.mark.parametrize(
    ("seeds", "lost", "is_told"),
    [((1, 2, 3), 0.9, True), ((1, 2), 0.9, False), ((1, 2, 3), 1e-4, False)],
)
def test_unequal_seed_variances_are_told_of_three_runs_and_an_sd_that_is_seen(
    seeds: tuple[int, ...], lost: float, is_told: bool, tmp_path: Path
) -> None:
    values = read_values(write_sweep(tmp_path, seeds=seeds, num_queries=40))
    of_one = values.groupby(["cell", "split", "measure", "query_id"])["value"].transform("first")
    of_one += 1e-6 * values["seed"]  # equal runs are refused
    is_lower = (values["cell"] == values["cell"].min()) & (values["seed"] == 1)
    write_values(tmp_path, values.assign(value=of_one.where(~is_lower, of_one * (1 - lost))))
    found = told(tmp_path)
    assert found.results["reliability"]["homogeneity_p"] < 0.05
    assert "seeds differ in mean" in found.said and ("Bartlett" in found.said) is is_told


def test_no_size_of_a_sweep_turns_the_familywise_error_into_a_share_of_false_findings(
    tmp_path: Path,
) -> None:
    kinds = [FIVE[0], *(("MaxP", 50 + 10 * step, 50) for step in range(20))]
    sizes = {"many": dict(kinds=kinds, effect=0.0), "few": {}}
    many, few = (
        told(write_sweep(tmp_path / name, num_queries=30, correction="", **size))
        for name, size in sizes.items()
    )
    gain = many.results["reliability"]["corrected"]
    assert gain["corrected"] < gain["naive"]
    assert f"the gain is {gain['corrected']:+.3f}".replace("-", "−") in many.said
    asked = told(write_sweep(tmp_path / "asked", num_queries=30, correction="bh"))
    for found in (many, few, asked):
        applied = {one["correction"] for one in found.results["families"]}
        assert ("bh" in applied) == (found is asked) and len(applied) == 1
        texts = {one["text"] for one in found.results["families"]}
        assert {one["correction"] for one in found.results["comparisons"]} == texts
        assert ("may be false" in found.said) == (found is asked)


def test_cells_below_the_first_stage_are_named_and_the_first_stage_is_not(tmp_path: Path) -> None:
    values = read_values(write_sweep(tmp_path, num_queries=40))
    of_test = values[(values["split"] == "test") & (values["measure"] == "nDCG@10")]
    lowest = of_test.groupby("cell")["value"].mean().min()
    for more, below in ((1e-12, False), (1e-6, True)):  # a mean may be summed in another order
        first = {"nDCG@10": lowest + more, "RR@10": 0.0}
        again = told(write_sweep(tmp_path, num_queries=40, first_stage=first))
        assert ("worse than the first stage (" in again.said) == below
