"""Published values: their tables, and their place beside ours."""

import re
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from sweeps.commands.report import main
from sweeps.report.load import load_sweep
from sweeps.report.published import TABLES, published
from tests.sweeps.report.test_load import read_values, write_sweep, write_values

BIAS, Y2022 = "Boytsov et al., positional bias", "Boytsov et al. 2022"


def robust04(folder: Path, backbone: str = "bert-base-uncased", **changes: Any) -> Path:
    """A sweep of MaxP windows on Robust04's titles; for RR@10, which no paper prints, nDCG@20."""
    write_sweep(
        folder,
        kinds=[("FirstP", 477, 477), ("MaxP", 150, 100), ("MaxP", 75, 50)],
        num_queries=20,
        collection={"name": "robust04-title"},
        backbone={"name": backbone},
        measures=["nDCG@10", "nDCG@20"],
        **changes,
    )
    table = read_values(folder)
    table["measure"] = table["measure"].replace("RR@10", "nDCG@20")
    write_values(folder, table)
    return folder


pytestmark = pytest.mark.usefixtures("no_figures")


def test_a_system_is_matched_by_collection_measure_model_encoder_and_windows(
    tmp_path: Path,
) -> None:
    sweep = load_sweep(robust04(tmp_path))
    first, sliding, other = (one.cell for one in sweep.cells)
    found = published(sweep)
    assert found[first] == {
        "nDCG@20": [
            f".475 ({Y2022}, Table 4)",
            f".475 ({BIAS}, Table 1)",
            f".449 ({BIAS}, Table 5)",
            # Vanilla BERT of KeyB has .4678 on Robust04, of topics nobody names
        ]
    }
    assert f".488 ({Y2022}, Table 4)" in found[sliding]["nDCG@20"]
    assert found[other] == {"nDCG@20": [".4767 (Zhang, Yates and Lin 2021, Table 2)"]}
    assert published(load_sweep(robust04(tmp_path / "x", backbone="tiny"))) == {}


def test_the_report_shows_them_beside_ours_where_asked_and_tests_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = robust04(tmp_path)
    main([str(folder), "--out", str(tmp_path / "plain")])
    main([str(folder), "--published", "--out", str(tmp_path / "theirs")])
    assert "Published, FirstP: nDCG@20 .475 (Boytsov et al. 2022, Table 4);" in " ".join(
        capsys.readouterr().out.split()
    )
    for name in ("index.html", "table.md", "table.tex"):
        plain, theirs = ((tmp_path / of / name).read_text() for of in ("plain", "theirs"))
        assert "Table 4" in theirs and "never tested" in theirs
        assert "Table 4" not in plain and "ublished" not in plain
    compared = [(tmp_path / of / "comparisons.csv").read_text() for of in ("plain", "theirs")]
    assert compared[0] == compared[1]


def test_values_of_a_reference_stand_beside_ours_with_our_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"collection": "robust04-title", "measure": "nDCG@10", "source": "a page"}
    window = {"chunking.window": 150}
    rows = [
        row | {"values": [0.35, 0.99], "settings": window},
        row | {"values": [0.01], "interval": [0.005, 0.02], "settings": {"model.name": "firstp"}},
        row | {"values": [0.5], "settings": {"chunking.window": 75}, "differs": "a twin"},
        row | {"values": [0.5], "collection": "other"},
        row | {"values": [0.5], "settings": {"model.backbone": "other"}},
    ]
    folder = robust04(tmp_path, published=rows)
    main([str(folder)])
    text = " ".join(capsys.readouterr().out.split())
    scores = load_sweep(folder).scores
    of_cell = scores[(scores["measure"] == "nDCG@10") & scores["cell"].str.startswith("maxp-w150")]
    table = of_cell.pivot(index="seed", columns="query_id", values="value").to_numpy()
    shown = re.search(r"0.3500, 0.9900 \(a page; 1 of 2 inside our 95% .*? (\S+) to (\S+)\)", text)
    assert shown, text
    low, high = map(float, shown.groups())
    # About our mean, and wider than by its queries alone: seeds are random too.
    of_queries = stats.t.interval(0.95, 19, table.mean(), stats.sem(table.mean(axis=0)))
    assert (low + high) / 2 == pytest.approx(table.mean(), abs=0.001)
    assert of_queries[0] - 0.02 < low <= of_queries[0] + 5e-4 and low < 0.35 < high
    assert ": nDCG@10 0.0100 [0.0050, 0.0200] (a page; not inside our" in text
    assert ": nDCG@10 0.5000 (a page; not comparable: a twin)" in text
    assert text.count("(a page;") == 3
    assert "1 of 2 inside" in (folder / "report" / "table.md").read_text()
    page = (folder / "report" / "index.html").read_text()
    assert '<th class="text">published' in page and '<td class="text">nDCG@10 0.3500' in page


@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.source)
def test_a_table_is_whole(table: Any) -> None:
    for label, *_ in table.rows:
        values = table.cells(label).values()
        assert all(one == "-" or 0 < float(one) < 1 for one in values)
    assert len({label for label, *_ in table.rows}) == len(table.rows)
