"""The log of looks at the test: one line per set of trials, told on the page, no result."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rank_core.errors import BadInput
from sweeps.commands.report import main
from sweeps.findings.analysis import analyse
from sweeps.findings.looks import rows
from sweeps.report.build import write_report
from sweeps.systems.access_log import ACCESS_FILE, read_accesses
from sweeps.systems.load import load_sweep
from tests.sweeps.systems.test_load import write_sweep

pytestmark = pytest.mark.usefixtures("no_figures")


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / ACCESS_FILE).read_text().splitlines()]


def test_a_report_over_new_trials_is_recorded_and_the_same_again_is_not(tmp_path, capsys):
    folder = write_sweep(tmp_path / "woods", num_queries=20, seeds=(1, 2))
    report, before = folder / "report", datetime.now(UTC).replace(microsecond=0)
    assert main([str(folder)]) == 0
    [line] = lines(folder)
    assert before <= datetime.fromisoformat(line["time"]) <= datetime.now(UTC)
    assert line["command"].endswith(f" report {folder}")
    assert (line["split"], line["num_cells"], line["num_trials"]) == ("test", 5, 10)
    results = (report / "results.json").read_bytes()
    line["time"] = "2026-03-04T05:06:07+00:00"
    cut = '{"time": "2026-03-'  # by a full disk
    (folder / ACCESS_FILE).write_text(f"{json.dumps(line)}\n{cut}")
    write_report(folder)
    assert f"{ACCESS_FILE}: its last line is cut" in capsys.readouterr().err
    assert "sets of trials" not in (report / "index.html").read_text()
    assert (report / "results.json").read_bytes() == results
    assert b"2026-03-04" not in results and b"sets of trials" not in results

    write_sweep(folder, num_queries=20, seeds=(1, 2, 3))
    write_report(folder, "x --tracking-uri postgresql://me:geheim@host/mlflow")
    again, second = lines(folder)
    assert again == line and second["seeds"] == [1, 2, 3] and second["hash"] != line["hash"]
    assert "geheim" not in (folder / ACCESS_FILE).read_text()
    looked = {
        row.name: row.value
        for row in rows(analyse(load_sweep(folder)), read_accesses(folder / ACCESS_FILE))
    }
    assert looked["looks at test values"] == 2
    assert "looks at test values" in (report / "index.html").read_text()

    write_sweep(folder, num_queries=20, measures=("nDCG@10",))
    write_report(folder)
    assert lines(folder)[2]["command"].startswith("python -m sweeps run window_stride")
    with (folder / ACCESS_FILE).open("a") as file:
        file.write('{"time": "yesterday"}\n')
    with pytest.raises(BadInput, match=r"test_access\.jsonl"):
        write_report(folder)


def test_a_report_on_dev_or_without_scores_opens_nothing(tmp_path):
    write_report(write_sweep(tmp_path / "dev", num_queries=20, split="dev"))
    fates = {(cell, seed): "failed" for cell in range(5) for seed in (1, 2, 3)}
    write_report(write_sweep(tmp_path / "lost", num_queries=20, fates=fates))
    assert list(tmp_path.glob(f"*/{ACCESS_FILE}")) == []


@pytest.mark.parametrize(
    ("before", "seeds", "look"),
    [
        ((), (1, 2, 3), 1),
        (((1, 2),), (1, 2, 3), 1),  # two runs decide nothing
        (((1, 2, 3),), (1, 2, 3), 1),  # the same look
        (((1, 2, 3),), (1, 2, 3, 4, 5), 2),
        (((1, 2, 3), (1, 2, 3, 4)), (1, 2, 3, 4, 5), 3),
    ],
)
def test_a_sweep_that_got_more_seeds_after_a_look_has_the_level_of_its_look(
    tmp_path, before, seeds, look
):
    """In every way out: letters and intervals, results.json, the headline, the next step."""
    folder = tmp_path / "woods"
    for own in (*before, seeds):
        write_report(write_sweep(folder, num_queries=60, seeds=own, effect=0.002))
    for _ in range(2):  # a report that is made again is no further look
        analysis = analyse(load_sweep(folder))
        level = 0.05 / look**2
        assert {one.family.alpha for one in analysis.compared.values()} == {level}
        assert {found.alpha for found in analysis.best_sets.values()} == {level}
        results = json.loads((folder / "report" / "results.json").read_text())
        assert (results["sweep"]["alpha"], results["sweep"]["look"]) == (level, look)
        said = " ".join(results["headline"]["more"])
        assert (f"Look {look} at this sweep: its level is {level:.3g}" in said) == (look > 1)
        write_report(folder)
    # A larger set that was looked at since changes nothing of a smaller one.
    write_report(write_sweep(folder, num_queries=60, seeds=(1, 2, 3, 4, 5, 6)))
    assert load_sweep(write_sweep(folder, num_queries=60, seeds=seeds)).look == look
